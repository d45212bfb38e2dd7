package electiontest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake" //nolint:depguard // stores the objects of a controller, not a lock

	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/electiontest"
	"incumbent.dev/incumbent/pilot/leaderelection/fence"
)

// period is no divisor of a RenewDeadline, so that no write coincides with the end of a validity.
const period = 700 * time.Millisecond

// controller updates a ConfigMap in each period until its context ends.
func controller(client kubernetes.Interface) func(context.Context) error {
	return func(ctx context.Context) error {
		for {
			if err := write(ctx, client); err != nil {
				return err
			}
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(period):
			}
		}
	}
}

// object is the ConfigMap that the controller writes.
func object() *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: "default"}}
}

func write(ctx context.Context, client kubernetes.Interface) error {
	_, err := client.CoreV1().ConfigMaps("default").Update(ctx, object(), metav1.UpdateOptions{})
	return err
}

func TestController_InTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clientset := fake.NewClientset(object())
		ctx, gate, end := electiontest.Term(t)
		electiontest.GateFake(gate, clientset)
		done := make(chan error, 1)
		go func() { done <- controller(clientset)(ctx) }()
		time.Sleep(time.Minute + time.Second/2)
		end()
		if err := <-done; err != nil || !errors.Is(context.Cause(ctx), electiontest.ErrTermEnded) {
			t.Errorf("the controller returned %v", err)
		}
		if err := write(t.Context(), clientset); !errors.Is(err, fence.ErrNotLeader) {
			t.Errorf("write after the term: %v", err)
		}
		if _, err := clientset.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{}); err != nil {
			t.Errorf("read after the term: %v", err)
		}
	})
}

// replica is a process with the controller.
type replica struct {
	*leaderelection.LeaderElection
	clientset *fake.Clientset
	first     context.Context // of the first term
	stop      func() error
}

func start(t *testing.T, cluster *electiontest.Cluster, identity string) *replica {
	t.Helper()
	r := &replica{clientset: fake.NewClientset(object())}
	var err error
	if r.LeaderElection, err = cluster.Election(identity, r.clientset); err != nil {
		t.Fatal(err)
	}
	run := controller(r.Client().Kube())
	r.AddRunContext(func(ctx context.Context) error {
		if r.first == nil {
			r.first = ctx
		}
		return run(ctx)
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.RunContext(ctx) }()
	r.stop = func() error {
		cancel()
		return <-done
	}
	synctest.Wait()
	return r
}

// The controller stops when its replica loses the term in any way.
func TestController_StopsOnLoss(t *testing.T) {
	for name, lose := range map[string]func(*electiontest.Cluster){
		"overwritten": func(c *electiontest.Cluster) { c.Overwrite("b") },
		"deleted":     func(c *electiontest.Cluster) { c.DeleteLock() },
		"cut off":     func(c *electiontest.Cluster) { c.CutOff("a") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cluster := electiontest.New()
				a := start(t, cluster, "a")
				if !a.IsLeader() {
					t.Fatal("a does not lead")
				}
				lose(cluster)
				<-a.first.Done() // the bubble's time reaches the end of the validity
				synctest.Wait()
				if a.first.Err() == nil {
					t.Error("the context of the term has not ended")
				}
				// A replica recreates a deleted lock in a new term.
				if err := write(t.Context(), a.clientset); a.IsLeader() != (err == nil) || a.IsLeader() != (name == "deleted") {
					t.Errorf("leader %v, write: %v", a.IsLeader(), err)
				}
				cluster.Reconnect("a")
				if err := a.stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
