package coordination_test

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
	"incumbent.dev/incumbent/pilot/leaderelection/coordination"
)

// silent is an API server whose watch stays up and says nothing, or that serves no LeaseCandidates.
type silent struct {
	mu      sync.Mutex
	asked   []string
	missing bool
	fails   int    // PUTs that are to fail
	object  string // what a GET shows; "" for nothing
	events  *io.PipeWriter
}

const (
	unasked = `{"kind":"LeaseCandidate","apiVersion":"coordination.k8s.io/v1beta1","metadata":{"name":"pod-a.x","resourceVersion":"1"},"spec":{"leaseName":"x"}}`
	pinged  = `{"kind":"LeaseCandidate","apiVersion":"coordination.k8s.io/v1beta1","metadata":{"name":"pod-a.x","resourceVersion":"2"},"spec":{"leaseName":"x","pingTime":"2026-01-02T03:04:05.000000Z"}}`
)

// ping asks, and has the next answers fail.
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
		s.asked = append(s.asked, "WATCH")
		out, in := io.Pipe()
		s.events = in
		context.AfterFunc(r.Context(), func() { _ = in.CloseWithError(errors.New("the watch ended")) })
		return answer(http.StatusOK, out)
	}
	s.asked = append(s.asked, r.Method)
	if r.Method == http.MethodPut && s.fails > 0 {
		s.fails--
		return answer(http.StatusInternalServerError, io.NopCloser(strings.NewReader(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"InternalError","code":500}`)))
	}
	if r.Method == http.MethodGet && s.object != "" {
		return answer(http.StatusOK, io.NopCloser(strings.NewReader(s.object)))
	}
	if s.missing { // as an API server says it of a kind that it does not know
		response, err := answer(http.StatusNotFound, io.NopCloser(strings.NewReader("404 page not found\n")))
		response.Header.Set("Content-Type", "text/plain; charset=utf-8")
		return response, err
	}
	if r.Method == http.MethodGet {
		return answer(http.StatusNotFound, io.NopCloser(strings.NewReader(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)))
	}
	return answer(http.StatusOK, io.NopCloser(strings.NewReader(unasked)))
}

func (s *silent) requests() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := strings.Join(s.asked, " ")
	s.asked = nil
	return all
}

func quiet(t *testing.T, server *silent) (log *harness.Log, end func()) {
	config := &rest.Config{Host: "http://api", Transport: server, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
	log = &harness.Log{}
	publisher, err := coordination.NewPublisher(coordination.PublisherConfig{
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

func TestAnIdleCandidateSendsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &silent{}
		log, end := quiet(t, server)
		if got := server.requests(); got != "GET POST WATCH" {
			t.Errorf("at first it sends %s", got)
		}
		<-time.After(24 * time.Hour)
		synctest.Wait()
		if got := server.requests(); got != "" {
			t.Errorf("in a day it sends %s", got)
		}
		end()
		if got := server.requests(); got != "DELETE" {
			t.Errorf("at its end it sends %s", got)
		}
		if log.Count() > 0 {
			t.Errorf("it says\n%s", log.String())
		}
	})
}

// Who asks counts an answer for five seconds: one that failed is tried again at once, and then once in a while.
func TestAnAnswerThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &silent{}
		_, end := quiet(t, server)
		<-time.After(time.Minute)
		server.requests()
		server.ping(1)
		synctest.Wait()
		if got := server.requests(); got != "PUT GET PUT WATCH" {
			t.Errorf("after a failure it sends %s", got)
		}
		<-time.After(time.Minute)
		server.ping(1000)
		<-time.After(time.Minute - time.Second)
		synctest.Wait()
		if got := strings.Count(server.requests(), "PUT"); got != 2+11 {
			t.Errorf("%d answers that fail in a minute", got)
		}
		end()
	})
}

func TestWithoutTheAPIItIsSaidOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &silent{missing: true}
		log, end := quiet(t, server)
		<-time.After(30*time.Second + time.Second)
		synctest.Wait()
		if got := server.requests(); got != "GET GET" {
			t.Errorf("in half a minute it sends %s", got)
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
			t.Errorf("it says\n%s", log.String())
		}
	})
}
