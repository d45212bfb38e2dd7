// Package electiontest is a test kit for programs whose controllers run in an election. Its tests need no API server, and take
// milliseconds in a testing/synctest bubble.
//
// Term runs a controller in a term without an election. A Cluster has the lock of an election in memory, so a test can run several
// replicas and take the lock from them. GateFake makes a fake clientset reject writes outside the term, as a client of the
// election does.
//
//	synctest.Test(t, func(t *testing.T) {
//		clientset := fake.NewClientset()
//		cluster := electiontest.New()
//		election, err := leaderelection.New(electiontest.KubeClient(clientset), cluster.Config("a"))
//		electiontest.GateFake(election.Gate(), &clientset.Fake)
//		election.AddRunContext(controller.Run)
//		go election.RunContext(ctx)
//		synctest.Wait()
//		cluster.Overwrite("b") // the controller must stop
//	})
//
// Create everything in the bubble that uses it.
package electiontest
