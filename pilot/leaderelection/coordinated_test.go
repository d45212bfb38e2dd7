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

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"incumbent.dev/incumbent/internal/testutil/apiserver"
	"incumbent.dev/incumbent/pilot/leaderelection/coordination"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
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
	if err != nil {
		t.Fatal(err)
	}
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

// If the API server does not serve LeaseCandidates, candidates do not wait for a coordinator. When it serves them, they do.
func TestCoordinatedElection_Unserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		epoch := time.Now()
		var served atomic.Bool
		server := apiserver.New()
		server.On(func(r apiserver.Request) apiserver.Fault {
			if r.Resource == "leasecandidates" && !served.Load() {
				return apiserver.Fault{Err: apierrors.NewGenericServerResponse(http.StatusNotFound, "", schema.GroupResource{}, "", "", 0, false)}
			}
			return apiserver.Fault{}
		})
		run := func(identity string) (l *LeaderElection, stop func()) {
			l, err := New(unreachable(t), Config{
				Namespace: "istio-system", ElectionID: "e", Identity: identity, Lock: LockTypeLease, LockClient: server.Kube(t),
				Logger: slog.New(slog.DiscardHandler), Clock: k8sleaderelection.NewClock(func() int64 { return int64(time.Since(epoch)) }),
				Coordination: &coordination.CandidateConfig{Strategy: coordination.DefaultRevision, BinaryVersion: "1.0.0"},
			})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- l.RunContext(ctx) }()
			return l, func() {
				cancel()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			}
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
		b.SetCoordinatorAbsent(true)
		time.Sleep(time.Second)
		if s := b.Status(); !b.IsLeader() || s.Uncoordinated != "the coordinator is absent" {
			t.Errorf("no coordinator: %+v", s)
		}
	})
}
