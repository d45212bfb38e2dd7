package node_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/tests/cluster/node"
)

func TestDeployment(t *testing.T) {
	w := newWorld(t, nil)
	replicas := int32(2)
	labels := map[string]string{"app": "web"}
	_, err := w.client.AppsV1().Deployments(w.namespace).Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podSpec()},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	first := w.ready(2)
	if first[0].Status.PodIP == first[1].Status.PodIP {
		t.Errorf("both Pods have the address %s", first[0].Status.PodIP)
	}

	w.kubectl("scale", "deployment/web", "--replicas=3")
	w.ready(3)
	w.kubectl("scale", "deployment/web", "--replicas=1")
	left := w.ready(1)[0]

	w.kubectl("delete", "pod", left.Name) // waits until the object is gone
	if next := w.ready(1)[0]; next.Name == left.Name {
		t.Errorf("Pod %s was not replaced", left.Name)
	}

	before := w.ready(1)[0]
	w.kubectl("rollout", "restart", "deployment/web")
	w.kubectl("rollout", "status", "deployment/web", "--timeout=30s")
	if after := w.ready(1)[0]; after.Name == before.Name {
		t.Errorf("Pod %s was not replaced by the rollout", before.Name)
	}
	w.kubectl("delete", "deployment/web", "--cascade=foreground") // waits until its Pods are gone
}

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

func TestForcedDeletion_EndsProcess(t *testing.T) {
	w := newWorld(t, nil)
	w.create("stubborn", podSpec("stubborn"))
	w.ready(1)
	here, err := w.node.Pod(w.namespace, "stubborn")
	if err != nil {
		t.Fatal(err)
	}
	w.kubectl("delete", "pod", "stubborn", "--grace-period=0", "--force")
	// The node forgets the Pod in any case, so check the process.
	w.until("its process is gone", func(context.Context) (bool, error) {
		return gone(here.PID), nil
	})
	w.ready(0)
	if err := w.node.Signal(w.namespace, "stubborn", syscall.SIGTERM); !errors.Is(err, node.ErrNoPod) {
		t.Errorf("signal to a deleted Pod: %v", err)
	}
}

func TestUnsupportedPod_StatusHasReason(t *testing.T) {
	w := newWorld(t, nil)
	spec := podSpec()
	spec.Containers[0].Image = "elsewhere/pilot:1.0"
	w.create("unknown", spec)
	two := podSpec()
	two.Containers = append(two.Containers, two.Containers[0])
	two.Containers[1].Name = "second"
	w.create("two", two)
	once := podSpec()
	once.RestartPolicy = corev1.RestartPolicyNever
	w.create("once", once)
	for name, words := range map[string]string{"unknown": "has no program", "two": "one container", "once": "restartPolicy Never"} {
		w.until(name+" says why", func(ctx context.Context) (bool, error) {
			pod, err := w.client.CoreV1().Pods(w.namespace).Get(ctx, name, metav1.GetOptions{})
			if err != nil || len(pod.Status.ContainerStatuses) == 0 || pod.Status.ContainerStatuses[0].State.Waiting == nil {
				return false, err
			}
			return strings.Contains(pod.Status.ContainerStatuses[0].State.Waiting.Message, words), nil
		})
	}
	w.kubectl("delete", "pod", "unknown", "two", "once")
	_, err := w.client.CoreV1().Pods(w.namespace).Get(t.Context(), "two", metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("a Pod that never ran still exists: %v", err)
	}
}
