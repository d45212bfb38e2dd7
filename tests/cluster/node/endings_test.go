package node_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/tests/cluster/node"
)

// gone reports whether there is no such process any more.
func gone(pid int) bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

// A node that stops does not return before its Pods' processes have ended, and does not wait for
// their own grace periods.
func TestANodeThatStopsEndsItsProcessesFirst(t *testing.T) {
	w := newWorld(t, func(o *node.Options) {
		o.StopGrace = 3 * time.Second
	})
	stubborn := podSpec("stubborn")
	grace := int64(600)
	stubborn.TerminationGracePeriodSeconds = &grace
	w.create("stubborn", stubborn)
	w.create("polite", podSpec())
	w.ready(2)
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
			t.Errorf("the process of Pod %s is still there", pod.Name)
		}
		log, err := os.ReadFile(pod.Log)
		if err != nil {
			t.Fatal(err)
		}
		if polite := pod.Name == "polite"; polite && !strings.Contains(string(log), "ended:") {
			t.Errorf("the polite one was not given time to end:\n%s", log)
		}
	}
}

func TestPodsOfOthersAreLeftAlone(t *testing.T) {
	w := newWorld(t, nil)
	other := podSpec()
	other.SchedulerName = "example.com/other"
	w.create("other", other)
	w.create("ours", podSpec()) // which the node sees later
	w.until("ours is ready", func(context.Context) (bool, error) {
		pod, err := w.node.Pod(w.namespace, "ours")
		return err == nil && pod.Ready, nil
	})
	if pod, err := w.node.Pod(w.namespace, "other"); !errors.Is(err, node.ErrNoPod) {
		t.Errorf("the node runs %+v (%v), which another scheduler was asked to place", pod, err)
	}
}

// A Pod whose process answers that it is unwell is unready, and ready again when it is well.
func TestReadinessComesAndGoes(t *testing.T) {
	w := newWorld(t, nil)
	w.create("one", podSpec())
	ready := func(want corev1.ConditionStatus) {
		t.Helper()
		w.until("its condition is "+string(want), func(ctx context.Context) (bool, error) {
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
