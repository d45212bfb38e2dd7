// Package coordination implements coordinated leader election (Kubernetes KEP-4355): a coordinator chooses the leader
// among the candidates of an election, by a strategy.
//
// A candidate publishes a LeaseCandidate with its versions, its labels, and the name of a strategy. A Strategy names the best
// candidate. It is a pure function. Its answer does not depend on the order of the candidates.
//
// Two strategies are shipped. OldestEmulationVersion is the strategy of Kubernetes. The API server may run it, so it is
// part of a Registry only on request. DefaultRevision prefers the default revision. Best builds further strategies from
// comparisons.
//
// A Controller is the coordinator of a namespace. For each election it executes a plan: which candidates to ping, which
// candidate to name as holder, or which candidate the holder should hand over to. If the API server does not serve
// LeaseCandidates, elections are not coordinated: candidates acquire the lock by rank.
package coordination
