// Package leaderelection is about named elections: which replica of which revision of
// the control plane may run a singleton controller.
//
// An election is one lock in one namespace. The holder writes its key there: its revision,
// with "^" in front if it is remote. Package k8sleaderelection explains the words. A
// candidate of the default revision goes before one of another revision, and a local one
// before a remote one of the same revision; per-revision elections have a lock for each
// revision and no rank.
//
//	le, err := leaderelection.New(client, leaderelection.Config{
//		Namespace: "istio-system", Identity: podName, Revision: "stable",
//		ElectionID: leaderelection.NamespaceController, DefaultWatcher: watcher,
//	})
//	le.AddRunContext(func(ctx context.Context) error { return controller.Run(ctx, le.Client()) })
//	err = le.RunContext(ctx)
//
// Run functions run only while this process leads. Their context ends when it loses;
// the next term starts them anew. What they write through Client is refused outside
// the term, even if they are late to notice.
//
// The constructors NewLeaderElection, NewLeaseLeaderElection,
// NewPerRevisionLeaderElection and NewLeaderElectionMulticluster have the signatures
// of istiod's package, so that moving over is a change of import path. They read the
// environment variables ENABLE_LEADER_ELECTION (true or false),
// LEADER_ELECTION_LEASE_DURATION, LEADER_ELECTION_RENEW_DEADLINE and
// LEADER_ELECTION_RETRY_PERIOD (such as "30s"), and follow the webhook
// istio-revision-tag-default whatever their namespace. Everything else here takes values.
//
// client-go's fake clientsets, which unit tests use, keep no resourceVersions: elections on
// them exclude each other within one process only, and the log says so once. They have no
// transport either, so Client returns them without a gate.
package leaderelection
