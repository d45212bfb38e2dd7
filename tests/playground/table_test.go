package main

import (
	"strings"
	"testing"
)

func TestTable(t *testing.T) {
	v := view{
		defaultRevision: "stable",
		locks: map[string]lock{
			"e":     {kind: "ConfigMap", holder: "a", key: "stable", transitions: 3},
			"free":  {kind: "Lease", transitions: 7},
			"wrong": {kind: "ConfigMap", unreadable: true},
		},
		pods: map[string]pod{
			"a": {revision: "stable", ip: "127.0.1.1", ready: true},
			"b": {revision: "canary", restarts: 2, ready: true, leaving: true},
		},
	}
	spans := []span{spanOf("a", 0, -1), spanOf("b", 1, -1)}
	want := []string{
		"ELECTION  LOCK       HOLDER               REVISION  TRANSITIONS  WORKING",
		"e         ConfigMap  a                    stable    3            a since 12:00:00.000 AND b since 12:00:01.000",
		"free      Lease      (free)                         7            nobody",
		"wrong     ConfigMap  (unreadable record)                         nobody",
		"",
		"POD  REVISION          READY    RESTARTS  ADDRESS",
		"a    stable (default)  yes      0         127.0.1.1",
		"b    canary            leaving  2",
	}
	got := table(v, spans)
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("table\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
