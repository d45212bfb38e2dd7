package reconcile

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What comes first comes before all else, and is looked at once.
func TestWhatIsLookedAtFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
			s.put(configMap(name, "1"))
		}
		var order []string
		c, _ := newController(t, &looks{}, s, nil, func(config *Config[string], _ *Kind[string, *corev1.ConfigMap]) {
			config.Workers = 1
			config.First = func(key string) bool { return key == "e" || key == "g" }
			config.Reconcile = func(_ context.Context, key string) error {
				order = append(order, key)
				return nil
			}
		})
		if err := c.Warm(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		end := running(t, c)
		time.Sleep(time.Second)
		synctest.Wait()
		end()
		if len(order) != 8 {
			t.Fatalf("looked at: %q", order)
		}
		slices.Sort(order[:2])
		if order[0] != "e" || order[1] != "g" {
			t.Errorf("in this order: %q", order)
		}
	})
}

// What is looked at: all there is when Run begins, and from then on what changes, by the keys of
// before and after; nothing while nothing runs, nor for a change of what is not kept.
func TestWhatIsLookedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := newStore(configMap("a", "1"), configMap("b", "1")), &looks{}
		c, _ := newController(t, l, s, nil, func(_ *Config[string], kind *Kind[string, *corev1.ConfigMap]) {
			kind.From = From(s, Selector{Fields: "metadata.name=x", Labels: "y"})
			kind.Keep = func(o *corev1.ConfigMap) *corev1.ConfigMap {
				return &corev1.ConfigMap{ObjectMeta: Meta(o.ObjectMeta), Data: o.Data}
			}
			kind.Keys = func(o *corev1.ConfigMap) []string { return []string{o.Name, "data " + o.Data["data"]} }
		})
		check := func(what string, want ...string) {
			t.Helper()
			time.Sleep(time.Second)
			synctest.Wait()
			if got := l.since(); !slices.Equal(got, want) {
				t.Errorf("%s: %q, want %q", what, got, want)
			}
		}
		c.Enqueue("a")
		c.EnqueueAll()
		if err := c.Warm(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.put(configMap("c", "1"))
		check("before it runs")
		end := running(t, c)
		check("at first", "a", "b", "c", "data 1")
		s.put(configMap("b", "2"))
		check("a change", "b", "data 1", "data 2")
		labelled := configMap("b", "2")
		labelled.Labels = map[string]string{"x": "y"}
		s.put(labelled)
		check("a change of what is not kept")
		s.remove("b")
		check("a deletion", "b", "data 2")
		c.Enqueue("x", "y")
		check("what is asked for", "x", "y")
		c.EnqueueAll()
		check("all", "a", "c", "data 1")
		end()
		s.put(configMap("a", "3"))
		check("after its end")
		c.Close()
		for _, asked := range s.reads() {
			if !strings.HasSuffix(asked, " metadata.name=x y") {
				t.Errorf("it asks for %q", asked)
			}
		}
	})
}

// A key that many objects have is looked at once when all are asked for, whenever a worker takes it.
func TestAKeyOfManyObjectsIsLookedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		for i := range 2000 {
			s.put(configMap(strconv.Itoa(i), "1"))
		}
		var looked atomic.Int32
		c, _ := newController(t, &looks{}, s, nil, func(config *Config[string], kind *Kind[string, *corev1.ConfigMap]) {
			config.Reconcile = func(context.Context, string) error {
				looked.Add(1)
				return nil
			}
			kind.Keys = func(*corev1.ConfigMap) []string { return []string{"all of them"} }
		})
		end := running(t, c)
		defer end()
		synctest.Wait()
		for range 20 {
			before := looked.Load()
			c.EnqueueAll("all of them", "another")
			synctest.Wait()
			if n := looked.Load() - before; n != 2 {
				t.Errorf("looked at %d times, want 2", n)
			}
		}
	})
}

// A kind is read, by name, index and as a whole, as it is kept; one without Keys has nothing
// looked at, and one without Keep keeps all but managedFields.
func TestCacheIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := configMap("a", "1")
		a.ManagedFields, a.Labels = []metav1.ManagedFieldsEntry{{Manager: "x"}}, map[string]string{"x": "y"}
		s, l := newStore(a, configMap("b", "2")), &looks{}
		c, cached := newController(t, l, s, nil, func(_ *Config[string], kind *Kind[string, *corev1.ConfigMap]) {
			kind.Keys = nil
			kind.Indexes = map[string]func(*corev1.ConfigMap) []string{"data": func(o *corev1.ConfigMap) []string { return []string{o.Data["data"]} }}
		})
		if cached.Get("n", "a") != nil || len(cached.List()) != 0 || len(cached.By("data", "1")) != 0 {
			t.Error("it shows something before it was filled")
		}
		end := running(t, c)
		synctest.Wait()
		got := cached.Get("n", "a")
		if got == nil || got.ManagedFields != nil || got.Labels["x"] != "y" || cached.Get("n", "c") != nil || cached.Get("", "a") != nil {
			t.Errorf("it shows %v", got)
		}
		if by := cached.By("data", "2"); len(cached.List()) != 2 || len(by) != 1 || by[0].Name != "b" {
			t.Errorf("it lists %v and, by data, %v", cached.List(), by)
		}
		if keys := l.since(); len(keys) != 0 {
			t.Errorf("looked at: %q", keys)
		}
		end()
	})
}

// Meta keeps who an object is, and no more.
func TestMeta(t *testing.T) {
	now := metav1.Now()
	got := Meta(metav1.ObjectMeta{
		Name: "n", Namespace: "s", UID: "u", ResourceVersion: "7", DeletionTimestamp: &now, Labels: map[string]string{"a": "b"},
		Annotations: map[string]string{"a": "b"}, ManagedFields: []metav1.ManagedFieldsEntry{{}}, Finalizers: []string{"x"},
	})
	if got.Name != "n" || got.Namespace != "s" || got.UID != "u" || got.ResourceVersion != "7" || got.DeletionTimestamp != &now ||
		got.Labels != nil || got.Annotations != nil || got.ManagedFields != nil || got.Finalizers != nil {
		t.Errorf("kept %+v", got)
	}
}

// A kind that the API server does not know is waited for, and said once, with few requests, whether
// it is missing at first or goes while the controller runs; the rest of what it caches is there.
func TestAKindThatIsMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		s, l := newStore(configMap("a", "1")), &looks{}
		s.refuse = unknown
		c, _ := newController(t, l, s, slog.New(slog.NewTextHandler(&out, nil)), nil)
		known := Watch(c, Kind[string, *corev1.ConfigMap]{Name: "others", From: From(newStore(configMap("o", "1")), Selector{})})
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errors.New("not in time"))
		defer cancel()
		err := c.Warm(ctx)
		for _, want := range []string{"tests controller: ", "not in time", "configmaps: the API server does not know the kind"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("Warm returned %v, without %q", err, want)
			}
		}
		if known.Get("n", "o") == nil {
			t.Error("the other kind is not there")
		}
		said := func(missing, there int) {
			t.Helper()
			synctest.Wait()
			text := out.String()
			if m, k := strings.Count(text, "does not know a kind"), strings.Count(text, "knows the kind now"); m != missing || k != there || strings.Contains(text, "works again") {
				t.Errorf("said %d and %d times, want %d and %d:\n%s", m, k, missing, there, text)
			}
		}
		end := running(t, c)
		s.reads()
		time.Sleep(10 * time.Minute)
		said(1, 0)
		if n := len(s.reads()); n < 10 || n > 80 {
			t.Errorf("%d requests in ten minutes", n)
		}
		s.answer(nil)
		time.Sleep(time.Minute)
		said(1, 1)
		if got := l.since(); !slices.Equal(got, []string{"a"}) || c.Problem() != nil {
			t.Errorf("looked at %q; the problem is %v", got, c.Problem())
		}
		s.answer(unknown)
		s.reads()
		time.Sleep(10 * time.Minute)
		said(2, 1)
		if n := len(s.reads()); n < 10 || n > 80 || c.Problem() == nil {
			t.Errorf("%d requests in ten minutes; the problem is %v", n, c.Problem())
		}
		s.answer(nil)
		time.Sleep(time.Minute)
		s.put(configMap("b", "1"))
		said(2, 2)
		if got := l.since(); !slices.Equal(got, []string{"b"}) {
			t.Errorf("looked at %q", got)
		}
		end()
		c.Close()
	})
}

// A server that was away and answers that it does not know the kind is not away.
func TestAMissingKindIsAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		s.refuse = errors.New("connection refused")
		c, _ := newController(t, &looks{}, s, nil, nil)
		end := running(t, c)
		time.Sleep(time.Minute)
		s.answer(unknown)
		time.Sleep(time.Minute)
		synctest.Wait()
		if err := c.Problem(); err == nil || strings.Contains(err.Error(), "refused") {
			t.Errorf("the problem is %v", err)
		}
		end()
	})
}

// When Close returns, nothing is watched any more, and answers that were waited for are forgotten: what is warmed later begins anew.
func TestCloseLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(configMap("a", "1"))
		c, cached := newController(t, &looks{}, s, nil, nil)
		if err := c.Warm(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		cached.At("a", Ref{Namespace: "n", Name: "a"}).Behind(cached.Get("n", "a"))
		c.Close()
		if !cached.informer.Load().IsStopped() {
			t.Error("it is watched still")
		}
		if n := len(cached.answers.unseen); n > 0 {
			t.Errorf("%d answers are waited for", n)
		}
	})
}

// A right that was missing is no problem any more where the kind itself is: when it comes, the answer tells.
func TestAMissingKindNeedsNoRight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		s := newStore()
		s.refuse = apierrors.NewForbidden(maps1, "", errors.New("no right"))
		c, _ := newController(t, &looks{}, s, slog.New(slog.NewTextHandler(&out, nil)), nil)
		end := running(t, c)
		time.Sleep(time.Minute)
		if err := c.Problem(); err == nil || !strings.Contains(err.Error(), "no right") {
			t.Errorf("the problem is %v", err)
		}
		s.answer(unknown)
		time.Sleep(time.Minute)
		synctest.Wait()
		if err := c.Problem(); err == nil || strings.Contains(err.Error(), "no right") {
			t.Errorf("the problem is %v", err)
		}
		// A refusal says nothing of the kind: who asks for what there is not is refused as well.
		s.answer(apierrors.NewForbidden(maps1, "", errors.New("no right")))
		time.Sleep(time.Minute)
		synctest.Wait()
		if strings.Contains(out.String(), "knows the kind now") {
			t.Errorf("it says\n%s", &out)
		}
		end()
	})
}

// Failing is called when a key begins to fail and when the kind changes: not at each try.
func TestFailing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := newStore(configMap("a", "1")), &looks{}
		var fails []string
		var answer atomic.Pointer[apierrors.StatusError] // nil: all is well
		answer.Store(apierrors.NewForbidden(maps1, "a", errors.New("no")))
		l.do = func(context.Context, string) error {
			if err := answer.Load(); err != nil {
				return err
			}
			return nil
		}
		c, _ := newController(t, l, s, nil, func(config *Config[string], _ *Kind[string, *corev1.ConfigMap]) {
			config.Workers = 1
			config.Failing = func(key string, err error) { fails = append(fails, key+": "+string(apierrors.ReasonForError(err))) }
		})
		end := running(t, c)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if n := len(l.since()); n < 25 || n > 32 {
			t.Errorf("%d tries in ten minutes", n)
		}
		answer.Store(apierrors.NewInternalError(errors.New("no")))
		time.Sleep(time.Minute)
		answer.Store(nil)
		time.Sleep(time.Minute)
		answer.Store(apierrors.NewForbidden(maps1, "a", errors.New("no")))
		c.EnqueueAll()
		time.Sleep(time.Minute)
		synctest.Wait()
		if want := []string{"a: Forbidden", "a: InternalError", "a: Forbidden"}; !slices.Equal(fails, want) {
			t.Errorf("failing: %q, want %q", fails, want)
		}
		end()
	})
}

// What runs beside the workers begins when the caches are filled, ends with the context, and is
// waited for; what is under way is, too, and what waits in the queue is not begun.
func TestRunsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := newStore(), &looks{}
		for _, name := range strings.Split("abcdefgh", "") {
			s.put(configMap(name, "1"))
		}
		s.refuse = unknown
		l.do = func(context.Context, string) error {
			time.Sleep(3 * time.Second)
			return errors.New("because of the stop")
		}
		var out bytes.Buffer
		c, _ := newController(t, l, s, slog.New(slog.NewTextHandler(&out, nil)), nil)
		var began, ended atomic.Bool
		end := running(t, c, func(ctx context.Context) {
			began.Store(true)
			<-ctx.Done()
			time.Sleep(time.Second)
			ended.Store(true)
		})
		time.Sleep(time.Minute)
		if began.Load() {
			t.Error("what runs beside runs before the caches are filled")
		}
		s.answer(nil)
		for !began.Load() {
			time.Sleep(100 * time.Millisecond)
		}
		synctest.Wait()
		if err := c.Run(t.Context()); !errors.Is(err, ErrRunning) {
			t.Errorf("a second Run returned %v", err)
		}
		if took := end(); took < 2*time.Second || took > 3*time.Second || !ended.Load() {
			t.Errorf("its end took %v; what ran beside has ended: %v", took, ended.Load())
		}
		if n := len(l.since()); n != 4 {
			t.Errorf("%d were begun, want as many as there are workers", n)
		}
		if strings.Contains(out.String(), "reconciling fails") {
			t.Errorf("what fails because of the stop is reported:\n%s", &out)
		}
	})
}

func TestDefaults(t *testing.T) {
	if _, err := New(nil, Config[string]{Name: "tests controller"}); err == nil || !strings.Contains(err.Error(), "tests controller: ") {
		t.Errorf("made without a client: %v", err)
	}
	c, err := New(client(t), Config[string]{})
	if err != nil || c.config.Workers != 4 || c.config.Logger != slog.Default() {
		t.Errorf("%v, %+v", err, c.config)
	}
}
