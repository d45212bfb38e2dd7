package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
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
	linger, err := time.ParseDuration(cmp.Or(os.Getenv("LINGER"), "0s"))
	if err != nil {
		fail("parse linger duration", err)
	}
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM, os.Interrupt)
	var draining atomic.Bool
	var servers []*http.Server
	for port := range strings.FieldsFuncSeq(*ports, func(r rune) bool { return r == ',' }) {
		servers = append(servers, serve(port, respond(&draining)))
	}
	// Listen here last: ready means that all ports are served.
	serve(statusPort, status(&draining))
	<-terminated
	draining.Store(true)
	<-time.After(linger)
	shutDown(servers)
}

// fail ends the process.
func fail(verb string, err error) {
	fmt.Fprintf(os.Stderr, "dataplane: %s: %v\n", verb, err)
	os.Exit(1)
}

// serve serves a port of the Pod. If that fails, the process ends.
func serve(port string, handler http.Handler) *http.Server {
	listener, err := net.Listen("tcp", net.JoinHostPort(os.Getenv("POD_IP"), port))
	if err != nil {
		fail("listen", err)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: headerTimeout}
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			fail("serve port "+port, err)
		}
	}()
	return server
}

// respond names the Pod in each response. A draining proxy closes each connection after its response.
func respond(draining *atomic.Bool) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Gateway-Pod", os.Getenv("POD_NAME"))
		if draining.Load() {
			w.Header().Set("Connection", "close")
		}
		fmt.Fprintln(w, "hello")
	}
}

// status is ready until the proxy drains.
func status(draining *atomic.Bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path != readyPath:
			http.NotFound(w, r)
		case draining.Load():
			http.Error(w, "draining", http.StatusServiceUnavailable)
		}
	}
}

// shutDown waits for open requests.
func shutDown(servers []*http.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), drain)
	defer cancel()
	var all sync.WaitGroup
	for _, server := range servers {
		all.Go(func() {
			if err := server.Shutdown(ctx); err != nil {
				fmt.Fprintln(os.Stderr, "dataplane: shut down:", err)
			}
		})
	}
	all.Wait()
}
