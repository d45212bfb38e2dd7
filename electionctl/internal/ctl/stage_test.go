package ctl

import (
	"bytes"
	"context"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pkg/kube"
	"incumbent.dev/incumbent/pkg/revisions"
	"incumbent.dev/incumbent/tests/cluster"
)

// environment is a namespace with elections.
type environment struct {
	t         testing.TB
	cluster   *cluster.Cluster
	kube      kubernetes.Interface
	namespace string
	// wrap wraps the transport of the commands. Optional.
	wrap func(http.RoundTripper) http.RoundTripper
}

func newEnvironment(t testing.TB) *environment {
	c := cluster.Shared(t)
	client := c.Client(t).Kube()
	return &environment{t: t, cluster: c, kube: client, namespace: c.Namespace(t)}
}

// must fails the test if a request failed.
func (e *environment) must(_ any, err error) {
	e.t.Helper()
	if err != nil {
		e.t.Fatal(err)
	}
}

// result has the output of a command and its exit code.
type result struct {
	out, errs string
	code      int
}

// run runs a command in the environment's namespace.
func (e *environment) run(args ...string) result { return e.answer("", false, args...) }

// answer runs a command with input for its prompt.
func (e *environment) answer(in string, interactive bool, args ...string) result {
	e.t.Helper()
	r := e.raw(in, interactive, args...)
	return result{out: e.steady(r.out), errs: e.steady(r.errs), code: r.code}
}

// raw is answer with the output as it is.
func (e *environment) raw(in string, interactive bool, args ...string) result {
	e.t.Helper()
	var out, errs bytes.Buffer
	p := &Program{IOStreams: genericiooptions.IOStreams{In: strings.NewReader(in), Out: &out, ErrOut: &errs}, Interactive: interactive}
	if e.wrap != nil {
		p.wrap = func(config *rest.Config) *rest.Config {
			config.Wrap(e.wrap)
			return config
		}
	}
	args = append([]string{"--kubeconfig", e.cluster.Kubeconfig(), "--cache-dir", e.t.TempDir(), "-n", e.namespace}, args...)
	code := p.Run(e.t.Context(), args)
	return result{out: out.String(), errs: errs.String(), code: code}
}

var (
	times    = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)
	versions = regexp.MustCompile(`(resourceVersion"?: "|--resource-version=)\d+`)
)

// steady removes what differs between runs.
func (e *environment) steady(s string) string {
	s = strings.ReplaceAll(s, e.namespace, "NAMESPACE")
	return versions.ReplaceAllString(times.ReplaceAllString(s, "2026-01-02T03:04:05Z"), "${1}1")
}

// elect runs a candidate until the test ends or stop is called. It returns when the candidate leads or follows a leader. The lease is
// long, because leaders must keep it on a busy machine. So is RetryPeriod, the time that a nominated candidate has.
func (e *environment) elect(election, identity, revision string, lock leaderelection.LockType, defaults revisions.DefaultWatcher) (stop func()) {
	e.t.Helper()
	client, err := kube.NewClient(e.cluster.Admin())
	if err != nil {
		e.t.Fatal(err)
	}
	le, err := leaderelection.New(client, leaderelection.Config{
		Namespace: e.namespace, Identity: identity, ElectionID: election, Revision: revision, Lock: lock, DefaultWatcher: defaults,
		LeaseDuration: time.Minute, RenewDeadline: 40 * time.Second, RetryPeriod: 10 * time.Second,
	})
	if err != nil {
		e.t.Fatal(err)
	}
	le.AddRunContext(func(ctx context.Context) error { <-ctx.Done(); return nil })
	stop = harness.Background(e.t, func(ctx context.Context) error {
		defer kube.CloseIdleConnections(client)
		return le.RunContext(ctx)
	})
	harness.Until(e.t, identity+" is a candidate", func() bool {
		s := le.Status()
		return s.Leading || s.Phase == "following" && s.Holder != ""
	})
	return stop
}

// shows waits until list shows the words for an election.
func (e *environment) shows(words ...string) {
	e.t.Helper()
	harness.Until(e.t, strings.Join(words, " "), func() bool {
		var list harness.Log
		_, _ = list.Write([]byte(e.run("list").out))
		return list.Count(words...) > 0
	})
}

// record is the record of a lock that does not expire within a test.
const record = `{"holderIdentity":"istiod-stable-1","holderKey":"stable","leaseDurationSeconds":600,"acquireTime":"2026-01-02T03:04:05Z","renewTime":"2026-01-02T03:05:05Z","leaderTransitions":3}`

const recordKey = "control-plane.alpha.kubernetes.io/leader"

// short returns a record that expires after a second.
func short(record string) string { return strings.Replace(record, ":600,", ":1,", 1) }

// current returns a record that was renewed now.
func current(record string) string {
	return strings.Replace(record, "2026-01-02T03:05:05Z", time.Now().UTC().Format(time.RFC3339), 1)
}

// istiod creates a lock as istiod does.
func (e *environment) istiod(name, record string) {
	e.t.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{recordKey: record}}}
	e.must(e.kube.CoreV1().ConfigMaps(e.namespace).Create(e.t.Context(), cm, metav1.CreateOptions{FieldManager: "pilot-discovery"}))
}

// clientGo creates a lock as client-go does.
func (e *environment) clientGo(name, holder string) {
	e.t.Helper()
	now, seconds, transitions := metav1.NewMicroTime(time.Date(2026, 1, 2, 3, 4, 5, 123456000, time.UTC)), int32(600), int32(1)
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &holder, LeaseDurationSeconds: &seconds, AcquireTime: &now, RenewTime: &now, LeaseTransitions: &transitions,
		},
	}
	e.must(e.kube.CoordinationV1().Leases(e.namespace).Create(e.t.Context(), lease, metav1.CreateOptions{FieldManager: "operator"}))
}

// lock creates a ConfigMap lock with annotations: key, value, key, value.
func (e *environment) lock(name, record string, notes ...string) {
	e.t.Helper()
	e.istiod(name, record)
	e.annotate(name, notes...)
}

// annotate sets annotations of a ConfigMap lock: key, value, key, value.
func (e *environment) annotate(name string, notes ...string) {
	e.t.Helper()
	cms := e.kube.CoreV1().ConfigMaps(e.namespace)
	cm, err := cms.Get(e.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		e.t.Fatal(err)
	}
	for i := 0; i < len(notes); i += 2 {
		cm.Annotations[notes[i]] = notes[i+1]
	}
	e.must(cms.Update(e.t.Context(), cm, metav1.UpdateOptions{FieldManager: "pilot-discovery"}))
}

// pod creates a pod without a process.
func (e *environment) pod(name, revision string) {
	e.t.Helper()
	off := false
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"istio.io/rev": revision}},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken: &off,
			Containers:                   []corev1.Container{{Name: "pilot", Image: "pilot"}},
		},
	}
	if _, err := e.kube.CoreV1().ServiceAccounts(e.namespace).Create(e.t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		e.t.Fatal(err)
	}
	e.must(e.kube.CoreV1().Pods(e.namespace).Create(e.t.Context(), pod, metav1.CreateOptions{}))
}

// starts sets the status of a pod to running.
func (e *environment) starts(name string) {
	e.t.Helper()
	pods := e.kube.CoreV1().Pods(e.namespace)
	pod, err := pods.Get(e.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		e.t.Fatal(err)
	}
	pod.Status.Phase = corev1.PodRunning
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "pilot", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	e.must(pods.UpdateStatus(e.t.Context(), pod, metav1.UpdateOptions{}))
}

// running creates a running pod.
func (e *environment) running(name, revision string) {
	e.t.Helper()
	e.pod(name, revision)
	e.starts(name)
}

// event creates an Event about a ConfigMap lock.
func (e *environment) event(name, message string) {
	e.t.Helper()
	at := metav1.NewTime(time.Date(2025, 1, 2, 3, 4, 5, 0, time.UTC))
	event := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{GenerateName: name + "-"},
		InvolvedObject: corev1.ObjectReference{Kind: "ConfigMap", Namespace: e.namespace, Name: name},
		Type:           corev1.EventTypeNormal, Reason: "LeaderElection", Message: message, FirstTimestamp: metav1.NewTime(at.Add(-time.Hour)), LastTimestamp: at, Count: 3,
	}
	e.must(e.kube.CoreV1().Events(e.namespace).Create(e.t.Context(), event, metav1.CreateOptions{}))
}

// begin runs a command that ends with ctx.
func (e *environment) begin(ctx context.Context, out *harness.Log, args ...string) int {
	p := &Program{IOStreams: genericiooptions.IOStreams{In: strings.NewReader(""), Out: out, ErrOut: out}}
	return p.Run(ctx, append([]string{"--kubeconfig", e.cluster.Kubeconfig(), "-n", e.namespace}, args...))
}

// until waits until the command has printed words.
func (e *environment) until(out *harness.Log, words string) {
	e.t.Helper()
	harness.Until(e.t, words, func() bool { return strings.Contains(out.String(), words) })
}
