// Package electiontest is a test kit for programs whose controllers run in an election. Its tests need no API server, and take
// milliseconds in a testing/synctest bubble.
//
// Term runs a controller in a term without an election. A Cluster has the lock of an election in memory, so a test can run several
// replicas and take the lock from them. Writes of a replica outside its term are rejected, as in production.
//
//	synctest.Test(t, func(t *testing.T) {
//		cluster := electiontest.New()
//		election, err := cluster.Election("a", fake.NewClientset())
//		election.AddRunContext(func(ctx context.Context) error { return controller.Run(ctx, election.Client()) })
//		go election.RunContext(ctx)
//		synctest.Wait()
//		cluster.Overwrite("b") // the controller must stop
//	})
//
// Create everything in the bubble that uses it.
package electiontest
