package fence_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/fence"
	le "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

// reason is why the gate refuses, and the term that it names; "" when it does not.
func reason(t *testing.T, gate *fence.Gate) (string, uint64) {
	t.Helper()
	err := gate.Check()
	if err == nil {
		return "", 0
	}
	var refused *fence.NotLeaderError
	if !errors.As(err, &refused) || !errors.Is(err, fence.ErrNotLeader) || errors.Is(err, fence.ErrUpgrade) {
		t.Fatalf("%v is not the typed refusal", err)
	}
	return refused.Reason, refused.Term.Token
}

func TestGate_ReasonAndLastTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate, clock, _ := newGate()
		cover := func() le.Validity { return clock.Now().Plus(15 * time.Second) }
		expect := func(when, want string, token uint64) {
			t.Helper()
			if got, of := reason(t, gate); got != want || of != token {
				t.Errorf("%s: %q of term %d, want %q of %d", when, got, of, want, token)
			}
		}
		expect("never open", "not leading", 0)
		gate.Drain()
		expect("drained without a term", "not leading", 0)

		gate.Set(le.Term{Token: 7}, cover())
		expect("open", "", 0)
		time.Sleep(10 * time.Second)
		gate.Set(le.Term{Token: 7}, cover())
		time.Sleep(10 * time.Second)
		expect("renewed", "", 0)
		time.Sleep(5 * time.Second)
		expect("after the renewed cover", "validity has ended", 7)
		gate.Set(le.Term{}, le.Validity{})
		expect("shut", "not leading", 7)

		// A term that comes back works as any other.
		gate.Set(le.Term{Token: 7}, cover())
		expect("the same term again", "", 0)
		if err := send(t, gate, server{takes: time.Second}, "PUT", "/x"); err != nil {
			t.Errorf("a write in a term that came back: %v", err)
		}

		// The next term begins in the instant in which the last one would have ended.
		end := cover()
		gate.Set(le.Term{Token: 8}, end)
		gate.Set(le.Term{Token: 9}, end)
		time.Sleep(15 * time.Second)
		expect("a term after the other with the same end", "validity has ended", 9)

		gate.Set(le.Term{Token: 10}, cover())
		gate.Drain()
		gate.Drain()
		expect("drained", "draining", 10)
		gate.Set(le.Term{Token: 11}, cover())
		if err := send(t, gate, server{takes: time.Second}, "PUT", "/x"); err != nil {
			t.Errorf("a term after a drained one: %v", err)
		}
	})
}

func TestGate_SetUnchanged(t *testing.T) {
	gate, clock, _ := newGate()
	if n := testing.AllocsPerRun(100, func() { gate.Set(le.Term{}, le.Validity{}) }); n != 0 {
		t.Errorf("shutting a shut gate: %v allocations", n)
	}
	end := clock.Now().Plus(time.Hour)
	if n := testing.AllocsPerRun(100, func() { gate.Set(le.Term{Token: 7}, end) }); n != 0 {
		t.Errorf("the same cover again: %v allocations", n)
	}
	gate.Set(le.Term{}, le.Validity{})
	if n := testing.AllocsPerRun(100, func() { gate.Set(le.Term{}, le.Validity{}) }); n != 0 {
		t.Errorf("shutting a gate that has been open: %v allocations", n)
	}
}

func TestGate_DrainWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate, clock, _ := newGate()
		gate.Set(le.Term{Token: 7}, clock.Now().Plus(15*time.Second))
		begun := time.Now()
		written := make(chan error, 2)
		for _, takes := range []time.Duration{2 * time.Second, 5 * time.Second} {
			go func() { written <- send(t, gate, server{takes: takes}, "PUT", "/x") }()
		}
		synctest.Wait()
		drained := make(chan time.Duration, 2)
		for range 2 {
			go func() {
				gate.Drain()
				drained <- time.Since(begun)
			}()
		}
		for range 2 {
			if err := <-written; err != nil {
				t.Error(err)
			}
			if took := <-drained; took != 5*time.Second {
				t.Errorf("drained after %v", took)
			}
		}
		if n := gate.Admitted(); n != 2 {
			t.Errorf("%d writes were let through", n)
		}
	})
}

func TestGate_FinishedWritesAreForgotten(t *testing.T) {
	gate, clock, _ := newGate()
	gate.Set(le.Term{Token: 7}, clock.Now().Plus(time.Hour))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	transport := gate.Transport(roundTripper(func(req *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: req}, nil
	}))
	req := request(t, ctx)
	write := func(n int) {
		for range n {
			if err := finish(transport.RoundTrip(req)); err != nil {
				t.Fatal(err)
			}
		}
	}
	held := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	write(100)
	before := held()
	const writes = 10_000
	write(writes)
	if after := held(); after > before+writes*40 {
		t.Errorf("%d writes have left %d bytes", writes, after-before)
	}
	runtime.KeepAlive(gate)
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// body notes how often it was closed, and fails as it is told to.
type body struct {
	io.Reader
	closed        int
	onRead, onEnd error
}

func (b *body) Read(p []byte) (int, error) {
	if b.onRead != nil {
		return 0, b.onRead
	}
	return b.Reader.Read(p)
}

func (b *body) Close() error {
	b.closed++
	return b.onEnd
}

func answering(status int, b *body) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: status, Body: b, Request: req}, nil
	})
}

func TestTransport_ClosesRejectedBody(t *testing.T) {
	gate, _, _ := newGate()
	b := &body{Reader: strings.NewReader("{}")}
	req, err := http.NewRequestWithContext(t.Context(), "POST", "http://127.0.0.1/x", b)
	if err != nil {
		t.Fatal(err)
	}
	if err := finish(gate.Transport(server{}).RoundTrip(req)); !errors.Is(err, fence.ErrNotLeader) {
		t.Error(err)
	}
	if b.closed != 1 {
		t.Errorf("closed %d times", b.closed)
	}
	empty, err := http.NewRequestWithContext(t.Context(), "DELETE", "http://127.0.0.1/x", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := finish(gate.Transport(server{}).RoundTrip(empty)); !errors.Is(err, fence.ErrNotLeader) {
		t.Error(err)
	}
}

var errBroken = errors.New("broken")

func TestTransport_PassesErrors(t *testing.T) {
	gate, clock, _ := newGate()
	gate.Set(le.Term{Token: 7}, clock.Now().Plus(time.Hour))
	gate.AllowUpgrades(func(*http.Request) bool { return true })
	broken := roundTripper(func(*http.Request) (*http.Response, error) { return nil, errBroken })
	for _, c := range []struct {
		method, path string
		ctx          context.Context
	}{
		{"GET", "/api/v1/pods", t.Context()},
		{"PUT", "/x", t.Context()},
		{"PUT", "/x", context.Background()}, // a caller that never ends
		{"POST", "/api/v1/namespaces/a/pods/b/exec", t.Context()},
	} {
		req, err := http.NewRequestWithContext(c.ctx, c.method, "http://127.0.0.1"+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := finish(gate.Transport(broken).RoundTrip(req)); !errors.Is(err, errBroken) || errors.Is(err, fence.ErrOutcomeUnknown) {
			t.Errorf("%s %s: %v", c.method, c.path, err)
		}
	}
	gate.Drain() // all are over

	gate, clock, _ = newGate()
	gate.Set(le.Term{Token: 7}, clock.Now().Plus(time.Hour))
	for _, status := range []int{http.StatusOK, http.StatusForbidden, http.StatusUnprocessableEntity} {
		resp, err := gate.Transport(answering(status, &body{onRead: errBroken, onEnd: errBroken})).RoundTrip(request(t, t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(resp.Body); !errors.Is(err, errBroken) {
			t.Errorf("%d: reading the answer: %v", status, err)
		}
		if err := resp.Body.Close(); !errors.Is(err, errBroken) {
			t.Errorf("%d: closing the answer: %v", status, err)
		}
	}

	// What broke once is not taken for the end, though nothing is left to read.
	once := &body{Reader: &breaksOnce{}}
	resp, err := gate.Transport(answering(http.StatusForbidden, once)).RoundTrip(request(t, t.Context()))
	if err == nil {
		if _, err := io.ReadAll(resp.Body); !errors.Is(err, errBroken) {
			t.Errorf("a refusal that broke off: %v", err)
		}
		err = resp.Body.Close()
	}
	if err != nil {
		t.Error(err)
	}
	gate.Drain()
}

// breaksOnce fails, and is at its end from then on.
type breaksOnce struct{ broke bool }

func (b *breaksOnce) Read([]byte) (int, error) {
	if b.broke {
		return 0, io.EOF
	}
	b.broke = true
	return 0, errBroken
}

func TestTransport_CallerCancelsRead(t *testing.T) {
	gaveUp := errors.New("gave up")
	for name, c := range map[string]struct {
		onRead  error
		givesUp bool
		want    error
	}{
		"gave up":             {errBroken, true, gaveUp},
		"broke, still there":  {errBroken, false, errBroken},
		"whole, then gave up": {nil, true, nil},
	} {
		gate, clock, _ := newGate()
		gate.Set(le.Term{Token: 7}, clock.Now().Plus(time.Hour))
		ctx, cancel := context.WithCancelCause(t.Context())
		b := &body{Reader: strings.NewReader("{}"), onRead: c.onRead}
		resp, err := gate.Transport(answering(http.StatusOK, b)).RoundTrip(request(t, ctx))
		if err != nil {
			t.Fatal(err)
		}
		if c.givesUp {
			cancel(gaveUp)
		}
		if _, err := io.ReadAll(resp.Body); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if err := resp.Body.Close(); err != nil || b.closed != 1 {
			t.Errorf("%s: closed %d times: %v", name, b.closed, err)
		}
		cancel(nil)
	}
}

func TestTransport_DiscardsLateResponse(t *testing.T) {
	for _, fails := range []error{nil, errBroken} {
		synctest.Test(t, func(t *testing.T) {
			gate, clock, _ := newGate()
			gate.Set(le.Term{Token: 7}, clock.Now().Plus(15*time.Second))
			b := &body{Reader: strings.NewReader("{}")}
			slow := roundTripper(func(req *http.Request) (*http.Response, error) {
				time.Sleep(3 * time.Second)
				if fails != nil {
					return nil, fails
				}
				return &http.Response{StatusCode: http.StatusOK, Body: b, Request: req}, nil
			})
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			err := finish(gate.Transport(slow).RoundTrip(request(t, ctx)))
			var unknown *fence.OutcomeUnknownError
			if !errors.As(err, &unknown) || unknown.Election != "istio-leader" || unknown.Reason != "the caller canceled" {
				t.Errorf("%v", err)
			}
			gate.Drain()
			if fails == nil && b.closed != 1 {
				t.Errorf("closed %d times", b.closed)
			}
		})
	}
}

func TestTransport_UnclosedBodyEndsWithCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate, clock, _ := newGate()
		gate.Set(le.Term{Token: 7}, clock.Now().Plus(15*time.Second))
		begun := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if _, err := gate.Transport(server{}).RoundTrip(request(t, ctx)); err != nil {
			t.Fatal(err)
		}
		gate.Drain()
		if took := time.Since(begun); took != 2*time.Second {
			t.Errorf("drained after %v", took)
		}
	})
}
