// Package leaderelection runs named elections. An election decides which replica of which revision of a
// control plane runs a singleton controller.
//
// An election is one lock object in a namespace. The holder writes its key into the lock: its revision,
// with the prefix "^" if the candidate is remote. A candidate of the default revision outranks candidates
// of other revisions. A local candidate outranks a remote one of the same revision. Per-revision elections
// have a lock for each revision, and no rank. Package k8sleaderelection defines the terms.
//
//	le, err := leaderelection.New(client, leaderelection.Config{
//		Namespace: "istio-system", Identity: podName, Revision: "stable",
//		ElectionID: leaderelection.NamespaceController, DefaultWatcher: watcher,
//	})
//	le.AddRunContext(func(ctx context.Context) error { return controller.Run(ctx, le.Client()) })
//	err = le.RunContext(ctx)
//
// Run functions run only while this process leads. Their context ends when the term ends, and they start
// again with the next term. Writes through Client fail outside the term.
//
// NewLeaderElection, NewLeaseLeaderElection, NewPerRevisionLeaderElection and NewLeaderElectionMulticluster
// have the signatures of istiod's package, so a program that uses them changes only its import path. They
// read the environment variables ENABLE_LEADER_ELECTION (true or false), LEADER_ELECTION_LEASE_DURATION,
// LEADER_ELECTION_RENEW_DEADLINE and LEADER_ELECTION_RETRY_PERIOD (for example "30s"). They watch the
// webhook istio-revision-tag-default in every namespace. New reads no environment variables.
//
// The fake clientset of client-go does not check resourceVersions. Elections on it exclude each other only
// within one process, which is logged once. It has no transport, so Client returns it without a gate.
package leaderelection
