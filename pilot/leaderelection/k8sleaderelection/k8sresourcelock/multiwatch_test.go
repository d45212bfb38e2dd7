package k8sresourcelock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"incumbent.dev/incumbent/internal/testutil/locktest"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// played is a lock with a watch that the test controls.
type played struct {
	locktest.Locker
	steps chan func(up func(), seen func(k8sresourcelock.Snapshot))
	end   chan error
}

func play(l locktest.Locker) *played {
	return &played{Locker: l, steps: make(chan func(func(), func(k8sresourcelock.Snapshot))), end: make(chan error)}
}

func (p *played) Watch(ctx context.Context, _ string, up func(), seen func(k8sresourcelock.Snapshot)) (string, error) {
	for {
		select {
		case step := <-p.steps:
			step(up, seen)
		case err := <-p.end:
			return "7", err
		case <-ctx.Done():
			return "7", nil
		}
	}
}

func (p *played) up() {
	p.steps <- func(up func(), _ func(k8sresourcelock.Snapshot)) { up() }
	synctest.Wait()
}

func (p *played) show(snap k8sresourcelock.Snapshot) {
	p.steps <- func(_ func(), seen func(k8sresourcelock.Snapshot)) { seen(snap) }
	synctest.Wait()
}

// watchedPair is the Subscription of a MultiLock of two played locks, after a Read.
type watchedPair struct {
	pairTrial
	halves [2]*played
	watch  k8sresourcelock.Subscription
	heard  []string
}

func watchPair(t *testing.T) *watchedPair {
	w := &watchedPair{pairTrial: newPairTrial(t)}
	w.held()
	w.halves = [2]*played{play(w.lock.Primary.Locker), play(w.lock.Secondary.Locker)}
	lock := &k8sresourcelock.MultiLock{Primary: w.halves[0], Secondary: w.halves[1]}
	if _, err := lock.Read(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.watch = k8sresourcelock.Subscribe(t.Context(), lock, func() {})
	t.Cleanup(w.watch.End)
	synctest.Wait()
	return w
}

// wants checks all events so far.
func (w *watchedPair) wants(heard ...string) {
	w.Helper()
	synctest.Wait()
	for _, n := range w.watch.Next() {
		word := map[k8sresourcelock.EventKind]string{k8sresourcelock.WatchConnected: "up", k8sresourcelock.WatchDisconnected: "down"}[n.Kind]
		switch {
		case n.Kind == k8sresourcelock.Changed:
			word = fmt.Sprintf("%d+%d %s", n.Snapshot.Parts[0].Version, n.Snapshot.Parts[1].Version, n.Snapshot.Record.HolderIdentity)
		case n.Gap:
			word += " after a gap"
		case n.Err != nil:
			word += ": " + n.Err.Error()
		}
		w.heard = append(w.heard, word)
	}
	if !slices.Equal(w.heard, heard) {
		w.Errorf("heard %q, want %q", w.heard, heard)
	}
}

// by changes one object and returns the event that its watch shows.
func (w *watchedPair) by(store *locktest.Store, holder string, term int) k8sresourcelock.Snapshot {
	store.Put(holder, termOf(holder, term, term))
	return store.Snapshot()
}

func pairWatchTest(t *testing.T, name string, f func(w *watchedPair)) {
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { f(watchPair(t)) })
	})
}

func TestMultiLock_Subscribe(t *testing.T) {
	const up = "up after a gap"
	pairWatchTest(t, "connected when both are", func(w *watchedPair) {
		w.halves[0].up()
		w.halves[0].show(w.by(w.Primary, "c", 4))
		w.halves[0].show(w.by(w.Primary, "d", 5))
		w.wants()
		w.halves[1].up()
		w.wants(up, "101+99 d")
		w.halves[1].show(w.by(w.Secondary, "d", 5))
		w.wants(up, "101+99 d", "101+102 d")
	})
	pairWatchTest(t, "is up with nothing to show", func(w *watchedPair) {
		w.halves[1].up()
		w.halves[0].up()
		w.wants(up)
	})
	pairWatchTest(t, "omits outdated events", func(w *watchedPair) {
		w.halves[0].up()
		w.halves[1].up()
		old := w.by(w.Primary, "c", 4)
		w.halves[0].show(w.by(w.Primary, "d", 5))
		w.halves[0].show(old)
		w.wants(up, "101+99 d")
	})
	pairWatchTest(t, "disconnected with either", func(w *watchedPair) {
		w.halves[0].up()
		w.halves[1].up()
		w.halves[1].end <- errors.New("broken")
		w.wants(up, "down: broken")
		w.halves[0].show(w.by(w.Primary, "c", 4))
		w.wants(up, "down: broken")
		w.halves[1].up()
		w.wants(up, "down: broken", "up", "100+99 c")
		w.halves[0].end <- nil
		w.wants(up, "down: broken", "up", "100+99 c", "down")
		w.halves[0].up()
		w.wants(up, "down: broken", "up", "100+99 c", "down", "up")
	})
	pairWatchTest(t, "has a gap if one has", func(w *watchedPair) {
		w.halves[1].end <- nil // it resumes
		w.halves[0].up()
		w.halves[1].up()
		w.wants(up)
		w.halves[1].end <- nil
		w.wants(up, "down")
		w.halves[1].up()
		w.wants(up, "down", "up")
	})
	pairWatchTest(t, "says why one cannot be had", func(w *watchedPair) {
		w.halves[1].end <- nil
		w.wants()
		w.halves[0].end <- errors.New("broken")
		w.wants("down: broken")
	})
	pairWatchTest(t, "has a gap at a version that is none, and shows nothing of it", func(w *watchedPair) {
		w.halves[0].show(k8sresourcelock.Snapshot{Exists: true, ResourceVersion: "1a"})
		const wrong = `down: resourceVersion "1a" is not a decimal number: strconv.ParseUint: parsing "1a": invalid syntax`
		w.wants(wrong)
		w.halves[0].up()
		w.halves[1].up()
		w.wants(wrong, up)
		w.halves[0].show(k8sresourcelock.Snapshot{Exists: true, ResourceVersion: "1a"})
		w.wants(wrong, up, wrong, up)
	})
	pairWatchTest(t, "restarts both", func(w *watchedPair) {
		w.halves[0].up()
		w.halves[1].up()
		w.wants(up)
		w.watch.StoreRestored("7+8")
		w.wants(up, "down")
		w.halves[0].up()
		w.halves[1].up()
		w.wants(up, "down", up)
	})
	pairWatchTest(t, "ends with both", func(w *watchedPair) {
		w.halves[0].up()
		w.halves[1].up()
		w.watch.End()
		w.wants(up)
	})
}
