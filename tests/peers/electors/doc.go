// Package electors runs candidates of three libraries in the same way: incumbent's,
// istiod's (istio.io/istio/pilot/pkg/leaderelection) and client-go's. A Process holds
// what candidates of one process share, its connection and clients; a Candidate takes
// part in one election and notes when its run function was alive.
package electors
