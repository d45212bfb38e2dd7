package node_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"incumbent.dev/incumbent/internal/testutil/harness"
)

func TestKubectlLogs(t *testing.T) {
	w := newWorld(t, nil)
	talker := podSpec("-c", "trap 'echo process was asked' USR1; echo process begins; echo process continues; while :; do sleep 0.05; done")
	talker.Containers[0].Image = "/bin/sh"
	talker.Containers[0].ReadinessProbe = nil
	w.create("talker", talker)
	w.ready(1)
	for args, want := range map[string]string{
		"logs talker":          "process begins\nprocess continues\n",
		"logs talker --tail=1": "process continues\n",
	} {
		w.until(want+" is the output of "+args, func(context.Context) (bool, error) {
			return w.kubectl(strings.Fields(args)...) == want, nil
		})
	}
	for args, want := range map[string]string{
		"logs talker --since=5s": "sinceSeconds: a process node supports only --follow, --previous and --tail",
		"logs talker --previous": "no previous process of Pod talker",
		"exec talker -- true":    "serves only the logs of Pods, and not /exec/",
	} {
		said, err := w.kubectlCommand(strings.Fields(args)...).CombinedOutput()
		var failed *exec.ExitError
		if !errors.As(err, &failed) || !strings.Contains(string(said), want) {
			t.Errorf("kubectl %s: %v, want %q in\n%s", args, err, want, said)
		}
	}
	follow := w.kubectlCommand("logs", "-f", "talker", "--tail=1")
	output, err := follow.StdoutPipe()
	harness.Must(t, err)
	harness.Must(t, follow.Start())
	lines := bufio.NewReader(output)
	expect := func(want string) {
		t.Helper()
		if got, err := lines.ReadString('\n'); got != want+"\n" {
			t.Fatalf("kubectl logs -f shows %q (%v), want %q", got, err, want)
		}
	}
	expect("process continues")
	harness.Must(t, w.node.Signal(w.namespace, "talker", syscall.SIGUSR1))
	expect("process was asked")
	w.kubectl("delete", "pod", "talker")
	if rest, err := io.ReadAll(lines); len(rest) > 0 || err != nil || follow.Wait() != nil {
		t.Errorf("kubectl logs -f shows %q (%v) after the end of the Pod, and ends with %v", rest, err, follow.ProcessState)
	}
}

func TestKubectlLogs_Previous(t *testing.T) {
	w := newWorld(t, nil)
	crasher := podSpec("-c", "echo process of $TMPDIR; if [ -e begun ]; then echo second; while :; do sleep 0.05; done; fi; touch begun; echo first; exit 3")
	crasher.Containers[0].Image = "/bin/sh"
	crasher.Containers[0].ReadinessProbe = nil
	w.create("crasher", crasher)
	w.until("the second process writes", func(context.Context) (bool, error) {
		return strings.HasSuffix(w.kubectl("logs", "crasher"), "second\n"), nil
	})
	if got := w.kubectl("logs", "crasher", "--previous"); !strings.HasSuffix(got, "first\n") || strings.Contains(got, "second") {
		t.Errorf("the log of the previous process is %q", got)
	}
	if got := w.kubectl("logs", "crasher", "--previous", "--tail=1"); got != "first\n" {
		t.Errorf("its last line is %q", got)
	}
}

// A drain evicts Pods as their budget permits. New Pods wait for the end of the cordon.
func TestKubectlDrain(t *testing.T) {
	w := newWorld(t, nil)
	labels, replicas, one := map[string]string{"app": "drained"}, int32(2), intstr.FromInt32(1)
	_, err := w.client.AppsV1().Deployments(w.namespace).Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "drained"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podSpec()},
		},
	}, metav1.CreateOptions{})
	harness.Must(t, err)
	w.ready(2)
	budgets := w.client.PolicyV1().PodDisruptionBudgets(w.namespace)
	if _, err := budgets.Create(t.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "drained"},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: &one, Selector: &metav1.LabelSelector{MatchLabels: labels}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.until("the budget permits one disruption", func(ctx context.Context) (bool, error) {
		budget, err := budgets.Get(ctx, "drained", metav1.GetOptions{})
		return err == nil && budget.Status.DisruptionsAllowed == 1, err
	})
	drain := w.kubectlCommand("drain", w.namespace, "--pod-selector=app=drained", "--timeout=5s")
	said, err := drain.CombinedOutput()
	if err == nil || !strings.Contains(string(said), "would violate the pod's disruption budget") {
		t.Errorf("the drain with a budget: %v\n%s", err, said)
	}
	w.until("one Pod waits for a node", func(ctx context.Context) (bool, error) {
		pods, err := w.client.CoreV1().Pods(w.namespace).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName="})
		return err == nil && len(pods.Items) == 1, err
	})
	w.kubectl("uncordon", w.namespace)
	w.ready(2)
	harness.Must(t, budgets.Delete(t.Context(), "drained", metav1.DeleteOptions{}))
	w.kubectl("drain", w.namespace, "--pod-selector=app=drained", "--timeout=30s")
	w.until("no process runs", func(context.Context) (bool, error) {
		for _, pod := range w.node.Pods() {
			if pod.PID != 0 {
				return false, nil
			}
		}
		return true, nil
	})
	w.kubectl("uncordon", w.namespace)
	w.ready(2)
}
