package inspect

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"incumbent.dev/incumbent/internal/fence"
	"incumbent.dev/incumbent/internal/testutil/golden"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

var observedAt = time.Date(2026, 1, 2, 3, 5, 8, 0, time.UTC)

// statusOf returns the status of candidate a, whose elector has seen a lock.
func statusOf(l Lock, change func(*leaderelection.Status)) leaderelection.Status {
	s := leaderelection.Status{
		ElectionID: l.Name, Namespace: l.Namespace, Lock: l.Name, LockType: "lease", Identity: "a", Key: "stable", Ranked: true, Validity: 15 * time.Second,
		Status: k8sleaderelection.Status{Phase: "following", Known: true, Object: l.Snapshot.Object, Holder: l.Snapshot.Record.HolderIdentity, Acting: true},
	}
	if l.Kind == ConfigMap {
		s.LockType = "configmap"
	}
	change(&s)
	return s
}

func TestFromStatus(t *testing.T) {
	const nominated = "incumbent.dev/nominated"
	none := func(*leaderelection.Status) {}
	idle := func(s *leaderelection.Status) { s.Acting = false }
	held := func(holder string, notes ...string) Lock {
		return configMap(t, "e", recordOf(holder, "^stable", 3), notes...)
	}
	for name, c := range map[string]struct {
		lock   Lock
		change func(*leaderelection.Status)
		want   string
	}{
		"not read":                          {held("b"), func(s *leaderelection.Status) { s.Known, s.Object, s.Holder = false, nil, "" }, "ConfigMap unread: unknown: the lock cannot be read"},
		"leader":                            {held("b", markerKey, "v1 b 3 handover"), none, "ConfigMap leads: leads b ^stable acts"},
		"peer":                              {held("b"), none, "ConfigMap holds: holds b ^stable acts"},
		"expired":                           {held("b"), idle, "ConfigMap expired: expired b ^stable"},
		"settles":                           {held("a"), idle, "ConfigMap holds: holds a ^stable"},
		"settles after an incumbent leader": {held("b", markerKey, "v1 c 2"), idle, "ConfigMap holds: holds b ^stable"},
		"free":                              {held(""), idle, "ConfigMap free: free"},
		"no object":                         {Lock{Kind: Lease, Namespace: "istio-system", Name: "e"}, idle, "Lease empty: empty"},
		"nominated":                         {lease(t, "e", "b", nominated, "b"), idle, "Lease nominated: nominated b stable"},
		"coordinated":                       {lease(t, "e", "b.e", "incumbent.dev/strategy", defaultRevision, markerKey, "v1 b.e 3"), none, "Lease leads: leads b stable acts by " + defaultRevision},
		"lost strategy":                     {lease(t, "e", "b.e"), func(s *leaderelection.Status) { s.Strategy = defaultRevision }, "Lease holds: holds b stable acts by " + defaultRevision},
		"disabled":                          {Lock{Kind: Lease, Name: "e"}, func(s *leaderelection.Status) { s.Phase, s.Leading = leaderelection.Disabled, true }, "Lease leads: leads a stable acts"},
		"disabled, idle":                    {Lock{Kind: Lease, Name: "e"}, func(s *leaderelection.Status) { s.Phase = leaderelection.Disabled }, "Lease free: free a stable"},
	} {
		e := FromStatus(statusOf(c.lock, c.change), observedAt)
		got := fmt.Sprintf("%s %s: %s", e.Lock, e.State, e.StateText())
		if e.Holder != "" {
			got += " " + e.Holder + " " + e.Key
		}
		if e.Acting() {
			got += " acts"
		}
		if e.Strategy != "" {
			got += " by " + e.Strategy
		}
		if got != c.want || !e.Ranked || e.Process.Identity != "a" || !e.Process.ValidUntil.IsZero() {
			t.Errorf("%s: %s, want %s; %+v", name, got, c.want, e)
		}
	}
}

// TestJSON keeps the example of /debug/elections in the documentation true.
func TestJSON(t *testing.T) {
	lock := lease(t, "istio-gateway-deployment-stable", "a", markerKey, "v1 a 3 handover")
	e := FromStatus(statusOf(lock, func(s *leaderelection.Status) {
		s.ElectionID = "istio-gateway-deployment"
		s.Ranked = false
		s.Running = true
		s.Warm = true
		s.Phase = "leading"
		s.Reason = "lock-free"
		s.Since = observedAt.Add(-time.Minute)
		s.Leading = true
		s.ValidFor = 12 * time.Second
		s.Term = k8sleaderelection.Term{LockUID: "5b8f6a1e-3a52-4c0e-9d3f-7a1c2f0c9e11", Transitions: 3, Token: 4711}
		s.Default = k8sleaderelection.DefaultRevision{Synced: true, Revision: "stable"}
	}), observedAt)
	e.Process.Gate = "open"
	e.Process.Fence = &fence.State{InEffect: true, Leading: true, Answer: fence.Admitted, At: observedAt.Add(-time.Minute)}
	e = e.With([]Candidate{{Identity: "a", Key: "stable", Warm: true, Fit: true, Version: "1.0.0", Witness: "parent"}}, k8sleaderelection.DefaultRevision{})
	text, err := json.MarshalIndent([]Election{e}, "    ", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden.Section(t, "../../docs/tools.md", "<!-- json: generated; update with go test ./internal/inspect -run TestJSON -rewrite -->\n\n    ", "\n\n<!-- end of json -->", string(text))
}
