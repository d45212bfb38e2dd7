package kube

// net/http.Transport waits for one slow connection attempt. The functions in this file start further attempts.

import (
	"context"
	"crypto/tls"
	"net"
	"time"
)

const (
	// firstSetup is the time after which a second connection attempt starts. It doubles for each further attempt, up to
	// lastSetup. The last attempt has the timeout of the dialer.
	firstSetup = 250 * time.Millisecond
	lastSetup  = 4 * time.Second
)

type dialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

type dialed struct {
	conn net.Conn
	err  error
}

// raced returns a dialer that starts another attempt while connections are being set up. It returns the first connection that is
// ready and ends the other attempts. It returns an error if all attempts that have started failed.
func raced(dial dialFunc) dialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		results := make(chan dialed)
		attempt := func() {
			conn, err := dial(ctx, network, address)
			select {
			case results <- dialed{conn, err}:
			case <-ctx.Done():
				if err == nil {
					_ = conn.Close()
				}
			}
		}
		go attempt()
		running, patience := 1, firstSetup
		next := time.NewTimer(patience)
		defer next.Stop()
		for {
			select {
			case r := <-results:
				if running--; r.err == nil || running == 0 {
					return r.conn, r.err
				}
			case <-next.C:
				running++
				go attempt()
				if patience *= 2; patience <= lastSetup {
					next.Reset(patience)
				}
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}
	}
}

// secure does the TLS handshake as net/http.Transport does, so that it is part of the attempt.
func (g *generation) secure(ctx context.Context, conn net.Conn, address string) (net.Conn, error) {
	config := g.TLSClientConfig.Clone()
	if config == nil {
		config = &tls.Config{}
	}
	if config.ServerName == "" {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			host = address
		}
		config.ServerName = host
	}
	if g.TLSHandshakeTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, g.TLSHandshakeTimeout)
		defer cancel()
	}
	secured := tls.Client(conn, config)
	if err := secured.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return secured, nil
}
