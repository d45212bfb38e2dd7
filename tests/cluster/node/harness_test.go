package node_test

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/tests/cluster"
	"incumbent.dev/incumbent/tests/cluster/node"
)

// bound limits each wait.
const bound = harness.Patience

// world is a cluster with a node and a namespace.
type world struct {
	*testing.T
	cluster   *cluster.Cluster
	node      *node.Node
	client    kubernetes.Interface
	namespace string
}

// newWorld starts a node for the test. The nodes of later tests do not run its Pods, because they have other names.
func newWorld(t *testing.T, change func(*node.Options)) *world {
	t.Helper()
	c := cluster.Shared(t)
	w := &world{T: t, cluster: c, client: c.Client(t).Kube(), namespace: c.Namespace(t)}
	options := node.Options{Config: c.Admin(), Name: w.namespace, Dir: t.TempDir(), Images: map[string]string{"replica": self(t)}}
	if change != nil {
		change(&options)
	}
	w.node = node.Start(t, options)
	return w
}

func self(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	harness.Must(t, err)
	return path
}

func (w *world) until(what string, holds func(context.Context) (bool, error)) {
	w.Helper()
	err := wait.PollUntilContextTimeout(w.Context(), 20*time.Millisecond, bound, true, holds)
	if err != nil {
		w.Fatalf("wait until %s: %v; the node has %+v", what, err, w.node.Pods())
	}
}

// kubectl runs kubectl in the namespace and returns its output.
func (w *world) kubectl(args ...string) string {
	w.Helper()
	said, err := w.kubectlCommand(args...).CombinedOutput()
	if err != nil {
		w.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, said)
	}
	return string(said)
}

func (w *world) kubectlCommand(args ...string) *exec.Cmd {
	args = append([]string{"--kubeconfig", w.cluster.Kubeconfig(), "--namespace", w.namespace}, args...)
	return exec.CommandContext(w.Context(), w.cluster.Kubectl(), args...)
}

// podSpec returns the spec of a replica.
func podSpec(args ...string) corev1.PodSpec {
	grace := int64(2 * bound / time.Second) // longer than a busy machine needs to end a process
	return corev1.PodSpec{
		TerminationGracePeriodSeconds: &grace,
		Containers: []corev1.Container{{
			Name: "replica", Image: "replica", Args: args,
			Env:   []corev1.EnvVar{{Name: roleVariable, Value: "replica"}},
			Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}},
			ReadinessProbe: &corev1.Probe{
				PeriodSeconds: 1,
				ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
					Path: "/readyz", Port: intstr.FromString("http"),
				}},
			},
		}},
	}
}

// ready waits until there are count Pods, all of them ready, and no other processes.
func (w *world) ready(count int) []corev1.Pod {
	w.Helper()
	var pods []corev1.Pod
	w.until("exactly the wanted Pods are ready", func(ctx context.Context) (bool, error) {
		list, err := w.client.CoreV1().Pods(w.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		pods = slices.DeleteFunc(list.Items, func(pod corev1.Pod) bool { return pod.DeletionTimestamp != nil })
		return len(pods) == count && len(w.node.Pods()) == count && !slices.ContainsFunc(pods, func(pod corev1.Pod) bool { return !isReady(pod) }), nil
	})
	return pods
}

func isReady(pod corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// create creates a Pod.
func (w *world) create(name string, spec corev1.PodSpec) {
	w.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}}, Spec: spec}
	if _, err := w.client.CoreV1().Pods(w.namespace).Create(w.Context(), pod, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
}
