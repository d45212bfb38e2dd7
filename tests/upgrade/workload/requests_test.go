package workload

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Each request counts once, one that fails as well, and all that were sent are counted when Run returns.
func TestRequestsAreCounted(t *testing.T) {
	var served, wrong atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if served.Add(1)%5 == 0 {
			wrong.Add(1)
			w.WriteHeader(http.StatusBadGateway)
		}
	}))
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	r := &Requests{URLs: []string{server.URL}, Every: time.Millisecond, Drain: time.Second}
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Run(ctx)
	}()
	for r.SoFar().Failed < 3 {
		select {
		case <-done:
			t.Fatal("it has ended")
		case <-time.After(time.Millisecond):
		}
	}
	cancel()
	<-done
	got := r.SoFar()
	if int64(got.Sent) != served.Load() || int64(got.Failed) != wrong.Load() || len(got.Why) == 0 || got.Drain != time.Second {
		t.Errorf("%+v, of %d served and %d failed", got, served.Load(), wrong.Load())
	}
}

func TestARequestWithoutAServerFails(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	url := server.URL
	server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	r := &Requests{URLs: []string{url}, Every: time.Millisecond}
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Run(ctx)
	}()
	for r.SoFar().Failed == 0 {
		select {
		case <-done:
			t.Fatal("it has ended")
		case <-time.After(time.Millisecond):
		}
	}
	cancel()
	<-done
	if got := r.SoFar(); got.Failed != got.Sent {
		t.Errorf("%+v", got)
	}
}

func TestWhatAWriterWrote(t *testing.T) {
	for name, want := range map[string]bool{"w1": true, "w27": true, "web": false, "shop": false, "w": false, "default": false} {
		if Wrote(name) != want {
			t.Errorf("of %s it says %v", name, !want)
		}
	}
}
