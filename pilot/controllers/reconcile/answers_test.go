package reconcile

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
)

// writer is a controller that has each ConfigMap say "wanted", guarded by the version, with caches
// that show a write late.
type writer struct {
	looks
	store  *store
	cache  *Cache[string, *corev1.ConfigMap]
	writes []time.Time
	before func() // the first write
	wrote  func() // after each
	log    bytes.Buffer
	fails  error // the answer to writes, if any
}

func newWriter(t *testing.T, lag time.Duration, objects ...*corev1.ConfigMap) (*writer, *Controller[string]) {
	t.Helper()
	w := &writer{store: newStore(objects...)}
	w.store.lag = lag
	w.do = w.write
	c, cached := newController(t, &w.looks, w.store, slog.New(slog.NewTextHandler(&w.log, nil)), func(config *Config[string], kind *Kind[string, *corev1.ConfigMap]) {
		config.Workers = 1
		kind.Keep = func(o *corev1.ConfigMap) *corev1.ConfigMap {
			return &corev1.ConfigMap{ObjectMeta: Meta(o.ObjectMeta), Data: o.Data}
		}
	})
	w.cache = cached
	return w, c
}

// written is when it wrote so far.
func (w *writer) written() []time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.writes)
}

func (w *writer) write(_ context.Context, name string) error {
	target := w.cache.At(name, Ref{Namespace: "n", Name: name})
	have, known := target.Latest()
	if !known || have == nil || have.Data["data"] == "wanted" {
		return nil
	}
	w.mu.Lock() // that of looks, which is not held here
	w.writes = append(w.writes, time.Now())
	w.mu.Unlock()
	if w.before != nil {
		w.before()
		w.before = nil
	}
	if w.fails != nil {
		return target.Answered(have, nil, w.fails)
	}
	wanted := have.DeepCopy()
	wanted.Data = map[string]string{"data": "wanted"}
	got, err := w.store.update(wanted)
	if w.wrote != nil {
		w.wrote()
	}
	return target.Answered(have, got, err)
}

// What was written is known before the cache shows it, and nothing is written again; a conflict
// waits for what the cache shows next, and no error goes on for that.
func TestWritesThatTheCacheShowsLate(t *testing.T) {
	const lag = 10 * time.Second
	for name, test := range map[string]struct {
		before func(*writer)
		fails  error
		later  func(*writer) // 5 s after the first write
		writes []time.Duration
	}{
		"nothing happens": {writes: []time.Duration{0}},
		"another writes in between": {
			before: func(w *writer) { w.store.put(configMap("a", "theirs")) }, writes: []time.Duration{0, lag},
		},
		"another writes what is wanted": {
			before: func(w *writer) { w.store.put(configMap("a", "wanted")) }, writes: []time.Duration{0},
		},
		"another deletes it in between": {
			before: func(w *writer) { w.store.remove("a") }, writes: []time.Duration{0},
		},
		"another writes it later": {
			later: func(w *writer) { w.store.put(configMap("a", "theirs")) }, writes: []time.Duration{0, 5*time.Second + lag},
		},
		"it is said to exist, of which the cache shows nothing for long": {
			fails: apierrors.NewAlreadyExists(maps1, "a"), later: func(w *writer) { w.fails = nil }, writes: []time.Duration{0, unseenLimit},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, c := newWriter(t, lag, configMap("a", "1"))
				if test.before != nil {
					w.before = func() { test.before(w) }
				}
				w.fails = test.fails
				began := time.Now()
				end := running(t, c)
				for i := range 120 {
					time.Sleep(500 * time.Millisecond)
					if i == 9 && test.later != nil {
						test.later(w)
					}
					c.Enqueue("a")
				}
				synctest.Wait()
				var got []time.Duration
				for _, at := range w.writes {
					got = append(got, at.Sub(began))
				}
				if len(got) != len(test.writes) {
					t.Fatalf("writes after %v, want %v", got, test.writes)
				}
				for i := range got {
					if got[i] < test.writes[i] || got[i] > test.writes[i]+500*time.Millisecond {
						t.Errorf("writes after %v, want %v", got, test.writes)
					}
				}
				end()
			})
		})
	}
}

// An answer that comes when the cache has shown it already, or more than it, does not hide what the
// cache shows.
func TestAnAnswerThatTheCacheHasShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(configMap("a", "1"))
		c, cached := newController(t, &looks{}, s, nil, nil)
		end := running(t, c)
		synctest.Wait()
		target := cached.At("a", Ref{Namespace: "n", Name: "a"})
		ours := s.put(configMap("a", "ours"))
		s.put(configMap("a", "theirs"))
		synctest.Wait() // the cache shows both before the answer is known
		target.Wrote(nil, ours)
		if got, known := target.Latest(); !known || got == nil || got.Data["data"] != "theirs" {
			t.Errorf("the latest is %v, %v", got, known)
		}
		if n := len(cached.answers.unseen); n != 0 {
			t.Errorf("%d answers are still waited for", n)
		}
		// One of which the cache shows nothing is what there is.
		gone := configMap("b", "new")
		gone.ResourceVersion = "1000"
		other := cached.At("a", Ref{Namespace: "n", Name: "b"})
		other.Wrote(nil, gone)
		if got, known := other.Latest(); !known || got == nil || got.Data["data"] != "new" {
			t.Errorf("the latest is %v, %v", got, known)
		}
		end()
	})
}

// A key that waits for its cache to show more is looked at when it does, whatever the keys are that the object itself
// stands for, and whether or not it has changed otherwise.
func TestWhatWasBehindIsLookedAtWhenTheCacheShowsMore(t *testing.T) {
	for name, data := range map[string]string{"changed": "theirs", "of another version alone": "1"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, l := newStore(configMap("a", "1")), &looks{}
				c, cached := newController(t, l, s, nil, func(_ *Config[string], kind *Kind[string, *corev1.ConfigMap]) { kind.Keys = nil })
				end := running(t, c)
				synctest.Wait()
				cached.At("waits", Ref{Namespace: "n", Name: "a"}).Behind(cached.Get("n", "a"))
				synctest.Wait()
				if got := l.since(); len(got) > 0 {
					t.Errorf("looked at %q before", got)
				}
				s.put(configMap("a", data))
				synctest.Wait()
				if got := l.since(); !slices.Equal(got, []string{"waits"}) {
					t.Errorf("looked at %q", got)
				}
				s.put(configMap("a", "more"))
				time.Sleep(time.Minute)
				if got := l.since(); len(got) > 0 {
					t.Errorf("looked at %q again", got)
				}
				end()
			})
		})
	}
}

// Errors that say nothing of the cache are returned; by the others it is behind what it shows.
func TestAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, cached := newController(t, &looks{}, newStore(configMap("a", "1")), nil, nil)
		if err := c.Warm(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		target, name := cached.At("a", Ref{Namespace: "n", Name: "a"}), types.NamespacedName{Namespace: "n", Name: "a"}
		have := cached.Get("n", "a")
		for what, test := range map[string]struct {
			err    error
			passed bool
		}{
			"conflict": {apierrors.NewConflict(maps1, "a", errors.New("no")), false}, "exists": {apierrors.NewAlreadyExists(maps1, "a"), false},
			"gone": {apierrors.NewNotFound(maps1, "a"), false}, "forbidden": {apierrors.NewForbidden(maps1, "a", errors.New("no")), true},
			"no answer": {errors.New("refused"), true},
		} {
			cached.answers.clear()
			if err := target.Answered(have, nil, test.err); (err != nil) != test.passed || test.passed && !errors.Is(err, test.err) {
				t.Errorf("%s: %v", what, err)
			}
			if _, known := target.Latest(); known != test.passed {
				t.Errorf("%s: the latest is known: %v", what, known)
			}
			if a := cached.answers.of(name, ""); !test.passed && (a == nil || a.stale != have.ResourceVersion || a.key != "a") {
				t.Errorf("%s: what is stale is %+v", what, a)
			}
		}
	})
}

// Nothing is left of what was not seen when the caches end; an answer ends with what the cache shows,
// with a later one, and with the limit, of which the key is told once.
func TestUnseenAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var overdue []string
		u := newAnswers[string, *corev1.ConfigMap](func(key string) { overdue = append(overdue, key) })
		name := func(n string) types.NamespacedName { return types.NamespacedName{Name: n} }
		versioned := func(version string) *corev1.ConfigMap {
			m := configMap("b", "")
			m.ResourceVersion = version
			return m
		}
		type ours = answer[string, *corev1.ConfigMap]
		u.add(name("a"), &ours{key: "a", in: "1", stale: "5"})
		u.add(name("b"), &ours{key: "b", in: "2", object: versioned("7")})
		u.add(name("b"), &ours{key: "b", in: "2", object: versioned("8")})
		if u.seen(name("b"), "7") != nil || u.seen(name("a"), "5") != nil || u.seen(name("c"), "9") != nil {
			t.Error("an earlier version counts")
		}
		if u.of(name("a"), "2") != nil || u.of(name("a"), "1") == nil || u.of(name("b"), "2").object.ResourceVersion != "8" {
			t.Error("the answer of another life, or none")
		}
		if a := u.seen(name("b"), "8"); a == nil || a.key != "b" || u.of(name("b"), "2") != nil || u.seen(name("b"), "8") != nil {
			t.Error("it was seen, and is still waited for")
		}
		old := u.of(name("a"), "1")
		u.add(name("a"), &ours{key: "a", in: "1", stale: "6"})
		if u.drop(name("a"), old) || u.of(name("a"), "1") == nil {
			t.Error("the limit of an earlier answer is the end of a later one")
		}
		u.clear()
		u.add(name("d"), &ours{key: "key of d"})
		time.Sleep(2 * unseenLimit)
		synctest.Wait()
		if !slices.Equal(overdue, []string{"key of d"}) || len(u.unseen) != 0 {
			t.Errorf("told of %q, %d are left", overdue, len(u.unseen))
		}
	})
}

// The caches' end forgets answers, ends the informers, and a later start reads anew.
func TestCachesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(configMap("a", "1"))
		c, cached := newController(t, &looks{}, s, nil, nil)
		for range 2 {
			if err := c.Warm(t.Context()); err != nil {
				t.Fatal(err)
			}
			informer := cached.informer.Load()
			cached.At("a", Ref{Namespace: "n", Name: "a"}).Behind(nil)
			c.Close()
			c.Close()
			synctest.Wait()
			if !informer.IsStopped() || len(cached.answers.unseen) != 0 || len(s.watches) != 0 {
				t.Errorf("after their end the caches go on, or %d answers are left", len(cached.answers.unseen))
			}
		}
		if got := s.reads(); len(got) != 2 {
			t.Errorf("it reads %q", got)
		}
	})
}
