package gate_test

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/leaderelection/gate"
	le "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

func TestGate_ReasonAndLastTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, clock := newGate()
		open := func(token uint64) { g.Set(le.Term{Token: token}, clock.Now().Plus(15*time.Second)) }
		expect := func(when, want string, token uint64) {
			t.Helper()
			err := g.Check()
			var refused *gate.NotLeaderError
			switch {
			case err == nil && want == "":
			case !errors.As(err, &refused) || !errors.Is(err, gate.ErrNotLeader) || errors.Is(err, gate.ErrUpgrade):
				t.Errorf("%s: %v is not the typed rejection", when, err)
			case refused.Reason != want || refused.Term.Token != token || refused.Election != "istio-leader":
				t.Errorf("%s: %+v, want %q of term %d", when, refused, want, token)
			}
		}
		expect("never open", "not leading", 0)
		g.Drain()
		expect("drained without a term", "not leading", 0)

		open(7)
		expect("open", "", 0)
		time.Sleep(10 * time.Second)
		open(7)
		time.Sleep(10 * time.Second)
		expect("renewed", "", 0)
		time.Sleep(5 * time.Second)
		expect("after the renewed validity", "validity has ended", 7)
		g.Set(le.Term{}, le.Validity{})
		expect("closed", "not leading", 7)

		// A term that starts again works as any other.
		open(7)
		expect("the same term again", "", 0)
		if err := send(g, server{takes: time.Second}, write(t.Context(), t)); err != nil {
			t.Errorf("a write in a term that started again: %v", err)
		}

		// The next term begins with the same end as the last term.
		end := clock.Now().Plus(15 * time.Second)
		g.Set(le.Term{Token: 8}, end)
		g.Set(le.Term{Token: 9}, end)
		time.Sleep(15 * time.Second)
		expect("another term with the same end", "validity has ended", 9)

		open(10)
		g.Drain()
		g.Drain()
		expect("drained", "draining", 10)
		time.Sleep(time.Second)
		open(10)
		expect("renewed after the drain", "draining", 10)
		open(11)
		if err := send(g, server{takes: time.Second}, write(t.Context(), t)); err != nil {
			t.Errorf("a term after a drained one: %v", err)
		}
	})
}

func TestGate_PauseAfterClockReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		epoch, stopped := time.Now(), time.Duration(0)
		clock := le.NewClock(func() int64 {
			read := int64(time.Since(epoch))
			time.Sleep(stopped)
			return read
		})
		g := gate.New("istio-leader", clock)
		g.Set(le.Term{Token: 7}, clock.Now().Plus(15*time.Second))
		stopped = 45 * time.Second
		next := roundTripper(func(req *http.Request) (*http.Response, error) {
			if req.Context().Err() == nil {
				t.Error("a write was sent 30 s after the validity")
			}
			return nil, req.Context().Err()
		})
		if err := send(g, next, write(t.Context(), t)); !errors.Is(err, gate.ErrNotLeader) {
			t.Error(err)
		}
		g.Drain() // no write is pending
	})
}

func TestGate_DoesNotAllocate(t *testing.T) {
	g, clock := newGate()
	expect := func(what string, f func()) {
		t.Helper()
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s: %v allocations", what, n)
		}
	}
	stop := func() { g.Set(le.Term{}, le.Validity{}) }
	expect("closing a gate that was never open", stop)
	end := clock.Now().Plus(time.Hour)
	expect("the same validity again", func() { g.Set(le.Term{Token: 7}, end) })
	expect("a check", func() { _ = g.Check() })
	stop()
	expect("closing a closed gate", stop)
}

func TestGate_DrainWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, begun := openGate(15*time.Second), time.Now()
		written := make(chan error, 2)
		for _, takes := range []time.Duration{2 * time.Second, 5 * time.Second} {
			go func() { written <- send(g, server{takes: takes}, write(t.Context(), t)) }()
		}
		synctest.Wait()
		drained := make(chan time.Duration, 2)
		for range 2 {
			go func() {
				g.Drain()
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
		if n := g.Admitted(); n != 2 {
			t.Errorf("%d writes were admitted", n)
		}
	})
}

func TestGate_DrainWaitsForAbandonedWrite(t *testing.T) {
	for _, fails := range []error{nil, errBroken} {
		synctest.Test(t, func(t *testing.T) {
			g, begun := openGate(15*time.Second), time.Now()
			response := &body{Reader: strings.NewReader("{}")}
			slow := roundTripper(func(req *http.Request) (*http.Response, error) {
				time.Sleep(5 * time.Second)
				return &http.Response{StatusCode: http.StatusOK, Body: response, Request: req}, fails
			})
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { cancel(errGaveUp) })
			err := send(g, slow, write(ctx, t))
			var unknown *gate.OutcomeUnknownError
			if !errors.As(err, &unknown) || !errors.Is(err, gate.ErrOutcomeUnknown) || !errors.Is(err, errGaveUp) ||
				unknown.Election != "istio-leader" || unknown.Reason != "the caller canceled" || time.Since(begun) != time.Second {
				t.Errorf("after %v: %v", time.Since(begun), err)
			}
			g.Drain()
			if took := time.Since(begun); took != 5*time.Second {
				t.Errorf("drained after %v, but the API server may still apply the write", took)
			}
			if fails == nil && response.closed != 1 {
				t.Errorf("the late response was closed %d times", response.closed)
			}
			if err := send(g, server{}, write(ctx, t)); !errors.Is(err, errGaveUp) {
				t.Errorf("a request with an ended context: %v", err)
			}
		})
	}
}

// The timeout of an http.Client (rest.Config.Timeout) ends the call, but not the wait for the write.
func TestGate_ClientTimeoutDoesNotEndDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, begun := openGate(15*time.Second), time.Now()
		client := http.Client{Timeout: time.Second, Transport: g.Transport(server{takes: 5 * time.Second})}
		resp, err := client.Do(write(t.Context(), t))
		if err == nil {
			resp.Body.Close()
		}
		if took := time.Since(begun); took != time.Second || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after %v: %v", took, err)
		}
		g.Drain()
		if took := time.Since(begun); took != 5*time.Second {
			t.Errorf("drained after %v, but the API server may still apply the write", took)
		}
	})
}

func TestGate_FinishedWritesAreForgotten(t *testing.T) {
	g := openGate(time.Hour)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req := write(ctx, t)
	writes := func(n int) {
		for range n {
			harness.Must(t, send(g, answering(http.StatusOK, &body{}), req))
		}
	}
	held := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	writes(100)
	before := held()
	const many = 10_000
	writes(many)
	if after := held(); after > before+many*40 {
		t.Errorf("%d writes have left %d bytes", many, after-before)
	}
	runtime.KeepAlive(g)
}

// A gate without a clock cannot know when the validity ends. It reports the mistake and never opens.
func TestNewGate_WithoutClock(t *testing.T) {
	g := gate.New("e", nil)
	g.Set(le.Term{LockUID: "u"}, le.Validity{Mono: 1 << 62, Boot: 1 << 62, Wall: 1 << 62})
	g.Drain()
	if err := g.Check(); err == nil || !strings.Contains(err.Error(), "New") {
		t.Errorf("error %v", err)
	}
}
