package main

import (
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/atomic"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/bootstrap"
	"incumbent.dev/incumbent/pilot/bootstrap/manifests"
	"incumbent.dev/incumbent/tests/cluster"
	"incumbent.dev/incumbent/tests/cluster/node"
)

// podWorld is a node, and a Pod on it as the manifests have it.
type podWorld struct {
	*testing.T
	admin      kubernetes.Interface
	node       *node.Node
	home, name string
	// holds says which requests of the Pod get no answer.
	holds *atomic.Pointer[func(*http.Request) bool]
	front *front
}

// newPodWorld runs pilot in a Pod with a token of its own. Its probes ask where the manifests
// say, but more often than there: change may say how often.
// file is the bundle that it spreads. Other servers of the cluster spread theirs, so none of
// this one's writes may get out.
func newPodWorld(t *testing.T, name, file string, holds func(*http.Request) bool, change func(*corev1.PodSpec)) *podWorld {
	t.Helper()
	w := &podWorld{T: t, admin: cluster.Shared(t).Client(t).Kube(), home: newNamespaces(t, name, 1)[0], name: name, holds: atomic.NewPointer(&holds)}
	w.front = newFront(t, func(r *http.Request) bool { return (*w.holds.Load())(r) })
	w.runNode()
	config := bootstrap.Config{Revision: "stable"}
	identityFor(t, config, w.home, "for-its-rights")
	env := map[string]string{asProgram: "1", "KUBECONFIG": t.TempDir() + "/kubeconfig"}
	for _, entry := range harness.Mutants() {
		key, value, _ := strings.Cut(entry, "=")
		env[key] = value
	}
	deployment, err := manifests.MakeDeployment(manifests.Values{
		Namespace: w.home, Revision: config.Revision, Rights: bootstrap.Rights(config), Image: "pilot", Address: "$(POD_IP):15014", CABundle: file, Env: env, Args: []string{"--lock=lease"},
		LeaseDuration: longLease, RenewDeadline: 5 * time.Minute, RetryPeriod: time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	spec := deployment.Spec.Template.Spec
	spec.SchedulerName = "the-test" // which binds it once it has a token
	for _, probe := range []*corev1.Probe{spec.Containers[0].ReadinessProbe, spec.Containers[0].LivenessProbe} {
		probe.PeriodSeconds, probe.FailureThreshold = 1, 2
	}
	spec.Containers[0].LivenessProbe.InitialDelaySeconds = 60 // on a busy machine a process takes seconds to serve
	change(&spec)
	pod, err := w.admin.CoreV1().Pods(w.home).Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := cluster.WriteKubeconfig(env["KUBECONFIG"], w.front.before(w.token(pod)), ""); err != nil {
		t.Fatal(err)
	}
	err = w.admin.CoreV1().Pods(w.home).Bind(t.Context(), &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: pod.UID}, Target: corev1.ObjectReference{Kind: "Node", Name: "node-of-" + name},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *podWorld) runNode() {
	w.Helper()
	self, err := os.Executable()
	if err != nil {
		w.Fatal(err)
	}
	w.node = node.Start(w.T, node.Options{
		Config: adminConfig(w.T), Dir: w.TempDir(), Name: "node-of-" + w.name, Images: map[string]string{"pilot": self},
		Logger: slog.New(slog.NewTextHandler(w.Output(), nil)),
	})
	w.Cleanup(func() {
		if here, err := w.node.Pod(w.home, w.name); err == nil && w.Failed() {
			log, _ := os.ReadFile(here.Log)
			w.Logf("its log:\n%s", log)
		}
	})
}

// token is what a kubelet would give the Pod.
func (w *podWorld) token(pod *corev1.Pod) *rest.Config {
	w.Helper()
	granted, err := w.admin.CoreV1().ServiceAccounts(w.home).CreateToken(w.Context(), pod.Spec.ServiceAccountName, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}},
	}, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	config := rest.AnonymousClientConfig(adminConfig(w.T))
	config.BearerToken = granted.Status.Token
	return config
}

// answers has requests answered from now on but for some, those under way included.
func (w *podWorld) answers(but func(*http.Request) bool) {
	w.holds.Store(&but)
	w.front.server.CloseClientConnections()
}

func all(*http.Request) bool  { return true }
func none(*http.Request) bool { return false }

// until waits until the Pod's status is as wanted.
func (w *podWorld) until(what string, holds func(pod *corev1.Pod, container corev1.ContainerStatus, ready corev1.PodCondition) bool) {
	w.Helper()
	var last *corev1.Pod
	w.Cleanup(func() {
		if w.Failed() {
			w.Logf("waiting until %s, its status was last %+v", what, last.Status)
		}
	})
	await(w.T, what, func() bool {
		pod, err := w.admin.CoreV1().Pods(w.home).Get(w.Context(), w.name, metav1.GetOptions{})
		if err != nil {
			w.Fatal(err)
		}
		last = pod
		if len(pod.Status.ContainerStatuses) != 1 {
			return false
		}
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodReady {
				return holds(pod, pod.Status.ContainerStatuses[0], condition)
			}
		}
		return false
	})
}

// A Pod is not ready before the API server has let its process in, ready from then on, and not
// any more while it stops: by its status, as a Service or a Deployment sees it.
func TestAPodIsReadyFromBeingLetInToItsStop(t *testing.T) {
	t.Parallel()
	file, _ := bundle(t)
	w := newPodWorld(t, "readiness", file, all, func(*corev1.PodSpec) {})
	running := func(c corev1.ContainerStatus) bool { return c.State.Running != nil && c.RestartCount == 0 }
	w.until("it runs and is not ready", func(_ *corev1.Pod, c corev1.ContainerStatus, ready corev1.PodCondition) bool {
		return running(c) && !c.Ready && ready.Status == corev1.ConditionFalse && ready.Reason == "ContainersNotReady" &&
			strings.Contains(ready.Message, "/readyz answers 503")
	})
	works := make(chan struct{})
	once := sync.OnceFunc(func() { close(works) })
	work := func(r *http.Request) bool {
		if isBundleWrite(r) || strings.HasSuffix(r.URL.Path, "/configmaps/"+bundleName) {
			once()
			return true
		}
		return false
	}
	w.answers(work)
	w.until("it is ready", func(_ *corev1.Pod, c corev1.ContainerStatus, ready corev1.PodCondition) bool {
		return running(c) && c.Ready && ready.Status == corev1.ConditionTrue
	})
	select { // the controller works, and is held up
	case <-works:
	case <-time.After(patience):
		t.Fatalf("it has not written; it asked for %+v", w.front.asked())
	}
	if err := w.admin.CoreV1().Pods(w.home).Delete(t.Context(), w.name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.until("it runs and is not ready while it stops", func(pod *corev1.Pod, c corev1.ContainerStatus, ready corev1.PodCondition) bool {
		return pod.DeletionTimestamp != nil && running(c) && !c.Ready && ready.Status == corev1.ConditionFalse &&
			strings.Contains(ready.Message, "/readyz answers 503")
	})
	w.answers(work) // what is under way fails, and nothing is begun any more
	await(t, "its object is gone", func() bool {
		_, err := w.admin.CoreV1().Pods(w.home).Get(t.Context(), w.name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	locks, _ := bootstrap.Elections(bootstrap.Config{})
	lease, err := w.admin.CoordinationV1().Leases(w.home).Get(t.Context(), locks[0], metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if *lease.Spec.HolderIdentity != "" || *lease.Spec.LeaseDurationSeconds != 1 {
		t.Errorf("its lock was not released: %+v", lease)
	}
}

// A Pod whose process hangs fails its liveness probe, and gets another one; it is the same Pod,
// and leads again under its name.
func TestAPodThatHangsIsRestarted(t *testing.T) {
	t.Parallel()
	w := newPodWorld(t, "liveness", strings.TrimPrefix(noBundle(t), "--ca-bundle="), none, func(spec *corev1.PodSpec) {
		grace := int64(1)
		spec.TerminationGracePeriodSeconds = &grace
		spec.Containers[0].LivenessProbe.TimeoutSeconds = 2
		spec.Containers[0].LivenessProbe.InitialDelaySeconds = 5
	})
	var before podOf
	w.until("it is ready", func(pod *corev1.Pod, c corev1.ContainerStatus, ready corev1.PodCondition) bool {
		before = podOf{fmt.Sprint(pod.UID), pod.Status.PodIP, c.ContainerID}
		return c.RestartCount == 0 && ready.Status == corev1.ConditionTrue
	})
	if err := w.node.Signal(w.home, w.name, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	w.until("it is ready again, by another process", func(pod *corev1.Pod, c corev1.ContainerStatus, ready corev1.PodCondition) bool {
		last := c.LastTerminationState.Terminated
		return c.RestartCount == 1 && ready.Status == corev1.ConditionTrue && last != nil && last.ExitCode == 128+int32(syscall.SIGKILL) &&
			fmt.Sprint(pod.UID) == before.uid && pod.Status.PodIP == before.ip && c.ContainerID != before.process
	})
}

// podOf is what tells Pods and their processes apart.
type podOf struct{ uid, ip, process string }
