package node

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
)

// front has the listeners of one Service.
type front struct {
	address string
	// endpoints returns the addresses of the ready Pods.
	endpoints func() []string
	listeners map[portMapping]*listener
}

// portMapping is a port of a Service with its port of the Pods.
type portMapping struct {
	port   int32
	target string
}

// listener is the listener of one port, with its connections.
type listener struct {
	net.Listener
	stop  context.CancelFunc
	ended sync.WaitGroup
}

func newFront(address string, endpoints func() []string) *front {
	return &front{address: address, endpoints: endpoints, listeners: map[portMapping]*listener{}}
}

// listen listens on exactly these ports until ctx ends or close is called.
func (f *front) listen(ctx context.Context, ports []corev1.ServicePort) error {
	wanted := map[portMapping]bool{}
	for _, port := range ports {
		if port.Protocol == corev1.ProtocolTCP {
			wanted[portMapping{port.Port, port.TargetPort.String()}] = true
		}
	}
	for m, l := range f.listeners {
		if !wanted[m] {
			l.close()
			delete(f.listeners, m)
		}
	}
	var errs []error
	for m := range wanted {
		if f.listeners[m] == nil {
			errs = append(errs, f.open(ctx, m))
		}
	}
	return errors.Join(errs...)
}

func (f *front) open(ctx context.Context, m portMapping) error {
	socket, err := net.Listen("tcp", net.JoinHostPort(f.address, strconv.Itoa(int(m.port))))
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	l := &listener{Listener: socket, stop: stop}
	context.AfterFunc(ctx, func() { _ = socket.Close() }) // ends Accept
	l.ended.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			l.ended.Go(func() { f.forward(ctx, client, m.target) })
		}
	})
	f.listeners[m] = l
	return nil
}

// close returns after all connections are closed.
func (l *listener) close() {
	l.stop()
	l.ended.Wait()
}

func (f *front) close() {
	for _, l := range f.listeners {
		l.close()
	}
}

// forward connects a client to a Pod until one of them or ctx ends.
func (f *front) forward(ctx context.Context, client net.Conn, port string) {
	defer client.Close()
	server := f.dial(ctx, port)
	if server == nil {
		return // the client sees a closed connection
	}
	defer server.Close()
	defer context.AfterFunc(ctx, func() { _, _ = client.Close(), server.Close() })()
	var copying sync.WaitGroup
	copying.Go(func() { pipe(server, client) })
	copying.Go(func() { pipe(client, server) })
	copying.Wait()
}

// pipe copies until one side ends, and then closes the other side for writing. An error ends both directions.
func pipe(to, from net.Conn) {
	if _, err := io.Copy(to, from); err != nil {
		_, _ = to.Close(), from.Close()
		return
	}
	if half, ok := to.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite() // fails for a closed connection
	}
}

// dial tries the Pods in random order. It returns nil if no Pod responds.
func (f *front) dial(ctx context.Context, port string) net.Conn {
	for _, address := range f.endpoints() {
		conn, err := (&net.Dialer{Timeout: callTimeout}).DialContext(ctx, "tcp", net.JoinHostPort(address, port))
		if err == nil {
			return conn
		}
	}
	return nil
}
