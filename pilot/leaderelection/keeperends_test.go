package leaderelection

import (
	"context"
	"errors"
	"testing"
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock/locktest"
)

// runs starts a keeper with work and gives back how it ends.
func runs(ctx context.Context, k *keeper, work func(context.Context) error) <-chan error {
	ended := make(chan error, 1)
	go func() { ended <- k.run(ctx, work) }()
	return ended
}

// A keeper whose functions have returned keeps the lock for as long as the term lasts: its
// election leads, and an old replica would act beside what they have set up.
func TestAKeeperWhoseFunctionsHaveReturnedKeepsTheLock(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		k := keeperOf(store.Lock("s", "canary"))
		steppedDown := false
		k.stepDown = func() { steppedDown = true }
		ended := runs(ctx, k, func(context.Context) error { return nil })
		passes(4 * oldLease)
		snap := store.Snapshot()
		if age := time.Since(snap.Record.RenewTime.Time); !snap.KeptForSuccessors() || age > oldRetry+time.Second {
			t.Errorf("kept %v, renewed %v ago", snap.KeptForSuccessors(), age)
		}
		// When the lock is lost, nobody is waited for: it is kept anew, once that is allowed.
		store.Put("istiod", istiodsLock("1").Record)
		passes(2 * oldLease)
		if !store.Snapshot().KeptForSuccessors() || steppedDown {
			t.Errorf("after a loss: kept %v, stepped down %v", store.Snapshot().KeptForSuccessors(), steppedDown)
		}
		select {
		case err := <-ended:
			t.Fatalf("it has ended: %v", err)
		default:
		}
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("it ended with %v", err)
		}
		before := store.Snapshot().ResourceVersion
		if passes(oldLease); store.Snapshot().ResourceVersion != before {
			t.Error("it writes after its end")
		}
	})
}

// A function that fails ends the keeper with its error; the gate's bound stays until the
// elector, which is told, has shut it.
func TestAFunctionThatFailsEndsTheKeeper(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		failed := errors.New("failed")
		k := keeperOf(store.Lock("s", "canary"))
		if err := k.run(t.Context(), func(context.Context) error { <-time.After(time.Minute); return failed }); !errors.Is(err, failed) {
			t.Errorf("told %v", err)
		}
	})
}

// Without a watch, a keeper learns of a loss by the read after a write that met another: it
// stops its functions then, and leaves alone what the other wrote.
func TestAKeeperLearnsOfALossByReading(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		s := successor(t, store, "s")
		passes(time.Minute)
		s.client.MuteWatches(true)
		store.Put("istiod", istiodsLock("1").Record)
		lost := time.Now()
		passes(oldRetry + time.Second)
		if s.works() || s.stopped.Sub(lost) > oldRetry {
			t.Errorf("works %v, stopped %v after the loss", s.works(), s.stopped.Sub(lost))
		}
		if by := store.Snapshot().Record.HolderIdentity; by != "istiod" {
			t.Errorf("the lock is held by %q", by)
		}
		if passes(2 * oldLease); !s.works() {
			t.Error("it does not come back")
		}
	})
}

// A keeper that waits for the lock ends with its context, and has not started anything.
func TestAKeeperThatWaitsEnds(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		a := old(t, store, "a")
		passes(time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		k := keeperOf(store.Lock("s", "canary"))
		var bounds []k8sleaderelection.Cover
		k.bound = func(c k8sleaderelection.Cover) { bounds = append(bounds, c) }
		ended := runs(ctx, k, func(context.Context) error { t.Error("it works"); return nil })
		passes(oldLease)
		cancel()
		began := time.Now()
		if err := <-ended; err != nil || time.Since(began) > time.Second {
			t.Errorf("ended with %v after %v", err, time.Since(began))
		}
		if len(bounds) != 1 || bounds[0] != (k8sleaderelection.Cover{}) {
			t.Errorf("the gate was told %+v", bounds)
		}
		if !a.works() {
			t.Error("the old replica does not work")
		}
	})
}

// What a keeper takes a write for that was acknowledged without having changed anything: for
// none.
func TestAKeepersWriteThatChangesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		k := keeperOf(store.Lock("s", "canary"))
		k.lock = deafLock{k.lock}
		base := keptLock("10")
		if held, err := k.write(t.Context(), base); err == nil || held.cover != (k8sleaderelection.Cover{}) {
			t.Errorf("%+v, %v", held, err)
		}
	})
}

// deafLock acknowledges writes that change nothing.
type deafLock struct{ watchedLock }

func (deafLock) Write(_ context.Context, base k8sresourcelock.Snapshot, _ k8sresourcelock.LeaderElectionRecord, _ map[string]string) (k8sresourcelock.Snapshot, error) {
	return base, nil
}
