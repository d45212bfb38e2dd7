package main

import (
	"context"
	"encoding/pem"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"time"

	"go.uber.org/atomic"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/testutil/relay"
)

// scenario has the faults of the connections and answers of a candidate.
type scenario struct {
	name string
	late bool // it is measured with each latency
	// proxy changes the configuration of the candidate. It returns the number of connections so far.
	proxy func(end context.Context, l *lab, config *rest.Config, late time.Duration, leads func(context.Context)) (connections func() int, err error)
}

var scenarios = []scenario{
	{"answers late", true, func(end context.Context, l *lab, config *rest.Config, late time.Duration, _ func(context.Context)) (func() int, error) {
		return l.delay(end, config, func() time.Duration { return late })
	}},
	{"wire late", true, func(end context.Context, _ *lab, config *rest.Config, late time.Duration, _ func(context.Context)) (func() int, error) {
		r, err := insert(end, config)
		if err != nil {
			return nil, err
		}
		r.Coming(relay.Fate{Down: relay.Flow{Late: late}})
		return r.Made, nil
	}},
	{"late from mid-term", true, func(end context.Context, l *lab, config *rest.Config, late time.Duration, leads func(context.Context)) (func() int, error) {
		var now atomic.Int64
		go func() {
			leads(end)
			now.Store(int64(late))
		}()
		return l.delay(end, config, func() time.Duration { return time.Duration(now.Load()) })
	}},
	{"random up to D", true, func(end context.Context, l *lab, config *rest.Config, late time.Duration, _ func(context.Context)) (func() int, error) {
		return l.delay(end, config, func() time.Duration { return rand.N(late) })
	}},
	{"frozen for 25 s", false, func(end context.Context, _ *lab, config *rest.Config, _ time.Duration, leads func(context.Context)) (func() int, error) {
		r, err := insert(end, config)
		if err != nil {
			return nil, err
		}
		go func() {
			leads(end)
			r.All(relay.Stalled)
			wait(end, 25*time.Second)
			r.All(relay.Fate{})
		}()
		return r.Made, nil
	}},
	{"every second connection dead", false, func(end context.Context, l *lab, config *rest.Config, _ time.Duration, leads func(context.Context)) (func() int, error) {
		hole, err := blackHole(end)
		if err != nil {
			return nil, err
		}
		r, err := insert(end, config, hole)
		if err != nil {
			return nil, err
		}
		server, err := url.Parse(l.admin.Host)
		if err != nil {
			return nil, err
		}
		config.ServerName = server.Hostname()
		go func() {
			leads(end)
			r.Present(relay.Silent)
		}()
		return r.Made, nil
	}},
}

func scenarioNames() (names []string) {
	for _, s := range scenarios {
		names = append(names, s.name)
	}
	return names
}

func (s scenario) latencies(t settings) []time.Duration {
	if s.late {
		return t.late
	}
	return []time.Duration{0}
}

// insert starts a relay that ends with end.
func insert(end context.Context, config *rest.Config, further ...string) (*relay.Relay, error) {
	r, err := relay.Insert(end, config, further...)
	if err == nil {
		context.AfterFunc(end, func() { _ = r.Close() })
	}
	return r, err
}

// blackHole returns the address of a server that accepts connections and sends nothing.
func blackHole(end context.Context) (string, error) {
	listener, err := (&net.ListenConfig{}).Listen(end, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			context.AfterFunc(end, func() { _ = conn.Close() })
		}
	}()
	context.AfterFunc(end, func() { _ = listener.Close() })
	return "https://" + listener.Addr().String(), nil
}

// delay starts a proxy that sends each answer late. The API server executes the requests immediately.
func (l *lab) delay(end context.Context, config *rest.Config, late func() time.Duration) (connections func() int, err error) {
	server, err := url.Parse(l.admin.Host)
	if err != nil {
		return nil, err
	}
	proxy := &httputil.ReverseProxy{
		Transport: l.upstream, FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(server) },
		ModifyResponse: func(r *http.Response) error {
			wait(r.Request.Context(), late())
			return nil
		},
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	s := httptest.NewUnstartedServer(proxy)
	s.EnableHTTP2 = true
	s.Config.ErrorLog = discard
	var made atomic.Int64
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			made.Inc()
		}
	}
	s.StartTLS()
	context.AfterFunc(end, func() {
		s.CloseClientConnections()
		_ = s.Listener.Close()
	})
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	*config = rest.Config{Host: s.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
	return func() int { return int(made.Load()) }, nil
}

func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
