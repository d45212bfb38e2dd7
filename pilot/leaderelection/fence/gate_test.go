package fence_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"incumbent.dev/incumbent/pilot/leaderelection/fence"
	le "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server answers each request after a while, or when its context ends.
type server struct{ takes time.Duration }

func (s server) RoundTrip(req *http.Request) (*http.Response, error) {
	select {
	case <-time.After(s.takes):
		return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("{}")), Request: req}, nil
	case <-req.Context().Done():
		return nil, context.Cause(req.Context())
	}
}

func send(t *testing.T, gate *fence.Gate, s server, method, path string, header ...string) error {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://127.0.0.1"+path, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range header {
		req.Header.Set(h, "SPDY/3.1")
	}
	resp, err := gate.Transport(s).RoundTrip(req)
	if err == nil {
		err = resp.Body.Close()
	}
	return err
}

func newGate() (*fence.Gate, *le.Clock, *int64) {
	suspended := new(int64)
	epoch := time.Now()
	clock := le.NewClock(func() int64 { return int64(time.Since(epoch)) + *suspended })
	return fence.NewGate("istio-leader", clock), clock, suspended
}

func TestGate_ClosedPassesReads(t *testing.T) {
	gate, _, _ := newGate()
	for _, c := range []struct {
		method, path string
		passes       bool
		header       []string
	}{
		{"GET", "/api/v1/pods", true, nil},
		{"HEAD", "/api/v1/pods", true, nil},
		{"POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", true, nil},
		{"POST", "/apis/authentication.k8s.io/v1/tokenreviews", true, nil},
		{"POST", "/api/v1/namespaces/a/configmaps", false, nil},
		{"POST", "/apis/example.com/v1/tokenreviews", false, nil},
		{"PUT", "/api/v1/namespaces/a/configmaps/b", false, nil},
		{"PATCH", "/api/v1/namespaces/a/configmaps/b", false, nil},
		{"DELETE", "/api/v1/namespaces/a/configmaps/b", false, nil},
		{"GET", "/api/v1/namespaces/a/pods/b/exec", false, []string{"Upgrade"}},
	} {
		err := send(t, gate, server{}, c.method, c.path, c.header...)
		if passed := err == nil; passed != c.passes {
			t.Errorf("%s %s: %v", c.method, c.path, err)
		}
		var refused *fence.NotLeaderError
		if !c.passes && (!errors.Is(err, fence.ErrNotLeader) || !errors.As(err, &refused) || refused.Election != "istio-leader") {
			t.Errorf("%s %s: %v is not the typed refusal", c.method, c.path, err)
		}
	}
}

func TestGate_EndsWithValidityAndSuspend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate, clock, suspended := newGate()
		gate.Set(le.Term{Token: 7}, clock.Now().Plus(15*time.Second))
		if err := send(t, gate, server{}, "POST", "/x"); err != nil {
			t.Fatal(err)
		}
		*suspended = int64(20 * time.Second)
		if err := send(t, gate, server{}, "POST", "/x"); !errors.Is(err, fence.ErrNotLeader) {
			t.Fatalf("after a suspend that only the boot clock counted: %v", err)
		}
		*suspended = 0
		if err := send(t, gate, server{takes: time.Minute}, "POST", "/x"); !errors.Is(err, fence.ErrOutcomeUnknown) {
			t.Fatalf("a write outlived the cover: %v", err)
		}
		if err := gate.Check(); !errors.Is(err, fence.ErrNotLeader) {
			t.Fatalf("open after the cover: %v", err)
		}
	})
}

func TestGate_CloseCancels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate, clock, _ := newGate()
		begun := time.Now()
		gate.Set(le.Term{Token: 7}, clock.Now().Plus(15*time.Second))
		answered := make(chan error, 1)
		go func() { answered <- send(t, gate, server{takes: 5 * time.Second}, "POST", "/x") }()
		synctest.Wait()
		gate.Drain()
		if waited := time.Since(begun); waited != 5*time.Second {
			t.Errorf("drained after %v, while a write was under way", waited)
		}
		if err := <-answered; err != nil {
			t.Error(err)
		}
		gate.Set(le.Term{Token: 7}, clock.Now().Plus(15*time.Second))
		if err := gate.Check(); !errors.Is(err, fence.ErrNotLeader) {
			t.Errorf("a renewal reopened a drained gate: %v", err)
		}
		gate.Set(le.Term{Token: 9}, clock.Now().Plus(15*time.Second))
		go func() { answered <- send(t, gate, server{takes: 5 * time.Second}, "POST", "/x") }()
		synctest.Wait()
		begun = time.Now()
		gate.Set(le.Term{}, le.Validity{})
		if err := <-answered; err == nil || time.Since(begun) != 0 {
			t.Errorf("a write lived on for %v after the gate was shut: %v", time.Since(begun), err)
		}
	})
}

func TestGate_DrainWaitsForAbandonedWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate, clock, _ := newGate()
		gate.Set(le.Term{Token: 7}, clock.Now().Plus(15*time.Second))
		ctx, cancel := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, "POST", "http://127.0.0.1/x", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		answered := make(chan error, 1)
		go func() {
			resp, err := gate.Transport(server{takes: 5 * time.Second}).RoundTrip(req)
			if err == nil {
				err = resp.Body.Close()
			}
			answered <- err
		}()
		synctest.Wait()
		cancel()
		begun := time.Now()
		if err := <-answered; !errors.Is(err, fence.ErrOutcomeUnknown) || !errors.Is(err, context.Canceled) || time.Since(begun) != 0 {
			t.Errorf("the caller was told %v after it had given up: %v", time.Since(begun), err)
		}
		gate.Drain()
		if waited := time.Since(begun); waited != 5*time.Second {
			t.Errorf("drained after %v: the server may still apply the write", waited)
		}
		if _, err := gate.Transport(server{}).RoundTrip(req); !errors.Is(err, context.Canceled) {
			t.Errorf("a request whose context had ended before: %v", err)
		}
	})
}

func TestGate_DrainIgnoresUnclosedBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate, clock, _ := newGate()
		gate.Set(le.Term{Token: 1}, clock.Now().Plus(15*time.Second))
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://127.0.0.1/api/v1/namespaces/x/configmaps", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := gate.Transport(server{}).RoundTrip(req); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		gate.Drain()
		if d := time.Since(began); d != 15*time.Second {
			t.Errorf("the drain took %v", d)
		}
	})
}

func TestGate_CheckDoesNotAllocate(t *testing.T) {
	gate := fence.NewGate("istio-leader", le.NewClock(nil))
	gate.Set(le.Term{Token: 7}, le.NewClock(nil).Now().Plus(time.Hour))
	if n := testing.AllocsPerRun(1000, func() { _ = gate.Check() }); n != 0 {
		t.Errorf("one check allocates %v times", n)
	}
}

func BenchmarkCheck(b *testing.B) {
	clock := le.NewClock(nil)
	gate := fence.NewGate("istio-leader", clock)
	gate.Set(le.Term{Token: 7}, clock.Now().Plus(time.Hour))
	b.ReportAllocs()
	for b.Loop() {
		if err := gate.Check(); err != nil {
			b.Fatal(err)
		}
	}
}
