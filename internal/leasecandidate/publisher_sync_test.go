package leasecandidate

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/testutil/harness"
)

// silent is an API server whose watch delivers only pings, or that does not serve LeaseCandidates.
type silent struct {
	mu        sync.Mutex
	requested []string
	missing   bool
	fails     int    // number of PUTs to fail
	object    string // response of GET; empty: not found
	events    *io.PipeWriter
}

const (
	unpinged = `{"kind":"LeaseCandidate","apiVersion":"coordination.k8s.io/v1beta1","metadata":{"name":"pod-a.x","resourceVersion":"1"},"spec":{"leaseName":"x"}}`
	pinged   = `{"kind":"LeaseCandidate","apiVersion":"coordination.k8s.io/v1beta1","metadata":{"name":"pod-a.x","resourceVersion":"2"},"spec":{"leaseName":"x","pingTime":"2026-01-02T03:04:05.000000Z"}}`
)

// ping delivers a ping. The next PUTs fail.
func (s *silent) ping(fails int) {
	s.mu.Lock()
	s.fails, s.object = fails, pinged
	events := s.events
	s.mu.Unlock()
	_, _ = io.WriteString(events, `{"type":"MODIFIED","object":`+pinged+"}\n")
}

func (s *silent) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := func(code int, body io.ReadCloser) (*http.Response, error) {
		return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: body, Request: r}, nil
	}
	if r.URL.Query().Get("watch") != "" {
		s.requested = append(s.requested, "WATCH")
		out, in := io.Pipe()
		s.events = in
		context.AfterFunc(r.Context(), func() { _ = in.CloseWithError(errors.New("watch ended")) })
		return answer(http.StatusOK, out)
	}
	s.requested = append(s.requested, r.Method)
	if r.Method == http.MethodPut && s.fails > 0 {
		s.fails--
		return answer(http.StatusInternalServerError, io.NopCloser(strings.NewReader(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"InternalError","code":500}`)))
	}
	if r.Method == http.MethodGet && s.object != "" {
		return answer(http.StatusOK, io.NopCloser(strings.NewReader(s.object)))
	}
	if s.missing { // response for an unknown resource
		response, err := answer(http.StatusNotFound, io.NopCloser(strings.NewReader("404 page not found\n")))
		response.Header.Set("Content-Type", "text/plain; charset=utf-8")
		return response, err
	}
	if r.Method == http.MethodGet {
		return answer(http.StatusNotFound, io.NopCloser(strings.NewReader(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)))
	}
	return answer(http.StatusOK, io.NopCloser(strings.NewReader(unpinged)))
}

func (s *silent) requests() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := strings.Join(s.requested, " ")
	s.requested = nil
	return all
}

func runWith(t *testing.T, server *silent) (log *harness.Log, end func()) {
	config := &rest.Config{Host: "http://api", Transport: server, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
	log = &harness.Log{}
	publisher, err := New(Config{
		Client: clientOf(t, config), Namespace: "ns", Lease: "x", Pod: "pod-a", BinaryVersion: "1.2.0", Strategy: "a/b",
		Logger: slog.New(slog.NewTextHandler(log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- publisher.Run(ctx) }()
	synctest.Wait()
	return log, func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

func TestPublisher_Idle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &silent{}
		log, end := runWith(t, server)
		if got := server.requests(); got != "GET POST WATCH" {
			t.Errorf("at start: %s", got)
		}
		<-time.After(24 * time.Hour)
		synctest.Wait()
		if got := server.requests(); got != "" {
			t.Errorf("in a day: %s", got)
		}
		end()
		if got := server.requests(); got != "DELETE" {
			t.Errorf("at the end: %s", got)
		}
		if log.Count() > 0 {
			t.Errorf("log:\n%s", log.String())
		}
	})
}

// A failed answer is retried immediately, then with pauses.
func TestPublisher_FailedAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &silent{}
		_, end := runWith(t, server)
		<-time.After(time.Minute)
		server.requests()
		server.ping(1)
		synctest.Wait()
		if got := server.requests(); got != "PUT GET PUT WATCH" {
			t.Errorf("after a failure: %s", got)
		}
		<-time.After(time.Minute)
		server.ping(1000)
		<-time.After(time.Minute - time.Second)
		synctest.Wait()
		if got := strings.Count(server.requests(), "PUT"); got != 2+11 {
			t.Errorf("%d failing answers in a minute", got)
		}
		end()
	})
}

func TestPublisher_Unserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &silent{missing: true}
		log, end := runWith(t, server)
		<-time.After(30*time.Second + time.Second)
		synctest.Wait()
		if got := server.requests(); got != "GET GET" {
			t.Errorf("in half a minute: %s", got)
		}
		<-time.After(time.Hour)
		synctest.Wait()
		server.requests()
		<-time.After(time.Hour)
		synctest.Wait()
		if got := len(strings.Fields(server.requests())); got != 12 {
			t.Errorf("%d requests in an hour, want one in five minutes", got)
		}
		end()
		if !strings.Contains(log.String(), "does not serve LeaseCandidates") || log.Count() != 1 || log.Count("level=INFO") != 1 {
			t.Errorf("log:\n%s", log.String())
		}
	})
}
