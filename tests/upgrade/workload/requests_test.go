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

func TestRequestsCount(t *testing.T) {
	var served, failed atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if served.Add(1)%5 == 0 {
			failed.Add(1)
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
	for r.Results().Failed < 3 {
		select {
		case <-done:
			t.Fatal("Run returned early")
		case <-time.After(time.Millisecond):
		}
	}
	cancel()
	<-done
	got := r.Results()
	if int64(got.Sent) != served.Load() || int64(got.Failed) != failed.Load() || len(got.Errors) == 0 || got.Drain != time.Second {
		t.Errorf("%+v, want %d sent and %d failed", got, served.Load(), failed.Load())
	}
}
