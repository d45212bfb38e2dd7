package electiontest_test

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/client-go/kubernetes/fake" //nolint:depguard // stores the objects of a controller, not a lock

	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/electiontest"
	"incumbent.dev/incumbent/pilot/leaderelection/gate"
)

// run runs a replica with a controller that reports its start and its end. stop stops the replica.
func run(cluster *electiontest.Cluster, identity string, events chan<- string) (election *leaderelection.LeaderElection, stop func()) {
	election, err := cluster.Election(identity, fake.NewClientset(object()))
	if err != nil {
		panic(err)
	}
	election.AddRunContext(func(ctx context.Context) error {
		err := write(ctx, election.Client().Kube())
		events <- fmt.Sprintf("%s leads, write: %v", identity, err)
		<-ctx.Done()
		events <- identity + " has stopped"
		return nil
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- election.RunContext(ctx) }()
	return election, func() {
		cancel()
		if err := <-done; err != nil {
			panic(err)
		}
	}
}

// A controller stops when its replica loses the lock. Later writes are refused.
func ExampleCluster_Overwrite() {
	cluster, events := electiontest.New(), make(chan string, 2)
	a, stop := run(cluster, "a", events)
	fmt.Println(<-events)
	cluster.Overwrite("b")
	fmt.Println(<-events)
	err := write(context.Background(), a.Client().Kube())
	fmt.Println("refused:", errors.Is(err, gate.ErrNotLeader))
	stop()
	// Output:
	// a leads, write: <nil>
	// a has stopped
	// refused: true
}

// A replica that stops hands over to another one.
func ExampleCluster_Election() {
	cluster, events := electiontest.New(), make(chan string, 2)
	_, stopA := run(cluster, "a", events)
	fmt.Println(<-events)
	_, stopB := run(cluster, "b", events)
	stopA()
	fmt.Println(<-events)
	fmt.Println(<-events)
	stopB()
	fmt.Println(<-events)
	fmt.Printf("holder: %q\n", cluster.Record().HolderIdentity)
	// Output:
	// a leads, write: <nil>
	// a has stopped
	// b leads, write: <nil>
	// b has stopped
	// holder: ""
}
