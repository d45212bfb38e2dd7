package reconcile

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"incumbent.dev/incumbent/internal/testutil/harness"
)

// writer is a controller that sets each ConfigMap to "wanted", guarded by the version.
type writer struct {
	store  *store
	cache  *Cache[string, *corev1.ConfigMap]
	before func() // called before the first write
	after  func() // called after each write
	log    harness.Log

	mu     sync.Mutex
	writes []time.Time
	fails  error // result of writes, if set
}

// newWriter returns a writer whose caches show changes after a delay.
func newWriter(t *testing.T, lag time.Duration, objects ...*corev1.ConfigMap) (*writer, *Controller[string]) {
	t.Helper()
	w := &writer{store: newStore(objects...)}
	w.store.SetWatchDelay(lag)
	c, cached := newController(t, &recorder{}, w.store, slog.New(slog.NewTextHandler(&w.log, nil)), func(config *Config[string], kind *Kind[string, *corev1.ConfigMap]) {
		config.Reconcile = w.write
		kind.Keep = func(o *corev1.ConfigMap) *corev1.ConfigMap {
			return &corev1.ConfigMap{ObjectMeta: Meta(o.ObjectMeta), Data: o.Data}
		}
	})
	w.cache = cached
	return w, c
}

func (w *writer) fail(with error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fails = with
}

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
	w.mu.Lock()
	w.writes = append(w.writes, time.Now())
	fails := w.fails
	w.mu.Unlock()
	if w.before != nil {
		w.before()
		w.before = nil
	}
	if fails != nil {
		return target.Answered(have, nil, fails, "write")
	}
	wanted := have.DeepCopy()
	wanted.Data = map[string]string{"data": "wanted"}
	got, err := w.store.update(wanted)
	if w.after != nil {
		w.after()
	}
	return target.Answered(have, got, err, "write")
}

func TestTarget_CacheLag(t *testing.T) {
	const lag = 10 * time.Second
	put := func(data string) func(*writer) { return func(w *writer) { w.store.put(configMap("a", data)) } }
	for name, test := range map[string]struct {
		before func(*writer)
		fails  error
		later  func(*writer) // 5 s after the first write
		writes []time.Duration
	}{
		"no other writer":                   {writes: []time.Duration{0}},
		"other content before the write":    {before: put("theirs"), writes: []time.Duration{0, lag}},
		"wanted content before the write":   {before: put("wanted"), writes: []time.Duration{0}},
		"deleted before the write":          {before: func(w *writer) { w.store.remove("a") }, writes: []time.Duration{0}},
		"other content later":               {later: put("theirs"), writes: []time.Duration{0, 5*time.Second + lag}},
		"AlreadyExists, and no event comes": {fails: apierrors.NewAlreadyExists(configMaps, "a"), later: func(w *writer) { w.fail(nil) }, writes: []time.Duration{0, unseenLimit}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, c := newWriter(t, lag, configMap("a", "1"))
				if test.before != nil {
					w.before = func() { test.before(w) }
				}
				w.fail(test.fails)
				began := time.Now()
				stop := start(t, c)
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
					got = append(got, at.Sub(began).Truncate(time.Second))
				}
				if !slices.Equal(got, test.writes) {
					t.Fatalf("writes after %v, want %v", got, test.writes)
				}
				stop()
			})
		})
	}
}

// An event can arrive before the response to the write.
func TestTarget_EventBeforeResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(configMap("a", "1"))
		r := &recorder{}
		c, cached := newController(t, r, s, nil)
		stop := start(t, c)
		synctest.Wait()
		target := cached.At("a", Ref{Namespace: "n", Name: "a"})
		first := cached.Get("n", "a")
		ours := s.put(configMap("a", "ours"))
		s.put(configMap("a", "theirs"))
		synctest.Wait()
		target.Wrote(nil, ours)
		if got, known := target.Latest(); !known || got == nil || got.Data["data"] != "theirs" {
			t.Errorf("latest is %v, %v", got, known)
		}
		if n := len(cached.answers.unseen); n != 0 {
			t.Errorf("%d answers left", n)
		}
		created := configMap("b", "new")
		created.ResourceVersion = "1000"
		other := cached.At("b", Ref{Namespace: "n", Name: "b"})
		other.Wrote(nil, created)
		if got, known := other.Latest(); !known || got == nil || got.Data["data"] != "new" {
			t.Errorf("latest is %v, %v", got, known)
		}
		current := cached.Get("n", "a")
		newer := current.DeepCopy()
		newer.ResourceVersion = "2000"
		for name, test := range map[string]struct {
			object string
			have   *corev1.ConfigMap
			again  bool
		}{
			"changed, event seen":            {"a", first, true},
			"changed, event not seen":        {"a", current, false},
			"changed, own write not seen":    {"a", newer, false},
			"deleted, event seen":            {"gone", first, true},
			"created by other, event seen":   {"a", nil, true},
			"created by other, no event yet": {"gone", nil, false},
		} {
			cached.answers.clear()
			r.since()
			target := cached.At("key", Ref{Namespace: "n", Name: test.object})
			target.Behind(test.have)
			synctest.Wait()
			if again := len(r.since()) == 1; again != test.again {
				t.Errorf("%s: reconciled again: %v, want %v", name, again, test.again)
			}
			if _, known := target.Latest(); known != test.again {
				t.Errorf("%s: known is %v, want %v", name, known, test.again)
			}
		}
		stop()
	})
}

// The next event causes a reconcile of the key, even if it changes only the version.
func TestTarget_BehindUntilEvent(t *testing.T) {
	for name, data := range map[string]string{"changed": "theirs", "only another version": "1"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStore(configMap("a", "1"))
				r := &recorder{}
				c, cached := newController(t, r, s, nil, func(_ *Config[string], kind *Kind[string, *corev1.ConfigMap]) { kind.Keys = nil })
				stop := start(t, c)
				synctest.Wait()
				cached.At("waits", Ref{Namespace: "n", Name: "a"}).Behind(cached.Get("n", "a"))
				synctest.Wait()
				if got := r.since(); len(got) > 0 {
					t.Errorf("reconciled before the event: %q", got)
				}
				s.put(configMap("a", data))
				synctest.Wait()
				if got := r.since(); !slices.Equal(got, []string{"waits"}) {
					t.Errorf("reconciled %q", got)
				}
				s.put(configMap("a", "more"))
				time.Sleep(time.Minute)
				if got := r.since(); len(got) > 0 {
					t.Errorf("reconciled again: %q", got)
				}
				stop()
			})
		})
	}
}

func TestTarget_Answered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, cached := newController(t, &recorder{}, newStore(configMap("a", "1")), nil)
		harness.Must(t, c.Warm(t.Context()))
		defer c.Close()
		target := cached.At("key", Ref{Namespace: "n", Name: "a", In: "uid"})
		have := cached.Get("n", "a")
		for _, test := range []struct {
			err      error
			returned bool
		}{
			{apierrors.NewConflict(configMaps, "a", errors.New("no")), false},
			{apierrors.NewAlreadyExists(configMaps, "a"), false},
			{apierrors.NewNotFound(configMaps, "a"), false},
			{apierrors.NewForbidden(configMaps, "a", errors.New("no")), true},
			{errors.New("refused"), true},
		} {
			cached.answers.clear()
			if err := target.Answered(have, nil, test.err, "write"); (err != nil) != test.returned || test.returned && !errors.Is(err, test.err) {
				t.Errorf("%v: returned %v", test.err, err)
			}
			if _, known := target.Latest(); known != test.returned {
				t.Errorf("%v: known is %v", test.err, known)
			}
			a := cached.answers.of(types.NamespacedName{Namespace: "n", Name: "a"}, "uid")
			if !test.returned && (a == nil || a.stale != have.ResourceVersion || a.key != "key") {
				t.Errorf("%v: answer is %+v", test.err, a)
			}
		}
		target.Wrote(have, configMap("a", "2"))
		if a := cached.answers.of(types.NamespacedName{Namespace: "n", Name: "a"}, "uid"); a == nil || a.key != "key" {
			t.Errorf("after a write, the answer is %+v", a)
		}
	})
}
