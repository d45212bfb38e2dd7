package main

import (
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/members"
)

// A Lease that says who takes part is no election.
func TestMembersAreNoElections(t *testing.T) {
	s := &clusterView{changed: make(chan struct{}), view: view{locks: map[string]lock{}}}
	for name, labels := range map[string]map[string]string{"lock": {"app": "any"}, "incumbent-member-a": {members.Label: members.LabelValue}} {
		s.take(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: name, Labels: labels}}, true)
	}
	if v, _ := s.now(); len(v.locks) != 1 || v.locks["lock"] != (lock{}) {
		t.Errorf("elections: %v", v.locks)
	}
}

func TestTable(t *testing.T) {
	v := view{
		defaultRevision: "stable",
		locks: map[string]lock{
			"e":     {holder: "a", key: "stable", transitions: 3},
			"free":  {transitions: 7},
			"new":   {holder: "b", key: "canary", transitions: 8},
			"other": {holder: "c", transitions: 1},
			"wrong": {unreadable: true},
		},
		pods: map[string]pod{
			"a": {revision: "stable", ip: "127.0.1.1", ready: true},
			"b": {revision: "canary", restarts: 2, ready: true, leaving: true},
		},
	}
	spans := []span{spanOf("a", 0, alive), spanOf("b", 1, alive)}
	want := []string{
		"ELECTION  HOLDER               REVISION  TRANSITIONS  WORKING",
		"e         a                    stable    3            since 12:00:00.000 AND b since 12:00:01.000",
		"free      (free)                         7            nobody",
		"new       b                    canary    8            nobody yet",
		"other     c                              1",
		"wrong     (unreadable record)                         nobody",
		"",
		"POD (default revision: stable)  REVISION  READY    RESTARTS  ADDRESS",
		"a                               stable    yes      0         127.0.1.1:15014",
		"b                               canary    leaving  2",
	}
	got := table(v, spans, []string{"e", "free", "new", "wrong"}, 0)
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("table\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// The table of an upgrade fits a terminal of 80 columns, as that of make run does, and is whole where there is no terminal.
func TestTheUpgradesTableFits(t *testing.T) {
	v := view{locks: map[string]lock{}}
	for _, name := range []string{"istio-gateway-status-leader-canary", "istio-leader", "istio-namespace-controller-election"} {
		v.locks[name] = lock{holder: "pilot-canary-7ddd69d596-zl7qr", key: "canary", transitions: 1}
	}
	u := &upgrade{journal: &journal{}, screen: &screen{size: func() (int, int) { return 80, 24 }}}
	if n := widest(u.table(v)); n >= 80 {
		t.Errorf("on a terminal of 80 columns the table has %d:\n%s", n, strings.Join(u.table(v), "\n"))
	}
	u.screen.size = nil
	if text := strings.Join(u.table(v), "\n"); !strings.Contains(text, "TRANSITIONS") {
		t.Errorf("without a terminal the table is\n%s", text)
	}
}
