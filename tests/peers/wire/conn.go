package wire

import (
	"net"
	"sync"
)

// conn is one connection of a wire.
type conn struct {
	net.Conn
	wire   *Wire
	once   sync.Once
	closed chan struct{}

	mu   sync.Mutex
	held []byte // written while the wire swallowed
}

// Read blocks while the wire swallows.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	for {
		mode, changed := c.wire.state()
		if mode != Swallowed {
			return n, err
		}
		select {
		case <-changed:
		case <-c.closed:
			return 0, net.ErrClosed
		}
	}
}

// Write succeeds while the wire swallows, as into a kernel buffer.
func (c *conn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if mode, _ := c.wire.state(); mode == Swallowed {
		c.held = append(c.held, p...)
		return len(p), nil
	}
	if err := c.send(); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// send writes the held bytes. The caller holds the mutex.
func (c *conn) send() error {
	if len(c.held) == 0 {
		return nil
	}
	_, err := c.Conn.Write(c.held)
	c.held = nil
	return err
}

// flush writes the held bytes. An error shows at the next use of the connection.
func (c *conn) flush() {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.send()
}

func (c *conn) Close() error {
	c.once.Do(func() {
		close(c.closed)
		c.wire.forget(c)
	})
	return c.Conn.Close()
}

// reset resets the connection, so that both ends get an error.
func (c *conn) reset() {
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}
