package coordination_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/members"
	"incumbent.dev/incumbent/pilot/leaderelection/coordination"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/tests/cluster"
)

// switched is a transport that, once off, answers as if LeaseCandidates were not served, and ends their watches.
type switched struct {
	next http.RoundTripper
	off  atomic.Bool
	mu   sync.Mutex
	open []io.Closer
}

func (s *switched) RoundTrip(r *http.Request) (*http.Response, error) {
	if !strings.Contains(r.URL.Path, "/leasecandidates") {
		return s.next.RoundTrip(r)
	}
	if s.off.Load() {
		const gone = `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"the server could not find the requested resource","reason":"NotFound","code":404}`
		return &http.Response{
			StatusCode: http.StatusNotFound, Status: "404 Not Found", Header: http.Header{"Content-Type": {"application/json"}},
			Body: io.NopCloser(strings.NewReader(gone)), Request: r, ContentLength: int64(len(gone)), Proto: "HTTP/2.0", ProtoMajor: 2,
		}, nil
	}
	response, err := s.next.RoundTrip(r)
	if err == nil && r.URL.Query().Get("watch") != "" {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.open = append(s.open, response.Body)
	}
	return response, err
}

func (s *switched) end() {
	s.off.Store(true)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, body := range s.open {
		_ = body.Close()
	}
}

// If the API server stops serving LeaseCandidates, the leader stays, members become the candidates, and annotations replace the
// fields of the Lease.
func TestController_LeaseCandidatesUnserved(t *testing.T) {
	t.Parallel()
	n := newFixture(t)
	config := cluster.Shared(t).Admin()
	config.QPS, config.WarningHandler = -1, rest.NoWarnings{}
	var s *switched
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		s = &switched{next: next}
		return s
	})
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	n.client = client
	n.coordinate()
	a := n.replica("x", "a", "stable")
	b := n.replica("x", "b", "canary")
	n.await("a leads", "x", a.leads.Load)
	for pod, revision := range map[string]string{"a": "stable", "b": "canary"} {
		publisher, err := members.New(members.Config{
			Client: client, Namespace: n.namespace, Identity: pod, Logger: slog.New(slog.DiscardHandler),
			State: func() members.State {
				return members.State{Revision: revision, Cluster: members.Local, Version: "v1.2.3", Elections: []members.Election{
					{Name: "x", Candidate: true, Warm: true, Fit: true, Strategy: coordination.DefaultRevision},
				}}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		var publishing sync.WaitGroup
		publishing.Go(func() { _ = publisher.Run(ctx) })
		t.Cleanup(func() { cancel(); publishing.Wait() })
	}
	s.end()
	n.setDefault("canary")
	n.await("b leads as a member", "x", b.leads.Load)
	if a.leads.Load() {
		t.Error("a leads, too")
	}
	lease := n.lease("x")
	if _, there := lease.Annotations[k8sresourcelock.PreferredHolderAnnotation]; there || lease.Spec.PreferredHolder != nil {
		t.Errorf("the preferred holder remains: %+v", lease)
	}
	b.stop()
	n.await("a leads after b stopped", "x", a.leads.Load)
}
