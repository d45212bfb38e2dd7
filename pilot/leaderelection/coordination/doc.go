// Package coordination picks the leader of an election from outside: candidates say what they are, and a
// strategy names the best of them (Kubernetes' coordinated leader election, KEP-4355).
//
// A candidate is read from a LeaseCandidate (FromLeaseCandidate). Registry.Choose
// takes the strategy that the candidates ask for and lets it name one: pure functions without clock and client,
// with the same answer in whichever order the candidates come.
//
// Two strategies are known. OldestEmulationVersion is Kubernetes' own: the API server may run it
// already, so it is left out unless asked for. DefaultRevision is the key rule of this module as a choice: the default
// revision first. A Registry takes further ones, which Best makes from comparisons.
//
// A Publisher keeps a process's own LeaseCandidate, and answers when a coordinator asks whether it lives; its elector waits to be
// named (k8sleaderelection.LeaderElectionConfig.Coordinated). A Controller is the coordinator of a namespace: it does what
// Observer.Plan says, a function without clock and client: whom to ask, whom to name, whom the holder should hand over to.
// Where the API server does not serve LeaseCandidates, members (package members) are the candidates.
package coordination
