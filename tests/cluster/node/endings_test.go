package node_test

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/tests/cluster/node"
)

// gone reports whether the process does not exist.
func gone(pid int) bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

// A stopping node waits until the processes of its Pods have ended, but not for their grace periods.
func TestNodeStop_EndsProcesses(t *testing.T) {
	w := newWorld(t, func(o *node.Options) {
		o.StopGrace = 3 * time.Second
	})
	stubborn := podSpec("stubborn")
	grace := int64(600)
	stubborn.TerminationGracePeriodSeconds = &grace
	w.create("stubborn", stubborn)
	w.ready(1)
	pods := w.node.Pods()
	ended := make(chan error, 1)
	go func() { ended <- w.stop() }()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(bound):
		t.Fatal("the node waits for a grace period of ten minutes")
	}
	for _, pod := range pods {
		if !gone(pod.PID) {
			t.Errorf("process of Pod %s still exists", pod.Name)
		}
	}
}

func TestReadinessChanges(t *testing.T) {
	w := newWorld(t, nil)
	w.create("one", podSpec())
	ready := func(want corev1.ConditionStatus) {
		t.Helper()
		w.until("the condition is "+string(want), func(ctx context.Context) (bool, error) {
			pod, err := w.client.CoreV1().Pods(w.namespace).Get(ctx, "one", metav1.GetOptions{})
			return err == nil && isReady(*pod) == (want == corev1.ConditionTrue), err
		})
	}
	ready(corev1.ConditionTrue)
	if err := w.node.Signal(w.namespace, "one", syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	ready(corev1.ConditionFalse)
	if err := w.node.Signal(w.namespace, "one", syscall.SIGUSR2); err != nil {
		t.Fatal(err)
	}
	ready(corev1.ConditionTrue)
}
