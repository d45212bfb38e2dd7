// Package electors runs candidates of three libraries in the same way: incumbent, istiod
// (istio.io/istio/pilot/pkg/leaderelection) and client-go. A Process holds the connection and the clients of its
// candidates. A Candidate takes part in one election and records when its run function ran.
package electors
