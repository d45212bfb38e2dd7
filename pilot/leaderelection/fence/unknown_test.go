package fence_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/pilot/leaderelection/fence"
	le "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

// recorder counts what gets out, and when each request would have been given up.
type recorder struct {
	sent atomic.Int32
	next http.RoundTripper
}

func (r *recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := req.Context().Err(); err != nil {
		return nil, err // as http.Transport does
	}
	r.sent.Add(1)
	return r.next.RoundTrip(req)
}

func request(t *testing.T, ctx context.Context) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://127.0.0.1/api/v1/namespaces/a/configmaps", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	return req
}

func finish(resp *http.Response, err error) error {
	if err == nil {
		err = resp.Body.Close()
	}
	return err
}

func TestGate_PauseAfterClockReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		epoch, stopped := time.Now(), time.Duration(0)
		clock := le.NewClock(func() int64 {
			read := int64(time.Since(epoch))
			time.Sleep(stopped)
			return read
		})
		gate := fence.NewGate("istio-leader", clock)
		gate.Set(le.Term{Token: 7}, clock.Now().Plus(15*time.Second))
		stopped = 45 * time.Second
		out := &recorder{next: server{}}
		err := finish(gate.Transport(out).RoundTrip(request(t, t.Context())))
		if !errors.Is(err, fence.ErrNotLeader) || out.sent.Load() != 0 {
			t.Errorf("%d writes got out 30 s after the cover: %v", out.sent.Load(), err)
		}
		gate.Drain() // nothing is counted as under way
	})
}

func TestTransport_CutWriteIsUnknown(t *testing.T) {
	for name, c := range map[string]struct {
		end    func(gate *fence.Gate)
		after  time.Duration
		reason string
	}{
		"by the end of the cover": {func(*fence.Gate) {}, 15 * time.Second, "validity ended"},
		"by the end of the term":  {func(g *fence.Gate) { g.Set(le.Term{}, le.Validity{}) }, 3 * time.Second, "the term ended"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				gate, clock, _ := newGate()
				gate.Set(le.Term{Token: 7}, clock.Now().Plus(15*time.Second))
				begun := time.Now()
				time.AfterFunc(3*time.Second, func() { c.end(gate) })
				err := send(t, gate, server{takes: time.Minute}, "PUT", "/x")
				var unknown *fence.OutcomeUnknownError
				if !errors.As(err, &unknown) || errors.Is(err, fence.ErrNotLeader) || unknown.Reason != c.reason || unknown.Term.Token != 7 {
					t.Errorf("%v", err)
				}
				if d := time.Since(begun); d != c.after {
					t.Errorf("told after %v", d)
				}
				time.Sleep(time.Minute) // for the timer
			})
		})
	}
}

func TestTransport_CallerDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate, clock, _ := newGate()
		gate.Set(le.Term{Token: 7}, clock.Now().Plus(15*time.Second))
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		begun := time.Now()
		err := finish(gate.Transport(server{takes: 3 * time.Second}).RoundTrip(request(t, ctx)))
		if d := time.Since(begun); d != 100*time.Millisecond || !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, fence.ErrOutcomeUnknown) {
			t.Errorf("after %v: %v", d, err)
		}
		gate.Drain()
		if d := time.Since(begun); d != 3*time.Second {
			t.Errorf("drained after %v", d)
		}
	})
}

func TestGate_ClientTimeoutDoesNotEndDrain(t *testing.T) {
	release, arrived := make(chan struct{}), make(chan struct{})
	applied := atomic.Bool{}
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		close(arrived)
		<-release
		applied.Store(true)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"kind":"ConfigMap","apiVersion":"v1"}`)
	}))
	defer api.Close()
	gate, clock, _ := newGate()
	gate.Set(le.Term{Token: 7}, clock.Now().Plus(time.Hour))
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: api.URL, Timeout: 200 * time.Millisecond, Transport: transport, WrapTransport: gate.Transport})
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.CoreV1().ConfigMaps("a").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "b"}}, metav1.CreateOptions{})
	if err == nil || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the client's time-out: %v", err)
	}
	<-arrived
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		gate.Drain()
		if !applied.Load() {
			t.Error("drained while the write was under way")
		}
	}()
	for gate.Check() == nil { // until it drains
		select {
		case <-drained:
		case <-time.After(time.Millisecond):
		}
	}
	close(release)
	<-drained
}

func TestGate_RequestOfAnotherTerm(t *testing.T) {
	gate, clock, _ := newGate()
	ours, earlier := le.Term{LockUID: "a", Transitions: 8, Token: 70}, le.Term{LockUID: "a", Transitions: 7, Token: 60}
	gate.Set(ours, clock.Now().Plus(time.Hour))
	for term, passes := range map[le.Term]bool{ours: true, earlier: false} {
		err := finish(gate.Transport(server{}).RoundTrip(request(t, le.ContextWithTerm(t.Context(), term))))
		var refused *fence.NotLeaderError
		if passes != (err == nil) || !passes && (!errors.As(err, &refused) || refused.Reason != "the request's context belongs to another term") {
			t.Errorf("in a context of term %v: %v", term, err)
		}
	}
	read, err := http.NewRequestWithContext(le.ContextWithTerm(t.Context(), earlier), http.MethodGet, "http://127.0.0.1/api/v1/pods", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := finish(gate.Transport(server{}).RoundTrip(read)); err != nil {
		t.Errorf("a read: %v", err)
	}
}

// switching responds to each request with an upgrade, and records whether the connection was closed.
type switching struct{ closed atomic.Bool }

func (s *switching) RoundTrip(req *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusSwitchingProtocols, Body: s, Request: req}, nil
}

func (s *switching) Read([]byte) (int, error) { return 0, io.EOF }

func (s *switching) Close() error {
	s.closed.Store(true)
	return nil
}

// dials is as client-go's SPDY round tripper: it sets the headers that tell further down.
type dials struct {
	switching
	asked atomic.Bool
}

func (d *dials) RoundTrip(req *http.Request) (*http.Response, error) {
	d.asked.Store(true)
	return d.switching.RoundTrip(req)
}

func (*dials) Dial(*http.Request) (net.Conn, error) { return nil, nil }

func TestTransport_RejectsHiddenUpgrades(t *testing.T) {
	gate, clock, _ := newGate()
	gate.Set(le.Term{Token: 7}, clock.Now().Plus(time.Hour))
	for _, path := range []string{
		"/api/v1/nodes/a/proxy/exec/x", "/api/v1/namespaces/a/services/b/proxy/", "/apis/aggregated.example.com/v1/things/a/connect",
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			plain, spdy := &switching{}, &dials{}
			for _, next := range []http.RoundTripper{plain, spdy} {
				req, err := http.NewRequestWithContext(t.Context(), method, "http://127.0.0.1"+path, nil)
				if err != nil {
					t.Fatal(err)
				}
				if err := finish(gate.Transport(next).RoundTrip(req)); !errors.Is(err, fence.ErrUpgrade) {
					t.Errorf("%s %s by a %T: %v", method, path, next, err)
				}
			}
			if !plain.closed.Load() || spdy.asked.Load() {
				t.Errorf("%s %s: a connection was left open: %v; a request to upgrade one got out: %v", method, path, !plain.closed.Load(), spdy.asked.Load())
			}
		}
	}
	if err := send(t, gate, server{}, http.MethodConnect, "/x"); !errors.Is(err, fence.ErrUpgrade) {
		t.Errorf("CONNECT: %v", err)
	}
	gate.AllowUpgrades(func(req *http.Request) bool { return strings.HasSuffix(req.URL.Path, "/exec") })
	if err := send(t, gate, server{}, http.MethodPost, "/api/v1/namespaces/a/pods/b/exec"); err != nil {
		t.Errorf("a declared upgrade: %v", err)
	}
	if err := send(t, gate, server{}, http.MethodPost, "/api/v1/namespaces/a/pods/b/attach"); !errors.Is(err, fence.ErrUpgrade) {
		t.Errorf("another upgrade: %v", err)
	}
	gate.Set(le.Term{}, le.Validity{})
	if err := send(t, gate, server{}, http.MethodPost, "/api/v1/namespaces/a/pods/b/exec"); !errors.Is(err, fence.ErrNotLeader) {
		t.Errorf("a declared upgrade of a follower: %v", err)
	}
}
