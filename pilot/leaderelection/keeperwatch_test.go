package leaderelection

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock/locktest"
)

// watchLock has its watches and writes done by a test.
type watchLock struct {
	watchedLock
	watch func(ctx context.Context, from string, seen func(k8sresourcelock.Snapshot)) (string, error)
	write func(ctx context.Context)
}

func (l watchLock) Watch(ctx context.Context, from string, _ func(), seen func(k8sresourcelock.Snapshot)) (string, error) {
	return l.watch(ctx, from, seen)
}

func (l watchLock) Write(ctx context.Context, base k8sresourcelock.Snapshot, r k8sresourcelock.LeaderElectionRecord, notes map[string]string) (k8sresourcelock.Snapshot, error) {
	if l.write != nil {
		l.write(ctx)
	}
	return l.watchedLock.Write(ctx, base, r, notes)
}

// A watch goes on where the last one ended, or from the present after an error; one that ends
// early is tried again after a pause that grows, to four RetryPeriods, and one that was good at
// once again.
func TestHowAKeeperWatches(t *testing.T) {
	const eighth = oldRetry / 8
	failed := errors.New("failed")
	for name, x := range map[string]struct {
		lasts  time.Duration
		err    error
		pauses []time.Duration
	}{
		"it fails":           {0, failed, []time.Duration{1, 2, 4, 8, 16, 32, 32}},
		"it ends":            {time.Second, nil, []time.Duration{1, 2, 4, 8, 16, 32, 32}},
		"it lasts":           {oldRetry + 1, nil, []time.Duration{1, 1, 1, 1}},
		"it almost lasts":    {oldRetry, nil, []time.Duration{1, 2, 4, 8}},
		"it lasts and fails": {time.Hour, failed, []time.Duration{1, 1, 1}},
	} {
		bubble(t, func(t *testing.T, store *locktest.Store) {
			ctx, cancel := context.WithCancel(t.Context())
			s := keepingOf(store)
			began := time.Now()
			var at []time.Duration
			var from []string
			s.lock = watchLock{watchedLock: s.lock, watch: func(_ context.Context, f string, _ func(k8sresourcelock.Snapshot)) (string, error) {
				at, from = append(at, time.Since(began)), append(from, f)
				if len(at) > len(x.pauses) {
					cancel()
				}
				<-time.After(x.lasts)
				return "7", x.err
			}}
			s.follow(ctx)
			for i, pause := range x.pauses {
				if got := at[i+1] - at[i] - x.lasts; got != pause*eighth {
					t.Errorf("%s: pause %d is %v, want %v", name, i+1, got, pause*eighth)
				}
			}
			want := append([]string{""}, slices.Repeat([]string{map[bool]string{true: "7"}[x.err == nil]}, len(x.pauses))...)
			if !slices.Equal(from, want) {
				t.Errorf("%s: watches from %q, want %q", name, from, want)
			}
		})
	}
}

// What a watch shows is handed on, unless nobody takes it any more.
func TestWhatAKeepersWatchShowsIsHandedOn(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		ctx, cancel := context.WithCancel(t.Context())
		s := keepingOf(store)
		s.lock = watchLock{watchedLock: s.lock, watch: func(ctx context.Context, _ string, seen func(k8sresourcelock.Snapshot)) (string, error) {
			seen(keptLock("11"))
			seen(keptLock("12"))
			<-ctx.Done()
			return "12", nil
		}}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			s.follow(ctx)
		}()
		if snap := <-s.news; snap.ResourceVersion != "11" {
			t.Errorf("shown: %s", snap.ResourceVersion)
		}
		passes(time.Second)
		cancel()
		<-ended
	})
}

// A keeper has ended when its watch and its calls have, and its gate is open from the first
// write on.
func TestAKeeperWaitsForWhatItHasStarted(t *testing.T) {
	for name, late := range map[string]func(*watchLock, func()){
		"its watch": func(l *watchLock, wait func()) {
			l.watch = func(ctx context.Context, _ string, _ func(k8sresourcelock.Snapshot)) (string, error) {
				<-ctx.Done()
				wait()
				return "", nil
			}
		},
		"its write": func(l *watchLock, wait func()) {
			writes := 0
			l.write = func(ctx context.Context) {
				if writes++; writes > 1 {
					<-ctx.Done()
					wait()
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *locktest.Store) {
				k := trialOf(store.Lock("s", "canary"))
				quiet := watchLock{watchedLock: k.lock, watch: func(ctx context.Context, _ string, _ func(k8sresourcelock.Snapshot)) (string, error) {
					<-ctx.Done()
					return "", nil
				}}
				var ended atomic.Bool
				late(&quiet, func() {
					<-time.After(time.Minute)
					ended.Store(true)
				})
				k.lock = quiet
				base := keptLock("0").Record
				store.Put("other", base)
				store.Annotate(k8sresourcelock.PredecessorAnnotation, k8sresourcelock.SuccessorsNote(base, "other"))
				var bound atomic.Pointer[k8sleaderelection.Cover]
				k.bound = func(c k8sleaderelection.Cover) { bound.Store(&c) }
				ctx, cancel := context.WithCancel(t.Context())
				began := k.clock.Now()
				done := runs(ctx, k.keeper, func(ctx context.Context) error { <-ctx.Done(); return nil })
				passes(time.Second)
				if open := *bound.Load(); open != began.Plus(oldRenew) {
					t.Errorf("the gate is open until %+v, and the lock was written at %+v", open, began)
				}
				passes(oldRetry) // a write is under way
				cancel()
				if err := <-done; err != nil || !ended.Load() {
					t.Errorf("ended with %v while %s has not", err, name)
				}
			})
		})
	}
}
