package reconcile

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// A pause doubles, up to the longest, however often a change was made; a change that nobody contests has none, and is not
// looked at again for its own sake.
func TestPausesAfterChanges(t *testing.T) {
	for times, want := range map[int]time.Duration{0: 0, 2: 0, 3: time.Second, 4: 2 * time.Second, 7: 16 * time.Second, 8: lastPause} {
		if got := pauseAfter(times); got != want {
			t.Errorf("after %d changes it is %v, want %v", times, got, want)
		}
	}
	for times := 8; times < 200; times++ {
		if got := pauseAfter(times); got != lastPause {
			t.Errorf("after %d changes it is %v", times, got)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		var again []string
		c := newContests(slog.New(slog.DiscardHandler), func(key string) { again = append(again, key) })
		c.changed("things", types.NamespacedName{Name: "a"}, "a", [16]byte{1})
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(again) > 0 || len(c.of) > 0 {
			t.Errorf("looked at again: %q; %d are known", again, len(c.of))
		}
	})
}

// What a cache has of objects in no namespace, of those that went unseen, and of nothing.
func TestWhatACacheIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := newStore(configMap("a", "1")), &looks{}
		c, cached := newController(t, l, s, nil, nil)
		if err := c.Warm(t.Context()); err != nil {
			t.Fatal(err)
		}
		nowhere := configMap("nowhere", "1")
		nowhere.Namespace = ""
		if err := cached.store().Add(nowhere); err != nil || cached.Get("", "nowhere") != nowhere {
			t.Errorf("%v, and it shows %v", err, cached.Get("", "nowhere"))
		}
		end := running(t, c)
		synctest.Wait()
		l.since()
		cached.shown(nil, cache.DeletedFinalStateUnknown{Key: "n/gone", Obj: configMap("gone", "1")})
		cached.shown(nil, cache.DeletedFinalStateUnknown{Key: "n/lost"})
		synctest.Wait()
		if got := l.since(); !slices.Equal(got, []string{"gone"}) {
			t.Errorf("looked at %q", got)
		}
		cached.contests.changed("things", types.NamespacedName{Name: "a"}, "a", [16]byte{1})
		end()
		c.Close()
		if n := len(cached.contests.of); n > 0 {
			t.Errorf("after its end %d changes are known", n)
		}
		if !alike("text", "text") || alike("text", "other") || !alike((*corev1.ConfigMap)(nil), (*corev1.ConfigMap)(nil)) {
			t.Error("what is no object is compared as one")
		}
	})
}

// What is done instead of what may not be done is said. A list that failed is no problem while a watch begins with one of its own.
func TestWhatIsDoneInstead(t *testing.T) {
	var log bytes.Buffer
	c, cached := newController(t, &looks{}, newStore(), slog.New(slog.NewTextHandler(&log, nil)), func(config *Config[string], kind *Kind[string, *corev1.ConfigMap]) {
		config.Idle, kind.Name = "nothing is written", "things"
	})
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "things"}, "", errors.New("no right"))
	cached.tried("list", forbidden)
	if c.Problem() == nil || !strings.Contains(log.String(), "nothing is written") {
		t.Errorf("%v, and the log says\n%s", c.Problem(), &log)
	}
	cached.watched()
	if err := c.Problem(); err != nil {
		t.Errorf("with a watch: %v", err)
	}
	cached.tried("watch", forbidden)
	if !strings.Contains(log.String(), "listing them every now and then") {
		t.Errorf("the log says\n%s", &log)
	}
}

// adds counts what a queue is given.
type adds struct {
	queue[string]
	all []string
}

func (a *adds) Add(key string) { a.all = append(a.all, key) }

// All are put into the queue, each once, however many objects have it and whoever asks for it beside.
func TestAllAreAskedForOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, cached := newController(t, &looks{}, newStore(configMap("a", "1"), configMap("b", "1")), nil, func(config *Config[string], kind *Kind[string, *corev1.ConfigMap]) {
			config.Workers = 7
			kind.Keys = func(o *corev1.ConfigMap) []string { return []string{o.Name, "all"} }
		})
		if err := c.Warm(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for range 2 { // a Run that has ended leaves its place to the next one
			q := &adds{}
			if !c.install(q) || c.install(q) {
				t.Error("there is a queue already, or may be two")
			}
			c.EnqueueAll("b", "beside")
			if slices.Sort(q.all); !slices.Equal(q.all, []string{"a", "all", "b", "beside"}) {
				t.Errorf("the queue has %q", q.all)
			}
			c.install(nil)
		}
		if c.config.Workers != 7 {
			t.Errorf("%d workers", c.config.Workers)
		}
		cached.At("key", Ref{Namespace: "n", Name: "a", In: "life"}).Wrote(cached.Get("n", "a"), configMap("a", "2"))
		if a := cached.answers.of(types.NamespacedName{Namespace: "n", Name: "a"}, "life"); a == nil || a.key != "key" {
			t.Errorf("what was written is known as %+v", a)
		}
		of := func(generation int) any {
			return map[string]any{"status": map[string]any{"observedGeneration": generation}}
		}
		if digest("u", nil, of(1)) != digest("u", nil, of(2)) {
			t.Error("what was observed makes another change of it")
		}
	})
}

// Nothing is looked at before what Reconcile goes by is up to date, nor after a stop that comes first.
func TestAwait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		current := make(chan struct{})
		await := func(config *Config[string], _ *Kind[string, *corev1.ConfigMap]) {
			config.Await = func(ctx context.Context) {
				select {
				case <-current:
				case <-ctx.Done():
				}
			}
		}
		for _, comes := range []bool{false, true} {
			l := &looks{}
			c, _ := newController(t, l, newStore(configMap("a", "1")), nil, await)
			end := running(t, c)
			synctest.Wait()
			if got := l.since(); len(got) > 0 {
				t.Errorf("looked at %q", got)
			}
			if comes {
				close(current)
				synctest.Wait()
			}
			end()
			if got := l.since(); slices.Equal(got, []string{"a"}) != comes {
				t.Errorf("current %v, looked at %q", comes, got)
			}
		}
	})
}
