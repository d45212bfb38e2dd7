// Package fence keeps a process that is not the leader from writing.
//
// The gate is the client's side of it: a transport that lets reads pass, and writes
// only within the cover of the present term. It asks the clocks on each request, so
// that a process which was stopped for a while and then goes on cannot send what it
// had queued. Only an elector's loop moves a gate.
//
// The gate holds whatever passes through it. What a process sends by another client
// is for the API server to refuse.
package fence
