package reconcile

import (
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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"incumbent.dev/incumbent/internal/testutil/harness"
)

var errForbidden = apierrors.NewForbidden(configMaps, "", errors.New("no right"))

func TestCache_Read(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := configMap("a", "1")
		a.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "x"}}
		a.Labels = map[string]string{"x": "y"}
		r := &recorder{}
		c, cached := newController(t, r, newStore(a, configMap("b", "2")), nil, func(_ *Config[string], kind *Kind[string, *corev1.ConfigMap]) {
			kind.Keys = nil
			kind.Indexes = map[string]func(*corev1.ConfigMap) []string{"data": func(o *corev1.ConfigMap) []string { return []string{o.Data["data"]} }}
		})
		if cached.Get("n", "a") != nil || len(cached.List()) != 0 || len(cached.By("data", "1")) != 0 {
			t.Error("the cache has objects before the start")
		}
		stop := start(t, c)
		synctest.Wait()
		if got := cached.Get("n", "a"); got == nil || got.ManagedFields != nil || got.Labels["x"] != "y" || cached.Get("n", "c") != nil || cached.Get("", "a") != nil {
			t.Errorf("Get returned %v", got)
		}
		if by := cached.By("data", "2"); len(cached.List()) != 2 || len(by) != 1 || by[0].Name != "b" {
			t.Errorf("List returned %v, By returned %v", cached.List(), by)
		}
		if keys := r.since(); len(keys) != 0 {
			t.Errorf("reconciled %q", keys)
		}
		clusterScoped := configMap("cluster", "1")
		clusterScoped.Namespace = ""
		if err := cached.store().Add(clusterScoped); err != nil || cached.Get("", "cluster") != clusterScoped {
			t.Errorf("%v, Get returned %v", err, cached.Get("", "cluster"))
		}
		stop()
	})
}

func TestCache_MissedDeletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{}
		c, cached := newController(t, r, newStore(), nil)
		stop := start(t, c)
		synctest.Wait()
		cached.shown(nil, cache.DeletedFinalStateUnknown{Key: "n/gone", Obj: configMap("gone", "1")})
		cached.shown(nil, cache.DeletedFinalStateUnknown{Key: "n/lost"})
		synctest.Wait()
		if got := r.since(); !slices.Equal(got, []string{"gone"}) {
			t.Errorf("reconciled %q", got)
		}
		stop()
	})
}

// A kind that is not served is logged once and causes few requests, at the start and later.
func TestCache_KindNotServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log harness.Log
		s := newStore(configMap("a", "1"))
		r := &recorder{}
		s.failReads(notServed)
		c, _ := newController(t, r, s, slog.New(slog.NewTextHandler(&log, nil)))
		served := Watch(c, Kind[string, *corev1.ConfigMap]{Name: "others", From: From(newStore(configMap("o", "1")), Selector{})})
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errors.New("not in time"))
		defer cancel()
		err := c.Warm(ctx)
		for _, want := range []string{"tests controller: ", "not in time", "discover configmaps: resource kind is not served"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("Warm returned %v, want %q", err, want)
			}
		}
		if served.Get("n", "o") == nil {
			t.Error("the other kind is not cached")
		}
		stop := start(t, c)
		for round, want := range [][]string{{"a"}, {"b"}} {
			s.reads()
			time.Sleep(10 * time.Minute)
			if n := len(s.reads()); n < 10 || n > 80 || c.Problem() == nil {
				t.Errorf("%d requests in ten minutes; problem: %v", n, c.Problem())
			}
			s.failReads(nil)
			if round == 1 {
				s.put(configMap("b", "1"))
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			missing := log.Count("resource kind is not served by the API server; waiting")
			if there := log.Count("API request succeeded again"); missing != round+1 || there != round+1 {
				t.Errorf("logged %d and %d times, want %d:\n%s", missing, there, round+1, &log)
			}
			if got := r.since(); !slices.Equal(got, want) || c.Problem() != nil {
				t.Errorf("reconciled %q, want %q; problem: %v", got, want, c.Problem())
			}
			s.failReads(notServed)
		}
		stop()
		c.Close()
	})
}

// An optional kind that is not served has no objects and blocks nothing. Each change is logged once.
func TestCache_OptionalKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log harness.Log
		s := newStore(configMap("a", "1"))
		s.failReads(notServed)
		r := &recorder{}
		c, cached := newController(t, r, s, slog.New(slog.NewTextHandler(&log, nil)), func(_ *Config[string], kind *Kind[string, *corev1.ConfigMap]) {
			kind.Optional = true
		})
		stop := start(t, c)
		synctest.Wait()
		for round, want := range []int{0, 1, 0, 1} {
			if err := c.Problem(); err != nil || len(cached.List()) != want || cached.Served() != (want > 0) {
				t.Errorf("round %d: problem %v, objects %v, served %t", round, err, cached.List(), cached.Served())
			}
			if got := r.since(); (len(got) > 0) != (round > 0) {
				t.Errorf("round %d: reconciled %q", round, got)
			}
			missing := log.Count("resource kind is not served by the API server; its objects count as missing")
			if there := log.Count("resource kind is served now"); missing != round/2+1 || there != (round+1)/2 {
				t.Errorf("round %d: logged %d and %d times:\n%s", round, missing, there, &log)
			}
			if want == 0 {
				s.failReads(nil)
			} else {
				s.failReads(notServed)
			}
			time.Sleep(2 * time.Minute)
			synctest.Wait()
		}
		stop()
	})
}

// The response that a kind is not served ends earlier problems. A later rejection does not show
// that the kind is served.
func TestCache_KindNotServedAfterError(t *testing.T) {
	for name, before := range map[string]error{"connection": errors.New("connection refused"), "permission": errForbidden} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log harness.Log
				s := newStore()
				c, _ := newController(t, &recorder{}, s, slog.New(slog.NewTextHandler(&log, nil)))
				stop := start(t, c)
				for _, err := range []error{before, notServed, errForbidden} {
					s.failReads(err)
					time.Sleep(time.Minute)
					synctest.Wait()
					if problem := c.Problem(); problem == nil || err == notServed && strings.Contains(problem.Error(), before.Error()) {
						t.Errorf("after %v the problem is %v", err, problem)
					}
				}
				if log.Count("succeeded again") != 0 {
					t.Errorf("log:\n%s", &log)
				}
				stop()
			})
		})
	}
}

func TestCache_PermissionMissing(t *testing.T) {
	var log harness.Log
	c, cached := newController(t, &recorder{}, newStore(), slog.New(slog.NewTextHandler(&log, nil)))
	cached.tried("list", errForbidden)
	if c.Problem() == nil || log.Count("nothing is written") != 1 {
		t.Errorf("problem: %v; log:\n%s", c.Problem(), &log)
	}
	cached.watched()
	if err := c.Problem(); err != nil {
		t.Errorf("problem with a watch: %v", err)
	}
	cached.tried("watch", errForbidden)
	if log.Count("list periodically") != 1 {
		t.Errorf("log:\n%s", &log)
	}
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(configMap("a", "1"))
		c, cached := newController(t, &recorder{}, s, nil)
		for range 2 {
			harness.Must(t, c.Warm(t.Context()))
			informer := cached.informer.Load()
			cached.At("a", Ref{Namespace: "n", Name: "a"}).Behind(nil)
			cached.answers.add(types.NamespacedName{Name: "b"}, &answer[string, *corev1.ConfigMap]{})
			cached.contests.wrote(types.NamespacedName{Name: "a"}, "", "a", []byte(`{"a":1}`))
			c.Close()
			if !informer.IsStopped() || len(cached.answers.unseen) != 0 || len(cached.contests.of) != 0 {
				t.Errorf("after Close: stopped %v, %d answers, %d contests", informer.IsStopped(), len(cached.answers.unseen), len(cached.contests.of))
			}
			c.Close()
			synctest.Wait()
		}
		if s.Watching() > 0 {
			t.Error("a watch remains open")
		}
		if got := s.reads(); len(got) != 2 {
			t.Errorf("requests: %q", got)
		}
	})
}
