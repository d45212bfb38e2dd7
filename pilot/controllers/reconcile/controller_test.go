package reconcile

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/testutil/apiserver"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pkg/kube"
)

func TestController_First(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		const all = "abcdefghijklmnopqrstuvwxyz"
		for _, name := range strings.Split(all, "") {
			s.put(configMap(name, "1"))
		}
		r := &recorder{result: func(context.Context, string) error {
			time.Sleep(time.Second)
			return nil
		}}
		c, _ := newController(t, r, s, nil, func(config *Config[string], _ *Kind[string, *corev1.ConfigMap]) {
			config.First = func(key string) bool { return key == "e" || key == "g" }
		})
		harness.Must(t, c.Warm(t.Context()))
		defer c.Close()
		stop := start(t, c)
		synctest.Wait()
		if first := r.since(); len(first) != workers || !slices.Contains(first, "e") || !slices.Contains(first, "g") {
			t.Errorf("first keys: %q", first)
		}
		time.Sleep(time.Minute)
		stop()
		if n := len(r.since()); n != len(all)-workers {
			t.Errorf("%d keys later", n)
		}
	})
}

func TestController_Keys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(configMap("a", "1"), configMap("b", "1"))
		r := &recorder{}
		c, _ := newController(t, r, s, nil, func(_ *Config[string], kind *Kind[string, *corev1.ConfigMap]) {
			kind.From = From(s, Selector{Fields: "metadata.namespace=n", Labels: "!none"})
			kind.Keep = func(o *corev1.ConfigMap) *corev1.ConfigMap {
				return &corev1.ConfigMap{ObjectMeta: Meta(o.ObjectMeta), Data: o.Data}
			}
			kind.Keys = func(o *corev1.ConfigMap) []string { return []string{o.Name, "data " + o.Data["data"]} }
		})
		check := func(what string, want ...string) {
			t.Helper()
			time.Sleep(time.Second)
			synctest.Wait()
			if got := r.since(); !slices.Equal(got, want) {
				t.Errorf("%s: reconciled %q, want %q", what, got, want)
			}
		}
		c.Enqueue("a")
		c.EnqueueAll()
		harness.Must(t, c.Warm(t.Context()))
		s.put(configMap("c", "1"))
		check("before Run")
		stop := start(t, c)
		check("start", "a", "b", "c", "data 1")
		s.put(configMap("b", "2"))
		check("change", "b", "data 1", "data 2")
		labelled := configMap("b", "2")
		labelled.Labels = map[string]string{"x": "y"}
		s.put(labelled)
		check("change of a dropped field")
		s.remove("b")
		check("deletion", "b", "data 2")
		c.Enqueue("x", "y")
		check("Enqueue", "x", "y")
		c.EnqueueAll()
		check("EnqueueAll", "a", "c", "data 1")
		stop()
		s.put(configMap("a", "3"))
		check("after the stop")
		c.Close()
		for _, request := range s.reads() {
			if !strings.HasSuffix(request, " metadata.namespace=n !none") {
				t.Errorf("request %q", request)
			}
		}
	})
}

// A failing key is retried with back-off. Failing is called for each new reason.
func TestController_Failing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		forbidden := apierrors.NewForbidden(configMaps, "a", errors.New("no"))
		var result atomic.Pointer[apierrors.StatusError]
		result.Store(forbidden)
		var mu sync.Mutex
		var fails []string
		var attempts []time.Time
		c, _ := newController(t, &recorder{}, newStore(configMap("a", "1")), nil, func(config *Config[string], _ *Kind[string, *corev1.ConfigMap]) {
			config.Reconcile = func(context.Context, string) error {
				mu.Lock()
				attempts = append(attempts, time.Now())
				mu.Unlock()
				if err := result.Load(); err != nil {
					return err
				}
				return nil
			}
			config.Failing = func(key string, err error) { fails = append(fails, key+": "+string(apierrors.ReasonForError(err))) }
		})
		checkDelays := func() {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			want := firstRetry
			for i := range attempts[1:] {
				if got := attempts[i+1].Sub(attempts[i]); got != want {
					t.Errorf("delay %d is %v, want %v", i, got, want)
				}
				want = min(2*want, lastRetry)
			}
		}
		stop := start(t, c)
		time.Sleep(10 * time.Minute)
		checkDelays()
		mu.Lock()
		if len(attempts) < 25 {
			t.Errorf("%d attempts in ten minutes", len(attempts))
		}
		mu.Unlock()
		result.Store(apierrors.NewInternalError(errors.New("no")))
		time.Sleep(time.Minute)
		result.Store(nil)
		time.Sleep(time.Minute)
		mu.Lock()
		attempts = nil
		mu.Unlock()
		result.Store(forbidden)
		c.EnqueueAll()
		time.Sleep(time.Minute)
		checkDelays()
		if want := []string{"a: Forbidden", "a: InternalError", "a: Forbidden"}; !slices.Equal(fails, want) {
			t.Errorf("Failing was called with %q, want %q", fails, want)
		}
		stop()
	})
}

func TestController_Await(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ready := make(chan struct{})
		for _, becomesReady := range []bool{false, true} {
			r := &recorder{}
			c, _ := newController(t, r, newStore(configMap("a", "1")), nil, func(config *Config[string], _ *Kind[string, *corev1.ConfigMap]) {
				config.Await = func(ctx context.Context) {
					select {
					case <-ready:
					case <-ctx.Done():
					}
				}
			})
			stop := start(t, c)
			synctest.Wait()
			if got := r.since(); len(got) > 0 {
				t.Errorf("reconciled before Await returned: %q", got)
			}
			if becomesReady {
				close(ready)
				synctest.Wait()
			}
			stop()
			if got := r.since(); slices.Equal(got, []string{"a"}) != becomesReady {
				t.Errorf("ready %v: reconciled %q", becomesReady, got)
			}
		}
	})
}

// Background functions start after the caches are filled. A stop waits for them and for active
// reconciles, and starts no further reconcile.
func TestRun_Stop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		for _, name := range strings.Split("abcdefgh", "") {
			s.put(configMap(name, "1"))
		}
		s.failReads(notServed)
		r := &recorder{result: func(context.Context, string) error {
			time.Sleep(3 * time.Second)
			return errors.New("because of the stop")
		}}
		var log harness.Log
		c, _ := newController(t, r, s, slog.New(slog.NewTextHandler(&log, nil)))
		var began, ended atomic.Bool
		c.config.Background = func(ctx context.Context) {
			began.Store(true)
			<-ctx.Done()
			time.Sleep(time.Second)
			ended.Store(true)
		}
		stop := start(t, c)
		time.Sleep(time.Minute)
		if began.Load() {
			t.Error("the background function started before the caches were filled")
		}
		s.failReads(nil)
		for !began.Load() {
			time.Sleep(100 * time.Millisecond)
		}
		synctest.Wait()
		if err := c.Run(t.Context()); !errors.Is(err, ErrRunning) {
			t.Errorf("second Run returned %v", err)
		}
		if took := stop(); took < 2*time.Second || took > 3*time.Second || !ended.Load() {
			t.Errorf("the stop took %v; background function ended: %v", took, ended.Load())
		}
		if n := len(r.since()); n != workers {
			t.Errorf("%d reconciles, want %d", n, workers)
		}
		if log.Count("reconcile failed") != 0 {
			t.Errorf("an error of the stop is logged:\n%s", &log)
		}
	})
}

// A stop waits for the response to a write, but at most writeLimit.
func TestRun_StopWithoutResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := apiserver.New()
		server.On(func(apiserver.Request) apiserver.Fault { return apiserver.Fault{Hang: true} })
		deaf, err := kube.NewClient(server.Config())
		harness.Must(t, err)
		var c *Controller[string]
		c, err = New(deaf, Config[string]{Reconcile: func(ctx context.Context, key string) error {
			_, err := c.Client().Kube().CoreV1().ConfigMaps("n").Create(ctx, configMap(key, "1"), metav1.CreateOptions{})
			return err
		}})
		harness.Must(t, err)
		Watch(c, Kind[string, *corev1.ConfigMap]{Name: "configmaps", From: From(newStore(configMap("a", "1")), Selector{}),
			Keys: func(o *corev1.ConfigMap) []string { return []string{o.Name} }})
		stop := start(t, c)
		time.Sleep(time.Second)
		if took := stop(); took != writeLimit-time.Second {
			t.Errorf("the stop took %v, want %v", took, writeLimit-time.Second)
		}
	})
}

func TestConfigDefaults(t *testing.T) {
	if _, err := New(nil, Config[string]{Name: "tests controller"}); err == nil || !strings.Contains(err.Error(), "tests controller: ") {
		t.Errorf("New without a client returned %v", err)
	}
	c, err := New(client(t), Config[string]{})
	if err != nil || c.config.Logger != slog.Default() {
		t.Errorf("%v, %+v", err, c.config)
	}
}
