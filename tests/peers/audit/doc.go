// Package audit runs candidates of each library as processes, and disturbs their leader: another candidate gets the lock, the
// leader's connection drops everything silently, or SIGSTOP stops it. The audit log of the API server must convict istiod's
// elector and client-go, and acquit incumbent.
//
// The audit policy is the output of electionctl audit --policy. The flag -record writes the log to testdata of
// internal/audit.
package audit
