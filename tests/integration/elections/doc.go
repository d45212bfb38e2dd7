// Package elections tests named elections on a real API server. Each candidate has a token that is
// bound to its own Pod, and the least permissions that a candidate needs. Tests here cover only what
// the tests of package leaderelection cannot show: compare-and-swap, watches, RBAC, admission,
// deletion, restored backups, connections that fail, and the wiring of elector, gate and default watcher.
package elections
