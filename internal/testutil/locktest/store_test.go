package locktest

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

func TestFaults(t *testing.T) {
	tests := []struct {
		name      string
		fault     Fault
		timeout   time.Duration
		wantErr   error
		wantTook  time.Duration
		committed bool // when the call returns
		later     bool // in the end
	}{
		{name: "none", committed: true, later: true},
		{name: "latency", fault: Fault{Before: time.Second, After: 2 * time.Second}, wantTook: 3 * time.Second, committed: true, later: true},
		{name: "lost request", fault: Fault{Before: time.Second, Lose: TheRequest}, wantErr: ErrConnection, wantTook: time.Second},
		{name: "lost reply", fault: Fault{After: time.Second, Lose: TheReply}, wantErr: syscall.ECONNRESET, wantTook: time.Second, committed: true, later: true},
		{name: "hanging request", fault: Fault{Hang: true}, timeout: 5 * time.Second, wantErr: context.DeadlineExceeded, wantTook: 5 * time.Second},
		{name: "hanging reply", fault: Fault{Hang: true, Lose: TheReply}, timeout: 5 * time.Second, wantErr: context.DeadlineExceeded, wantTook: 5 * time.Second, committed: true, later: true},
		{name: "given up on the way", fault: Fault{Before: 9 * time.Second}, timeout: 5 * time.Second, wantErr: context.DeadlineExceeded, wantTook: 5 * time.Second},
		{name: "arrives all the same", fault: Fault{Before: 9 * time.Second, Arrives: true}, timeout: 5 * time.Second, wantErr: context.DeadlineExceeded, wantTook: 5 * time.Second, later: true},
		{name: "refused", fault: Fault{Err: ErrUnavailable}, wantErr: ErrUnavailable},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := NewStore(Lease)
				ctx := t.Context()
				if tt.timeout > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tt.timeout)
					defer cancel()
				}
				lock := s.Lock("pod-a", "stable")
				lock.FailNext(Create, tt.fault)
				start := time.Now()
				_, err := lock.Write(ctx, k8sresourcelock.Snapshot{}, recordOf(lock, 1), nil)
				if !errors.Is(err, tt.wantErr) {
					t.Errorf("error %v, want %v", err, tt.wantErr)
				}
				if k8sresourcelock.IsConflict(err) {
					t.Errorf("%v claims that nothing was written", err)
				}
				if took := time.Since(start); took != tt.wantTook {
					t.Errorf("took %v, want %v", took, tt.wantTook)
				}
				if got := s.Snapshot().Exists; got != tt.committed {
					t.Errorf("committed: %v, want %v", got, tt.committed)
				}
				<-time.After(time.Minute)
				if got := s.Snapshot().Exists; got != tt.later {
					t.Errorf("committed in the end: %v, want %v", got, tt.later)
				}
				if n := lock.Requests()[Create]; n != 1 {
					t.Errorf("%d requests counted, want 1", n)
				}
			})
		})
	}
}
