package k8sresourcelock

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// opening is a watch being opened, and the context that it was given.
type opening struct {
	ctx context.Context
	w   *watch.FakeWatcher
}

// open takes so long, whatever its context says if it is deaf.
func (o *opening) open(takes time.Duration, deaf bool) func(context.Context) (watch.Interface, error) {
	return func(ctx context.Context) (watch.Interface, error) {
		o.ctx, o.w = ctx, watch.NewFake()
		done := ctx.Done()
		if deaf {
			done = nil
		}
		select {
		case <-time.After(takes):
			return o.w, nil
		case <-done:
			return nil, ctx.Err()
		}
	}
}

func TestAWatchIsAcceptedInTimeOrNotAtAll(t *testing.T) {
	for name, c := range map[string]struct {
		takes time.Duration
		deaf  bool
		ok    bool
	}{
		"in time":                            {acceptLimit - time.Millisecond, false, true},
		"too late":                           {acceptLimit + time.Minute, false, false},
		"too late, and it was opened anyway": {acceptLimit + time.Minute, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				var o opening
				w, end, err := accepted(t.Context(), o.open(c.takes, c.deaf))
				took := time.Since(began)
				if c.ok {
					if err != nil || w != watch.Interface(o.w) || o.ctx.Err() != nil {
						t.Fatalf("error %v, its context %v", err, o.ctx.Err())
					}
					<-time.After(2 * acceptLimit) // it lives as long as it likes
					if o.ctx.Err() != nil {
						t.Error("an accepted watch is ended")
					}
					end()
				} else if !errors.Is(err, context.DeadlineExceeded) || w != nil || !c.deaf && took != acceptLimit {
					t.Errorf("error %v after %v", err, took)
				}
				if o.ctx.Err() == nil || (c.ok || c.deaf) && !o.w.IsStopped() {
					t.Errorf("its context: %v, stopped: %v", o.ctx.Err(), o.w.IsStopped())
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		var o opening
		if _, _, err := accepted(ctx, o.open(time.Minute, false)); !errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("its caller ended it: %v", err)
		}
		if _, _, err := accepted(t.Context(), func(ctx context.Context) (watch.Interface, error) { o.ctx = ctx; return nil, errNoClient }); !errors.Is(err, errNoClient) || o.ctx.Err() == nil {
			t.Errorf("refused: %v, its context %v", err, o.ctx.Err())
		}
	})
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(acceptLimit, cancel) // together with the limit
		var o opening
		if _, _, err := accepted(ctx, o.open(2*acceptLimit, true)); errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("its caller ended it as well: %v", err)
		}
	})
}

// A watch that is over is stopped, or its connection would stay open.
func TestAWatchIsStopped(t *testing.T) {
	w := watch.NewFake()
	ctx, cancel := context.WithCancel(t.Context())
	l := lockOn(scripted{watch: func(metav1.ListOptions) (watch.Interface, error) { return w, nil }})
	if _, err := l.Watch(ctx, "", cancel, func(Snapshot) {}); err != nil {
		t.Fatal(err)
	}
	if !w.IsStopped() {
		t.Error("it goes on")
	}
	for range events(ctx, w, &watch.Event{Type: watch.Added, Object: configMap("istio-leader", "7")}) {
		t.Error("an event of before it was up is shown after the end of its context")
	}
}
