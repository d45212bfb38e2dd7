package coordination

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"

	"incumbent.dev/incumbent/internal/testutil/apiserver"
	"incumbent.dev/incumbent/internal/testutil/harness"
)

func candidateOf(name string) *coordinationv1beta1.LeaseCandidate {
	return &coordinationv1beta1.LeaseCandidate{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "n"},
		Spec:       coordinationv1beta1.LeaseCandidateSpec{LeaseName: "x", BinaryVersion: "1.0.0", Strategy: DefaultRevision},
	}
}

// controllerOf returns a Controller that is not started.
func controllerOf(t *testing.T, config *rest.Config) *Controller {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	harness.Must(t, err)
	c, err := New(Config{
		Client: client, Namespace: "n", Logger: slog.New(slog.DiscardHandler),
		Situation: func() (Situation, bool) { return Situation{DefaultRevision: "r"}, true },
	})
	harness.Must(t, err)
	return c
}

// A new term counts the leader's lease from when the process saw its last renewal, also before the term.
func TestSightings_LeaseAgeBeforeTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lease := &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: "x", UID: "l", ResourceVersion: "1"},
			Spec: coordinationv1.LeaseSpec{
				Strategy: new(coordinationv1.CoordinatedLeaseStrategy(DefaultRevision)), HolderIdentity: new("a"), LeaseDurationSeconds: new(int32(15)),
				AcquireTime: microTime(0), RenewTime: microTime(time.Second),
			},
		}
		e := election{Lease: lease, Candidates: []*coordinationv1beta1.LeaseCandidate{candidateOf("b")}}
		c := controllerOf(t, &rest.Config{Host: "http://unused"})
		wantHolder := func(when string, o *observer, want string) {
			t.Helper()
			got := ""
			o.answered(time.Now(), e)
			if p := o.plan(time.Now(), time.Now(), e, Own()); p.Lease != nil {
				got = *p.Lease.Spec.HolderIdentity
			}
			if got != want {
				t.Errorf("%s: planned holder %q, want %q", when, got, want)
			}
		}
		watched := func(leases ...*coordinationv1.Lease) { c.setLeases(leases) }
		watched(lease)
		time.Sleep(14 * time.Second)
		watched(lease.DeepCopy()) // read again
		wantHolder("after 14 s of 15 s", c.observer("x"), "a")
		time.Sleep(time.Second)
		wantHolder("after the lease", c.observer("x"), "b")
		wantHolder("new observer", &observer{}, "a")
		renewed := lease.DeepCopy()
		renewed.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
		watched(renewed)
		e.Lease = renewed
		wantHolder("after a renewal", c.observer("x"), "a")
		watched()
		if o := c.observer("x"); o.lease != (leaseState{}) || len(c.sightings) > 0 {
			t.Errorf("state of a deleted lock: %+v", o.lease)
		}
	})
}

// The elections of an added, changed, moved or deleted candidate are enqueued, and no others.
func TestSetCandidates_Enqueues(t *testing.T) {
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	defer queue.ShutDown()
	c := controllerOf(t, &rest.Config{Host: "http://unused"})
	c.queue = queue
	candidate := func(name, election, version string) *coordinationv1beta1.LeaseCandidate {
		object := candidateOf(name)
		object.Spec.LeaseName, object.ResourceVersion = election, version
		return object
	}
	for i, step := range []struct {
		now  []*coordinationv1beta1.LeaseCandidate
		want string
	}{
		{[]*coordinationv1beta1.LeaseCandidate{candidate("a", "x", "1"), candidate("b", "y", "2")}, "x y"},
		{[]*coordinationv1beta1.LeaseCandidate{candidate("a", "x", "1"), candidate("b", "y", "2")}, ""},
		{[]*coordinationv1beta1.LeaseCandidate{candidate("a", "x", "1"), candidate("b", "y", "3")}, "y"},
		{[]*coordinationv1beta1.LeaseCandidate{candidate("a", "z", "4"), candidate("b", "y", "3")}, "x z"},
		{[]*coordinationv1beta1.LeaseCandidate{candidate("a", "z", "4")}, "y"},
		{nil, "z"},
	} {
		c.setCandidates(step.now)
		var got []string
		for queue.Len() > 0 {
			name, _ := queue.Get()
			queue.Done(name)
			got = append(got, name)
		}
		slices.Sort(got)
		if got := strings.Join(got, " "); got != step.want {
			t.Errorf("step %d: %q enqueued, want %q", i, got, step.want)
		}
	}
}

// While the API server does not serve LeaseCandidates, an election has no candidates, although the cache has the former ones.
func TestElection_Unserved(t *testing.T) {
	c := controllerOf(t, &rest.Config{Host: "http://unused"})
	w := newTerm(c, nil)
	c.setCandidates([]*coordinationv1beta1.LeaseCandidate{candidateOf("a.x")})
	var log bytes.Buffer
	c.cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	resource := schema.GroupResource{Resource: "leasecandidates"}
	noStatus := apierrors.NewGenericServerResponse(http.StatusNotFound, "GET", resource, "", "404 page not found", 0, true)
	noKind := apierrors.NewGenericServerResponse(http.StatusNotFound, "", schema.GroupResource{}, "", "", 0, false)
	missing := apierrors.NewNotFound(resource, "n")
	for _, step := range []struct {
		err        error
		candidates int
	}{{nil, 1}, {noStatus, 0}, {noKind, 0}, {errors.New("connection refused"), 0}, {nil, 1}, {missing, 1}, {noKind, 0}} {
		c.recordServed(step.err)
		if e := w.election("x", Situation{}); len(e.Candidates) != step.candidates {
			t.Errorf("after %v: %d candidates, want %d", step.err, len(e.Candidates), step.candidates)
		}
	}
	if text := log.String(); strings.Count(text, "\n") != 3 || !strings.Contains(text, "does not serve LeaseCandidates") {
		t.Errorf("log:\n%s", text)
	}
}

// A process that may not list LeaseCandidates does not coordinate until it may, and logs that once.
func TestWarm_WithoutPermission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, log := apiserver.New(), &harness.Log{}
		var allowed atomic.Bool
		server.On(func(r apiserver.Request) apiserver.Fault {
			if r.Resource != "leasecandidates" || allowed.Load() {
				return apiserver.Fault{}
			}
			return apiserver.Fault{Err: apierrors.NewForbidden(schema.GroupResource{Resource: r.Resource}, "", errors.New("no right"))}
		})
		c := controllerOf(t, server.Config())
		c.cfg.Logger = slog.New(slog.NewTextHandler(log, nil))
		defer c.Close()
		warm := make(chan error, 1)
		go func() { warm <- c.Warm(t.Context()) }()
		time.Sleep(10 * time.Minute)
		if synctest.Wait(); len(warm) > 0 {
			t.Error("Warm returned without the candidates")
		}
		if n := log.Count("not coordinating until it succeeds"); n != 1 {
			t.Errorf("logged %d times:\n%s", n, log)
		}
		allowed.Store(true)
		if err := <-warm; err != nil {
			t.Error(err)
		}
	})
}

// The coordinator uses annotations while the API server drops the fields of the feature, which can be enabled and disabled.
func TestRecordFields(t *testing.T) {
	c, log := controllerOf(t, &rest.Config{Host: "http://unused"}), &harness.Log{}
	c.cfg.Logger = slog.New(slog.NewTextHandler(log, nil))
	sent := &coordinationv1.Lease{Spec: coordinatedSpec}
	for i, step := range []struct {
		sent, stored *coordinationv1.Lease
		annotate     bool
	}{{sent, sent, false}, {sent, &coordinationv1.Lease{}, true}, {&coordinationv1.Lease{}, &coordinationv1.Lease{}, true}, {sent, sent, false}, {sent, &coordinationv1.Lease{}, true}} {
		c.recordFields(step.sent, step.stored)
		if e := newTerm(c, nil).election("x", Situation{}); e.Annotate != step.annotate {
			t.Errorf("step %d: annotations %v", i, e.Annotate)
		}
	}
	if log.Count("using annotations") != 2 {
		t.Errorf("log:\n%s", log)
	}
}
