package node_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/tests/cluster/node"
)

func TestKilledProcess_Restarts(t *testing.T) {
	w := newWorld(t, nil)
	w.create("one", podSpec())
	before := w.ready(1)[0]
	old, err := w.node.Pod(w.namespace, "one")
	if err != nil {
		t.Fatal(err)
	}

	if err := w.node.Signal(w.namespace, "one", syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	w.until("it is ready again", func(ctx context.Context) (bool, error) {
		pod, err := w.client.CoreV1().Pods(w.namespace).Get(ctx, "one", metav1.GetOptions{})
		if err != nil || len(pod.Status.ContainerStatuses) == 0 {
			return false, err
		}
		return pod.Status.ContainerStatuses[0].RestartCount == 1 && isReady(*pod), nil
	})
	after := w.ready(1)[0]
	if after.UID != before.UID || after.Status.PodIP != before.Status.PodIP {
		t.Errorf("another Pod: %s at %s, was %s at %s", after.UID, after.Status.PodIP, before.UID, before.Status.PodIP)
	}
	last := after.Status.ContainerStatuses[0].LastTerminationState.Terminated
	if last == nil || last.ExitCode != 128+int32(syscall.SIGKILL) {
		t.Errorf("last termination state: %+v", last)
	}
	now, err := w.node.Pod(w.namespace, "one")
	if err != nil {
		t.Fatal(err)
	}
	if now.PID == old.PID || now.Restarts != 1 {
		t.Errorf("the node has %+v, before it had %+v", now, old)
	}
}

func TestCrashingProcess_BackOff(t *testing.T) {
	w := newWorld(t, nil)
	crashing := podSpec()
	crashing.Containers[0].Image = "/bin/false"
	w.create("one", crashing)
	// A slow API server may not store each state.
	delays := map[int32]string{2: "restart after 2s", 3: "restart after 4s", 4: "restart after 8s"}
	w.until("the delay doubles", func(ctx context.Context) (bool, error) {
		pod, err := w.client.CoreV1().Pods(w.namespace).Get(ctx, "one", metav1.GetOptions{})
		if err != nil || len(pod.Status.ContainerStatuses) == 0 {
			return false, err
		}
		status := pod.Status.ContainerStatuses[0]
		waiting := status.State.Waiting
		delay := delays[status.RestartCount]
		return delay != "" && waiting != nil && waiting.Reason == "CrashLoopBackOff" && strings.HasPrefix(waiting.Message, delay), nil
	})
}

func TestGracePeriod(t *testing.T) {
	w := newWorld(t, nil)
	w.create("polite", podSpec())
	stubborn := podSpec("stubborn")
	grace := int64(1)
	stubborn.TerminationGracePeriodSeconds = &grace
	w.create("stubborn", stubborn)
	w.ready(2)
	polite, err := w.node.Pod(w.namespace, "polite")
	if err != nil {
		t.Fatal(err)
	}

	w.kubectl("delete", "pod", "polite", "stubborn")
	w.ready(0)
	log, err := os.ReadFile(polite.Log)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(log), "told to end") || !strings.Contains(string(log), "ended:") {
		t.Errorf("the process had no time to end:\n%s", log)
	}
}

// A stopping node waits until the processes of its Pods have ended, but not for their grace periods.
func TestNodeStop_EndsProcesses(t *testing.T) {
	var pod node.Pod
	var stopped time.Time
	t.Run("node", func(t *testing.T) {
		w := newWorld(t, func(o *node.Options) { o.StopGrace = 3 * time.Second })
		w.create("stubborn", podSpec("stubborn"))
		w.ready(1)
		pod = w.node.Pods()[0]
		stopped = time.Now()
	})
	if took := time.Since(stopped); took > bound {
		t.Errorf("the node stopped after %v: it waited for the grace period of the Pod", took)
	}
	if err := syscall.Kill(pod.PID, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("process %d of Pod %s still exists: %v", pod.PID, pod.Name, err)
	}
}
