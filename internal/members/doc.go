// Package members publishes and reads member Leases: one Lease per process, with its elections. A lock contains only its holder and
// not the other candidates.
//
// The Lease is named incumbent-member-<identity>, has the label incumbent.dev/member=true, and is owned by the Pod of the process.
// Its annotation incumbent.dev/member-state is JSON:
//
//	{"revision":"stable","cluster":"local","version":"v1.2.0","elections":[
//	  {"name":"istio-leader","candidate":true,"warm":true,"fit":true}]}
//
// A Publisher writes the Lease every 30 seconds and when its content changes, reads nothing, and deletes the Lease at its end. Parse
// reads it. Member.Late helps to judge whether a member is alive. The content is a claim of its writer. It decides nothing.
package members
