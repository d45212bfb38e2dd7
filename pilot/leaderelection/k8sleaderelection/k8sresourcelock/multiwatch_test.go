package k8sresourcelock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock/locktest"
)

// played is a lock whose watch does what a test says, step by step.
type played struct {
	locktest.Locker
	steps chan func(up func(), seen func(k8sresourcelock.Snapshot))
	end   chan error
	// deaf: it does not hear that its context has ended.
	deaf bool
}

func play(l locktest.Locker) *played {
	return &played{Locker: l, steps: make(chan func(func(), func(k8sresourcelock.Snapshot))), end: make(chan error)}
}

func (p *played) Watch(ctx context.Context, from string, up func(), seen func(k8sresourcelock.Snapshot)) (string, error) {
	done := ctx.Done()
	if p.deaf {
		done = nil
	}
	for {
		select {
		case step := <-p.steps:
			step(up, seen)
		case err := <-p.end:
			return from, err
		case <-done:
			return from, nil
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

// watchedPair is a MultiLock's Watch with both of its halves played, after a Read.
type watchedPair struct {
	pairTrial
	halves [2]*played
	cancel context.CancelFunc
	ended  chan struct{}
	heard  []string
	resume string
	err    error
	// onSeen, if given, is called at each change.
	onSeen func()
}

func watchPair(t *testing.T, deaf bool) *watchedPair {
	w := &watchedPair{pairTrial: newPairTrial(t), ended: make(chan struct{})}
	w.held()
	w.halves = [2]*played{play(w.lock.Primary.Locker), play(w.lock.Secondary.Locker)}
	w.halves[0].deaf, w.halves[1].deaf = deaf, deaf
	lock := &k8sresourcelock.MultiLock{Primary: w.halves[0], Secondary: w.halves[1]}
	if _, err := lock.Read(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	w.cancel = cancel
	go func() {
		defer close(w.ended)
		w.resume, w.err = lock.Watch(ctx, "7+8", func() { w.heard = append(w.heard, "up") }, func(s k8sresourcelock.Snapshot) {
			w.heard = append(w.heard, fmt.Sprintf("%d+%d %s", s.Parts[0].Version, s.Parts[1].Version, s.Record.HolderIdentity))
			if w.onSeen != nil {
				w.onSeen()
			}
		})
	}()
	t.Cleanup(func() {
		cancel()
		if deaf {
			return
		}
		<-w.ended
	})
	synctest.Wait()
	return w
}

func (w *watchedPair) wants(heard ...string) {
	w.Helper()
	synctest.Wait()
	if !slices.Equal(w.heard, heard) {
		w.Errorf("heard %q, want %q", w.heard, heard)
	}
}

// by has one object change, and says what its watch is to show.
func (w *watchedPair) by(store *locktest.Store, holder string, term int) k8sresourcelock.Snapshot {
	store.Put(holder, termOf(holder, term, term))
	return store.Snapshot()
}

func pairWatchTest(t *testing.T, name string, f func(w *watchedPair)) {
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { f(watchPair(t, false)) })
	})
}

func TestMultiLockWatch(t *testing.T) {
	pairWatchTest(t, "is up when both are, with what came before", func(w *watchedPair) {
		w.halves[0].up()
		w.halves[0].show(w.by(w.Primary, "c", 4))
		w.halves[0].show(w.by(w.Primary, "d", 5))
		w.wants()
		w.halves[1].up()
		w.wants("up", "101+99 d")
		w.halves[1].show(w.by(w.Secondary, "d", 5))
		w.wants("up", "101+99 d", "101+102 d")
	})
	pairWatchTest(t, "is up with nothing to show", func(w *watchedPair) {
		w.halves[1].up()
		w.halves[0].up()
		w.wants("up")
	})
	pairWatchTest(t, "does not show what is outdated", func(w *watchedPair) {
		w.halves[0].up()
		w.halves[1].up()
		old := w.by(w.Primary, "c", 4)
		w.halves[0].show(w.by(w.Primary, "d", 5))
		w.halves[0].show(old)
		w.wants("up", "101+99 d")
	})
	pairWatchTest(t, "ends with either, and says why", func(w *watchedPair) {
		w.halves[0].up()
		w.halves[1].up()
		broken := apierrors.NewInternalError(errors.New("etcd"))
		w.halves[1].end <- broken
		<-w.ended
		if w.resume != "7+8" || !apierrors.IsInternalError(w.err) {
			w.Errorf("resume %q, error %v", w.resume, w.err)
		}
	})
	pairWatchTest(t, "ends at a version that is none, and shows nothing of it", func(w *watchedPair) {
		w.halves[0].up()
		w.halves[1].up()
		w.halves[0].show(k8sresourcelock.Snapshot{Exists: true, ResourceVersion: "1a"})
		<-w.ended
		w.wants("up")
		if w.err == nil {
			w.Error("no error")
		}
	})
	t.Run("says nothing more once its context has ended", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := watchPair(t, true)
			w.halves[0].up()
			w.halves[1].up()
			w.onSeen = w.cancel
			w.halves[0].show(w.by(w.Primary, "c", 4))
			w.halves[1].show(w.by(w.Secondary, "c", 4)) // was under way
			w.wants("up", "100+99 c")
			w.halves[0].end <- nil
			w.halves[1].end <- nil
			<-w.ended
			if w.err != nil || w.resume != "7+8" {
				t.Errorf("resume %q, error %v", w.resume, w.err)
			}
		})
	})
}

// One of the two versions is gone: neither can be resumed from.
func TestMultiLockWatchBeginsAnewForBoth(t *testing.T) {
	for name, from := range map[string]string{"primary": "1+900", "secondary": "900+1"} {
		synctest.Test(t, func(t *testing.T) {
			p := newPairTrial(t)
			p.held()
			resume, err := p.lock.Watch(t.Context(), from, func() {}, func(k8sresourcelock.Snapshot) {})
			if resume != "" || !apierrors.IsResourceExpired(err) {
				t.Errorf("%s: resume %q, error %v", name, resume, err)
			}
		})
	}
}
