package leaderelection

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"incumbent.dev/incumbent/internal/testutil/apiserver"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/leaderelection/coordination"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/admin"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// A coordinated election sets Coordinated and the name of its candidate in the configuration of the elector. An election that cannot
// be coordinated is rejected, with advice.
func TestCoordinatedElection(t *testing.T) {
	of := func(change func(*Config)) (*LeaderElection, error) {
		cfg := Config{
			Namespace: "istio-system", ElectionID: "new", Identity: "a", Revision: "canary", Remote: true, Lock: LockTypeLease,
			Coordination: &coordination.CandidateConfig{
				Strategy: coordination.DefaultRevision, BinaryVersion: "1.2.3", EmulationVersion: "1.2.0", PodUID: "u",
				Labels: map[string]string{coordination.PriorityLabel: "7"},
			},
		}
		change(&cfg)
		return New(unreachable(t), cfg)
	}
	l, err := of(func(*Config) {})
	harness.Must(t, err)
	c := l.electorConfig(l.client.Kube())
	if !c.Coordinated || c.Lock.Identity() != "a.new" || l.Status().Identity != "a.new" || l.Status().Strategy != coordination.DefaultRevision {
		t.Errorf("%+v, %+v", c, l.Status())
	}
	p := l.cfg.candidate()
	for key, want := range map[string]string{
		coordination.RevisionLabel: "canary", coordination.LocationLabel: coordination.LocationRemote, coordination.PriorityLabel: "7",
	} {
		if p.Labels[key] != want {
			t.Errorf("label %s is %q, want %q", key, p.Labels[key], want)
		}
	}
	if p.BinaryVersion != "1.2.3" || p.EmulationVersion != "1.2.0" || p.PodUID != "u" {
		t.Errorf("%+v", p)
	}
	for want, change := range map[string]func(*Config){
		"requires Lock LockTypeLease": func(c *Config) { c.Lock = LockTypeConfigMap },
		"finish the migration":        func(c *Config) { c.Predecessor = &Predecessor{Name: "old", Lock: LockTypeConfigMap} },
		"do not preempt":              func(c *Config) { c.PreemptImmediately = true },
		"use incumbent.dev/Defau":     func(c *Config) { c.Coordination.Strategy = "Zone" },
		"binary version":              func(c *Config) { c.Coordination.BinaryVersion = "v1.2" },
	} {
		if _, err := of(change); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// If the API server does not serve LeaseCandidates, candidates do not wait for a coordinator. When it serves them, they do. During a
// cool-down that an operator requested, and while its fitness check fails, a candidate is published as unfit.
func TestCoordinatedElection_Unserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var served, ill atomic.Bool
		server := apiserver.New()
		server.On(func(r apiserver.Request) apiserver.Fault {
			if r.Resource == "leasecandidates" && !served.Load() {
				return apiserver.Fault{Err: apierrors.NewGenericServerResponse(http.StatusNotFound, "", schema.GroupResource{}, "", "", 0, false)}
			}
			return apiserver.Fault{}
		})
		run := func(identity string) (l *LeaderElection, stop func()) {
			l, err := New(unreachable(t), Config{
				Namespace: "istio-system", ElectionID: "e", Identity: identity, Lock: LockTypeLease, LockClient: server.Kube(),
				Logger: slog.New(slog.DiscardHandler), Clock: bubbleClock(),
				Coordination: &coordination.CandidateConfig{Strategy: coordination.DefaultRevision, BinaryVersion: "1.0.0"},
			})
			harness.Must(t, err)
			l.AddFitnessCheck(func(context.Context) error {
				if ill.Load() {
					return errPlay
				}
				return nil
			})
			return l, harness.Background(t, l.RunContext)
		}
		a, stop := run("a")
		time.Sleep(time.Second)
		if s := a.Status(); !a.IsLeader() || s.Uncoordinated != "the API server does not serve LeaseCandidates" || s.Holder != "a.e" {
			t.Errorf("not served: %+v", s)
		}
		served.Store(true)
		time.Sleep(time.Minute)
		if s := a.Status(); !a.IsLeader() || s.Uncoordinated != "" {
			t.Errorf("served again: %+v", s)
		}
		stop()
		b, stop := run("b")
		defer stop()
		time.Sleep(time.Minute)
		if s := b.Status(); b.IsLeader() || s.Uncoordinated != "" {
			t.Errorf("served, no coordinator: %+v", s)
		}
		c, stopC := run("c")
		time.Sleep(time.Minute)
		alone := 0
		for _, l := range []*LeaderElection{b, c} {
			if s := l.Status(); s.Uncoordinated == NoCoordinator && s.Holder != "" {
				alone++
			}
		}
		if alone != 2 || b.IsLeader() == c.IsLeader() {
			t.Errorf("no coordinator for three leases: %+v, %+v", b.Status(), c.Status())
		}
		stopC()
		time.Sleep(time.Second)
		if !b.IsLeader() {
			t.Errorf("released: %+v", b.Status())
		}
		b.SetCoordinatorAbsent(true)
		time.Sleep(time.Second)
		if s := b.Status(); !b.IsLeader() || s.Uncoordinated != "the coordinator is absent" {
			t.Errorf("no coordinator: %+v", s)
		}
		coolDown(t, server, b)
		ill.Store(true)
		passes(time.Minute)
		if !publishedUnfit(server, "b.e") {
			t.Error("published as fit while the fitness check fails")
		}
	})
}

// publishedUnfit reports whether a candidate is published as unfit, or not published.
func publishedUnfit(server *apiserver.Server, name string) bool {
	var c coordinationv1beta1.LeaseCandidate
	return !server.Get("leasecandidates", "istio-system", name, &c) || c.Labels[coordination.FitLabel] == "false"
}

// coolDown steps the leader b down, which is published as unfit until its cool-down ends. Otherwise the coordinator would name it again,
// and it would release the lock each time.
func coolDown(t *testing.T, server *apiserver.Server, b *LeaderElection) {
	t.Helper()
	unfit := func() bool { return publishedUnfit(server, "b.e") }
	operator := admin.Operator{Requester: "test", Lock: &k8sresourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: "istio-system", Name: "e"}, Client: server.Kube().CoordinationV1(),
	}}
	err := operator.StepDown(t.Context(), "test", 10*time.Second)
	passes(time.Second)
	if err != nil || b.IsLeader() || !unfit() {
		t.Errorf("cool-down: leads %v, published as unfit %v, error %v", b.IsLeader(), unfit(), err)
	}
	passes(time.Minute)
	if !b.IsLeader() || unfit() {
		t.Errorf("after the cool-down: leads %v, published as unfit %v", b.IsLeader(), unfit())
	}
}
