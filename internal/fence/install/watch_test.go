package install

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/atomic"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"incumbent.dev/incumbent/internal/fence"
	"incumbent.dev/incumbent/internal/testutil/apiserver"
	"incumbent.dev/incumbent/internal/testutil/harness"
)

func TestWatch_CannotStart(t *testing.T) {
	for _, verb := range []string{"list", "watch"} {
		for resource, kind := range map[string]string{bothPolicies: policyKind, bothBindings: bindingKind} {
			inWatch(t, func(w *watching) { w.fail(verb, resource, errAway) }, func(t *testing.T, w *watching) {
				if w.log.Count("level=WARN") != 1 || w.log.Count("level=WARN", `verb="`+verb+` `+kind+`"`, errAway.Error()) != 1 {
					t.Errorf("%s %s: logged\n%s", verb, resource, w.log.String())
				}
			})
		}
	}
}

func TestWatch_ReportsChanges(t *testing.T) {
	labelled := policyNamed("copied-by-hand", 1)
	labelled.Labels = map[string]string{fence.SetLabel: "s"}
	recreated := policyNamed(fence.PolicyPrefix+"a", 1)
	recreated.UID = "another"
	for name, x := range map[string]struct {
		put    *admissionv1.ValidatingAdmissionPolicy
		delete string
		want   int32
	}{
		"created":             {put: policyNamed(fence.PolicyPrefix+"b", 1), want: 2},
		"changed":             {put: policyNamed(fence.PolicyPrefix+"a", 2), want: 2},
		"recreated":           {put: recreated, want: 2},
		"deleted":             {delete: fence.PolicyPrefix + "a", want: 2},
		"by its label":        {put: labelled, want: 2},
		"status":              {put: policyNamed(fence.PolicyPrefix+"a", 1)},
		"of no fence":         {put: policyNamed("another", 2)},
		"deleted of no fence": {delete: "another"},
	} {
		t.Run(name, func(t *testing.T) {
			inWatch(t, nil, func(t *testing.T, w *watching) {
				w.expect(t, "at the start", 0, 1)
				w.Delete(bothPolicies, "", x.delete)
				if x.put != nil {
					w.Put(x.put)
				}
				w.expect(t, "immediately", x.want/2, 1)
				pass(loadTime - time.Millisecond)
				w.expect(t, "before API servers have loaded it", x.want/2, 1)
				pass(time.Minute)
				w.expect(t, "afterwards", x.want, 1)
				if x.put != nil {
					w.Put(x.put)
					w.expect(t, "the same event again", x.want, 1)
				}
			})
		})
	}
	inWatch(t, nil, func(t *testing.T, w *watching) {
		w.Put(&admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: fence.PolicyPrefix + "a"}})
		w.expect(t, "a binding", 1, 1)
	})
}

// Package watch tests when a watch starts again.
func TestWatch_Restarts(t *testing.T) {
	inWatch(t, nil, func(t *testing.T, w *watching) {
		w.EndWatches()
		pass(time.Minute)
		w.expect(t, "after the end of a watch", 0, 2)
		w.SetWatchDelay(time.Hour) // the watch ends before it shows changes
		w.Put(policyNamed("yet another", 1))
		w.ExpireWatches()
		pass(time.Minute)
		w.expect(t, "after an error event", 0, 3)
		w.Delete(bothPolicies, "", fence.PolicyPrefix+"a")
		w.EndWatches()
		pass(time.Minute)
		w.expect(t, "deleted in between", 2, 4)
		w.Put(policyNamed(fence.PolicyPrefix+"a", 1))
		w.EndWatches()
		pass(time.Minute)
		w.expect(t, "exists again", 4, 5)
	})
}

func policyNamed(name string, generation int64) *admissionv1.ValidatingAdmissionPolicy {
	return &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: generation, UID: types.UID("u-" + name)}}
}

// watching is an API server with a Watch of its policies.
type watching struct {
	*apiserver.Server
	log     harness.Log
	changes atomic.Int32
	lists   int // of policies
}

// fail makes one kind of request fail.
func (w *watching) fail(verb, resource string, err error) {
	w.On(func(r apiserver.Request) apiserver.Fault {
		if r.Verb == verb && r.Resource == resource {
			return apiserver.Fault{Err: err}
		}
		return apiserver.Fault{}
	})
}

// inWatch runs f while a Watch runs, after an optional preparation.
func inWatch(t *testing.T, prepare func(w *watching), f func(t *testing.T, w *watching)) {
	synctest.Test(t, func(t *testing.T) {
		w := &watching{Server: apiserver.New(policyNamed(fence.PolicyPrefix+"a", 1), policyNamed("another", 1))}
		if prepare != nil {
			prepare(w)
		}
		stop := harness.Background(t, func(ctx context.Context) error {
			Watch(ctx, w.Kube(), func() { w.changes.Inc() }, slog.New(slog.NewTextHandler(&w.log, nil)))
			return nil
		})
		pass(0)
		f(t, w)
		stop()
		pass(0)
		if n := w.Watching(); n > 0 {
			t.Errorf("%d watches stay open", n)
		}
	})
}

var pass = harness.Pass

// expect compares the calls of changed and the lists of policies. No failure is logged.
func (w *watching) expect(t *testing.T, when string, changes int32, lists int) {
	t.Helper()
	pass(0)
	for _, r := range w.Requests() {
		if r.Verb == "list" && r.Resource == bothPolicies {
			w.lists++
		}
	}
	if logged := w.log.Count("level=WARN"); w.changes.Load() != changes || w.lists != lists || logged > 0 {
		t.Errorf("%s: %d changes, %d lists, %d failures; want %d, %d, 0", when, w.changes.Load(), w.lists, logged, changes, lists)
	}
}
