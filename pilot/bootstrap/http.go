package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	_ "net/http/pprof" //nolint:gosec // its handlers of http.DefaultServeMux are served only with Profiling
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/atomic"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"incumbent.dev/incumbent/internal/inspect"
)

const (
	// httpStop is the time for pending requests to end.
	httpStop = 2 * time.Second
	// headerTimeout bounds the wait for a request's header, so that idle clients do not keep connections open.
	headerTimeout = 10 * time.Second
)

// httpServer is an HTTP server with a bounded stop.
type httpServer struct {
	flag     string // the flag with the address, for errors
	wanted   string
	bound    time.Duration // httpStop
	server   *http.Server
	listener net.Listener  // set by listen
	at       atomic.String // address of the listener, or ""
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
		return fmt.Errorf("listen on %s: %w; give another %s, or :0 for any free port", h.wanted, err, h.flag)
	}
	h.listener = listener
	h.at.Store(listener.Addr().String())
	return nil
}

func (h *httpServer) address() string { return h.at.Load() }

func (h *httpServer) serve(ctx context.Context) error {
	ended := make(chan error, 1)
	go func() { ended <- h.server.Serve(h.listener) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.bound)
	defer cancel()
	err := h.server.Shutdown(ctx)
	if err != nil {
		err = h.server.Close() // close the remaining connections
	}
	if ended := <-ended; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	return err
}

// handler returns the pages of --address.
func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", s.check(s.healthy))
	mux.HandleFunc("GET /readyz", s.check(func(*http.Request) error { return s.ready() }))
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.gatherers(), promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /debug/elections", s.serveElections)
	mux.HandleFunc("GET /{$}", s.index)
	if s.config.Profiling {
		mux.Handle("GET /debug/pprof/", http.DefaultServeMux)
	}
	return mux
}

// gatherers returns the metrics of all sites.
func (s *Server) gatherers() (all prometheus.Gatherers) {
	for _, at := range s.sites() {
		all = append(all, at.metrics.registry)
	}
	return all
}

func (s *Server) index(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprintf(w, "pilot %s, revision %s\n\n/healthz\n/readyz\n/metrics\n/debug/elections\n", s.config.Identity, s.config.Revision)
	if s.config.Profiling {
		fmt.Fprintln(w, "/debug/pprof/")
	}
}

// check returns a page with ok or an error.
func (s *Server) check(of func(*http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		if err := of(req); err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprintln(w, err)
			return
		}
		fmt.Fprintln(w, "ok")
	}
}

// healthy fails if controllers still run long after their lease expired. A restart solves that.
func (s *Server) healthy(req *http.Request) error {
	var errs []error
	for _, le := range s.elections.All() {
		errs = append(errs, le.Healthz().Check(req))
	}
	return errors.Join(errs...)
}

var (
	errStopping   = errors.New("the server is stopping")
	errNotReached = errors.New("no response from the API server yet")
)

// ready does not depend on leading. A server becomes ready when the API server first accepts a request. It remains ready if
// the API server fails: otherwise all replicas would become unready together, without a benefit.
func (s *Server) ready() error {
	switch {
	case s.stopping.Load():
		return errStopping
	case s.reached.Load():
		return nil
	case s.watcher.HasSynced():
		s.reached.Store(true)
		return nil
	}
	reporter, ok := s.watcher.(interface{ Problem() error })
	if !ok {
		return errNotReached
	}
	problem := reporter.Problem()
	if apierrors.IsForbidden(problem) { // the API server authenticated the request, and elections do not need the response
		s.reached.Store(true)
		return nil
	}
	return errors.Join(errNotReached, problem)
}

// serveElections sends the elections as JSON.
func (s *Server) serveElections(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if err := inspect.WriteJSON(w, stateOf(s.sites()).Elections); err != nil {
		s.log.Debug("failed to write /debug/elections", "err", err)
	}
}
