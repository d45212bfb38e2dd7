// Package members says who could lead what: one Lease per process, with the elections that it
// takes part in. A lock names its holder alone; of those who wait it says nothing.
//
// The Lease is called incumbent-member-<identity>, carries the label incumbent.dev/member=true, and
// belongs to the process's Pod, so that it goes with it. Its annotation incumbent.dev/member-state
// is JSON:
//
//	{"revision":"stable","cluster":"local","version":"v1.2.0","elections":[
//	  {"name":"istio-leader","candidate":true,"warm":true,"fit":true}]}
//
// A Publisher writes it when that changes and each 30 seconds, without reading anything, and deletes
// it at its end. List and Parse read it; nobody has to ask the process itself. What a Lease says is the
// claim of whoever wrote it. It decides nothing, except in a coordinated election on an API server that
// does not serve LeaseCandidates: there members are the candidates (package coordination).
//
// Whether a member is alive is for its reader to judge, see Member.Late.
package members
