package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"go.uber.org/atomic"
)

const (
	// httpStop is how long requests under way may take to end.
	httpStop = 2 * time.Second
	// headerTimeout bounds the wait for a request's header, so that idle clients do not
	// hold connections.
	headerTimeout = 10 * time.Second
)

// httpServer serves until it is told to stop.
type httpServer struct {
	flag     string // that says where
	wanted   string
	bound    time.Duration // httpStop
	server   *http.Server
	listener atomic.Value // of net.Listener
}

func newHTTPServer(flag, address string, handler http.Handler, log *slog.Logger) *httpServer {
	return &httpServer{flag: flag, wanted: address, bound: httpStop, server: &http.Server{
		Handler: handler, ReadHeaderTimeout: headerTimeout,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}}
}

func (h *httpServer) listen() error {
	listener, err := net.Listen("tcp", h.wanted)
	if err != nil {
		return fmt.Errorf("listening on %s: %w; give another %s, or :0 for any free port", h.wanted, err, h.flag)
	}
	h.listener.Store(listener)
	return nil
}

func (h *httpServer) address() string {
	listener, ok := h.listener.Load().(net.Listener)
	if !ok {
		return ""
	}
	return listener.Addr().String()
}

func (h *httpServer) serve(ctx context.Context) error {
	ended := make(chan error, 1)
	go func() { ended <- h.server.Serve(h.listener.Load().(net.Listener)) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.bound)
	defer cancel()
	err := h.server.Shutdown(ctx)
	if err != nil {
		err = h.server.Close() // whoever still reads is cut off
	}
	if ended := <-ended; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	return err
}
