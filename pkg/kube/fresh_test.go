package kube

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"reflect"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/testutil/harness"
)

// Clients of one configuration share connections, which a timeout retires. Wrappers and configuration do not change.
func TestFreshConnections(t *testing.T) {
	s, config := secure(t)
	wrapped := 0
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			wrapped++
			return next.RoundTrip(req)
		})
	})
	before := config.WrapTransport
	fresh := FreshConnections(config)
	if reflect.ValueOf(config.WrapTransport).Pointer() != reflect.ValueOf(before).Pointer() {
		t.Error("the configuration has changed")
	}
	client, err := rest.HTTPClientFor(fresh)
	harness.Must(t, err)
	defer closeIdle(client.Transport)
	c, err := kubernetes.NewForConfigAndClient(fresh, client)
	harness.Must(t, err)
	for i := range 2 {
		if err := get(t.Context(), c, "a"); err != nil || s.connections() != i+1 {
			t.Errorf("round %d: %v, over connection %d", i, err, s.connections())
		}
		s.timesOut(t, c)
	}
	if wrapped != 4 {
		t.Errorf("the user's wrapper saw %d requests", wrapped)
	}
	// An unknown round tripper is not replaced.
	sent := 0
	own, err := rest.HTTPClientFor(FreshConnections(&rest.Config{Transport: roundTripper(func(*http.Request) (*http.Response, error) {
		sent++
		return nil, errRecorded
	})}))
	harness.Must(t, err)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1:1", nil)
	harness.Must(t, err)
	resp, err := own.Do(req)
	if err == nil {
		_ = resp.Body.Close()
	}
	if !errors.Is(err, errRecorded) || sent != 1 {
		t.Errorf("sent %d times over the user's transport: %v", sent, err)
	}
}

// connections returns the number of open connections. On a busy machine there may be a second one for a moment, which is not used.
func (g *generation) connections() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.open)
}

// Unused connections are closed, including connections of streams, of derived clients, and after a request that has just ended.
func TestCloseIdleConnections(t *testing.T) {
	s, config := secure(t)
	parent := made(t, config)
	child, err := Derive(parent, WithOwnConnections())
	harness.Must(t, err)
	var generations []*generation
	var watches []watch.Interface
	for _, c := range []Client{parent, child} {
		w, err := c.Kube().CoreV1().Namespaces().Watch(t.Context(), metav1.ListOptions{})
		harness.Must(t, err)
		harness.Must(t, get(t.Context(), c.Kube(), "a"))
		pools := c.(*client).base.(*connections).pools
		watches = append(watches, w)
		generations = append(generations, pools.calls.present, pools.streams.present)
	}
	opens := func(what string, want ...int) {
		t.Helper()
		harness.Until(t, what, func() bool {
			equal := true
			for i, g := range generations {
				open := g.connections()
				if open < want[i] {
					t.Fatalf("%s: pool %d has %d connections, want %d", what, i, open, want[i])
				}
				equal = equal && open == want[i]
			}
			return equal
		})
	}
	opens("each pool has a connection", 1, 1, 1, 1)
	watches[0].Stop()
	CloseIdleConnections(child)
	opens("connections of the parent stay open, and the connection of a watch", 1, 1, 0, 1)
	CloseIdleConnections(parent)
	opens("the connection of a watch stays open", 0, 0, 0, 1)
	watches[1].Stop()
	opens("all connections are closed after the last watch", 0, 0, 0, 0)
	if err := get(t.Context(), parent.Kube(), "a"); err != nil || s.connections() != 5 {
		t.Errorf("%v, %d connections: a later request opens a new one", err, s.connections())
	}
}

func TestRefresh_SendsNothing(t *testing.T) {
	seen, answer := 0, &content{}
	h := held{top: roundTripper(func(req *http.Request) (*http.Response, error) {
		seen++
		if req.Context().Err() == nil {
			t.Error("it would be sent")
		}
		if req.Method != http.MethodGet || req.URL.String() != "https://localhost" || req.Header == nil {
			t.Errorf("it is %s %v, with %v", req.Method, req.URL, req.Header)
		}
		if seen == 2 {
			return nil, errRecorded
		}
		return &http.Response{Body: answer}, nil
	})}
	h.refresh(t.Context())
	h.refresh(t.Context())
	if seen != 2 || answer.closed != 1 {
		t.Errorf("%d requests, an answer closed %d times", seen, answer.closed)
	}
}

// Retiring a generation closes its idle connections while another request continues.
func TestRetire_ClosesIdle(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{})
	api := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/slow" {
			return
		}
		select {
		case arrived <- struct{}{}:
			<-release
		case <-t.Context().Done(): // the request was sent again
		}
	}))
	t.Cleanup(api.Close)
	p := &pool{like: fixed{&http.Transport{}}}
	idle := make(chan error, 2)
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{PutIdleConn: func(err error) { idle <- err }})
	send := func(path string) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, api.URL+path, nil)
		if err != nil {
			return err
		}
		resp, err := p.roundTrip(req)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, resp.Body)
		return errors.Join(err, resp.Body.Close())
	}
	slow := make(chan error, 2)
	for range 2 { // two connections
		go func() { slow <- send("/slow") }()
		<-arrived
	}
	release <- struct{}{}
	harness.Must(t, errors.Join(<-slow, <-idle))
	g := p.present
	harness.Until(t, "each request has a connection", func() bool { return g.connections() == 2 })
	p.retire(g)
	harness.Until(t, "an idle connection is closed", func() bool { return g.connections() < 2 })
	release <- struct{}{}
	if g.connections() == 0 {
		t.Fatal("the connection that a request uses is closed")
	}
	if err := <-slow; err != nil {
		t.Error(err)
	}
	harness.Until(t, "no connection is open after the last request", func() bool { return g.connections() == 0 })
}
