package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.uber.org/atomic"
)

const (
	statusPort = "15021"
	readyPath  = "/healthz/ready"
	// headerTimeout limits the wait for the header of a request.
	headerTimeout = 10 * time.Second
	// drain is the time for open requests after the last new request.
	drain = 10 * time.Second
)

func main() {
	ports := flag.String("ports", "", "comma-separated ports to serve")
	flag.Parse()
	fatal := func(err error) {
		fmt.Fprintln(os.Stderr, "dataplane:", err)
		os.Exit(1)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	linger, err := time.ParseDuration(cmp.Or(os.Getenv("LINGER"), "0s"))
	if err != nil {
		fatal(fmt.Errorf("parse linger duration: %w", err))
	}
	if err := run(ctx, os.Getenv("POD_IP"), *ports, os.Getenv("BACKEND"), linger); err != nil {
		fatal(err)
	}
}

// run serves until ctx ends and is then not ready. Until linger expires it still serves requests, and closes each
// connection after its response. Then it stops listening and returns when open requests have been answered, at the
// latest after drain.
func run(ctx context.Context, address, ports, backend string, linger time.Duration) error {
	next, done, err := proxy(backend)
	if err != nil {
		return err
	}
	defer done()
	var draining atomic.Bool
	handler, status := behave(next, &draining)
	failed := make(chan error, 1)
	var ended sync.WaitGroup
	defer ended.Wait()
	var servers []*http.Server
	defer func() {
		for _, server := range servers {
			_ = server.Close() // Serve or Shutdown returned the error
		}
	}()
	listen := func(port string, handler http.Handler) error {
		listener, err := net.Listen("tcp", net.JoinHostPort(address, port))
		if err != nil {
			return err
		}
		server := &http.Server{Handler: handler, ReadHeaderTimeout: headerTimeout}
		servers = append(servers, server)
		ended.Go(func() {
			if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
				select {
				case failed <- err:
				default: // one is enough to end
				}
			}
		})
		return nil
	}
	for port := range strings.FieldsFuncSeq(ports, func(r rune) bool { return r == ',' }) {
		if err := listen(port, handler); err != nil {
			return err
		}
	}
	work := len(servers)
	// Listen here last: ready means that all ports are served.
	if err := listen(statusPort, status); err != nil {
		return err
	}
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	draining.Store(true)
	select {
	case err := <-failed:
		return err
	case <-time.After(linger):
	}
	return shutDown(context.WithoutCancel(ctx), servers[:work])
}

// behave returns the handlers of the ports and of the status port.
func behave(next http.Handler, draining *atomic.Bool) (handler, status http.Handler) {
	handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if draining.Load() {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
	status = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path != readyPath:
			http.NotFound(w, r)
		case draining.Load():
			http.Error(w, "draining", http.StatusServiceUnavailable)
		}
	})
	return handler, status
}

// shutDown waits for open requests.
func shutDown(ctx context.Context, servers []*http.Server) error {
	ctx, cancel := context.WithTimeout(ctx, drain)
	defer cancel()
	errs := make([]error, len(servers))
	var all sync.WaitGroup
	for i, server := range servers {
		all.Go(func() { errs[i] = server.Shutdown(ctx) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// proxy forwards requests. Each response names the Pod.
func proxy(backend string) (handler http.Handler, done func(), err error) {
	through := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Gateway-Pod", os.Getenv("POD_NAME"))
			next.ServeHTTP(w, r)
		})
	}
	if backend == "" {
		return through(http.NotFoundHandler()), func() {}, nil
	}
	target, err := url.Parse(backend)
	if err != nil {
		return nil, nil, fmt.Errorf("the backend: %w", err)
	}
	if target.Host == "" {
		return nil, nil, fmt.Errorf("backend %q is not a URL with a host", backend)
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 32, IdleConnTimeout: time.Minute}
	forward := &httputil.ReverseProxy{
		Transport: transport,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.SetXForwarded()
		},
	}
	return through(forward), transport.CloseIdleConnections, nil
}
