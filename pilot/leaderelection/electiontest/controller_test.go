package electiontest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake" //nolint:depguard // stores the objects of a controller, not a lock

	"incumbent.dev/incumbent/pilot/leaderelection/electiontest"
	"incumbent.dev/incumbent/pilot/leaderelection/gate"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

// object is the ConfigMap that the controller writes.
func object() *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: "default"}}
}

func write(ctx context.Context, client kubernetes.Interface) error {
	_, err := client.CoreV1().ConfigMaps("default").Update(ctx, object(), metav1.UpdateOptions{})
	return err
}

func TestTerm(t *testing.T) {
	clientset := fake.NewClientset(object())
	ctx, g, end := electiontest.Term(t)
	electiontest.GateFake(g, clientset)
	if err := write(ctx, clientset); err != nil || ctx.Err() != nil {
		t.Errorf("write in the term: %v, context: %v", err, ctx.Err())
	}
	end()
	if err := write(t.Context(), clientset); !errors.Is(err, gate.ErrNotLeader) || !errors.Is(context.Cause(ctx), k8sleaderelection.ErrNotLeading) {
		t.Errorf("write after the term: %v, context: %v", err, context.Cause(ctx))
	}
	if _, err := clientset.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("read after the term: %v", err)
	}
}

// The controller stops when its replica loses the term in any way.
func TestCluster_Loss(t *testing.T) {
	for name, lose := range map[string]func(*electiontest.Cluster){
		"overwritten": func(c *electiontest.Cluster) { c.Overwrite("b") },
		"deleted":     func(c *electiontest.Cluster) { c.DeleteLock() },
		"cut off":     func(c *electiontest.Cluster) { c.CutOff("a") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cluster, events := electiontest.New(), make(chan string, 4)
				a, stop := run(cluster, "a", events)
				<-events // it leads
				lose(cluster)
				if got := <-events; got != "a has stopped" { // the bubble's time reaches the end of the validity
					t.Error(got)
				}
				synctest.Wait()
				// A replica recreates a deleted lock in a new term.
				if err := write(t.Context(), a.Client().Kube()); a.IsLeader() != (err == nil) || a.IsLeader() != (name == "deleted") {
					t.Errorf("leader %v, write: %v", a.IsLeader(), err)
				}
				cluster.Reconnect("a")
				stop()
			})
		})
	}
}
