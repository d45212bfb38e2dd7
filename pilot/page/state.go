package page

import (
	"incumbent.dev/incumbent/internal/inspect"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

// State is the state of all elections at one time.
type State struct {
	// Identity, Revision and Version describe the process.
	Identity, Revision, Version string
	// Default is the default revision, not synced if unknown.
	Default k8sleaderelection.DefaultRevision
	// Elections are in display order, as the process observes them (inspect.FromStatus).
	Elections []inspect.Election
}

// name identifies an election within a process.
type name struct{ cluster, namespace, kind, lock string }

func nameOf(e inspect.Election) name { return name{e.Cluster, e.Namespace, e.Lock, e.Name} }
