// Package leaderelection is about named elections: which replica of which revision of
// the control plane may run a singleton controller.
//
// An election is one lock in one namespace. Its holder writes its key there, which is
// its revision. A candidate of the default revision goes before one of another
// revision, and a local one before a remote one of the same revision; per-revision
// elections have a lock for each revision and no rank.
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
// environment variables ENABLE_LEADER_ELECTION and LEADER_ELECTION_{LEASE_DURATION,
// RENEW_DEADLINE,RETRY_PERIOD}; everything else here takes values.
//
// On client-go's fake clientsets, which unit tests use, elections work within one process:
// such a store compares nothing when writes meet, and the log says so once. Nor has it a
// transport for a gate.
package leaderelection
