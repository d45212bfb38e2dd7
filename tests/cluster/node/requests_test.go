package node

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

func itoa(n int) string { return strconv.Itoa(n) }

// ignoredOrCaught reads SIGTERM's bit out of a process's status.
func ignoredOrCaught(status, mask string) bool {
	_, rest, _ := strings.Cut(status, mask+":\t")
	bits, err := strconv.ParseUint(strings.TrimSpace(strings.SplitN(rest, "\n", 2)[0]), 16, 64)
	return err == nil && bits>>14&1 == 1
}

// The Node's object says where the node is, and that it is ready; one that is left of an earlier node
// is taken over.
func TestTheObjectOfANode(t *testing.T) {
	client := fake.NewClientset()
	n := nodeOf(t, client)
	for _, address := range []string{"127.0.0.2", "127.0.0.3"} {
		n.address = address
		if err := n.register(t.Context()); err != nil {
			t.Fatal(err)
		}
		node, err := client.CoreV1().Nodes().Get(t.Context(), "here", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		want := []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}, {Type: corev1.NodeHostName, Address: "here"}}
		if got := node.Status.Addresses; len(got) != 2 || got[0] != want[0] || got[1] != want[1] || node.Status.DaemonEndpoints.KubeletEndpoint.Port != kubeletPort {
			t.Errorf("%+v", node.Status)
		}
		if c := node.Status.Conditions; len(c) != 1 || c[0].Type != corev1.NodeReady || c[0].Status != corev1.ConditionTrue || c[0].Reason == "" || c[0].Message == "" || c[0].LastHeartbeatTime.IsZero() || c[0].LastTransitionTime.IsZero() {
			t.Errorf("%+v", c)
		}
	}
	broken := errors.New("not now")
	for _, verb := range []string{"create", "get", "update"} {
		client := fake.NewClientset()
		if verb != "create" {
			client = fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "here"}})
		}
		client.PrependReactor(verb, "nodes", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, broken })
		n.client = client
		if err := n.register(t.Context()); !errors.Is(err, broken) || !strings.Contains(err.Error(), "node here") {
			t.Errorf("%s: %v", verb, err)
		}
	}
}

// What is asked of the API server for a Pod: its binding, its token, its end; each for this Pod and no other of
// its name.
func TestWhatIsAskedForAPod(t *testing.T) {
	client := fake.NewClientset(podOf(nil))
	var token *authenticationv1.TokenRequest
	client.PrependReactor("create", "serviceaccounts", func(a clienttesting.Action) (bool, runtime.Object, error) {
		create := a.(clienttesting.CreateActionImpl)
		if create.Subresource != "token" || create.Name != "pilot" || create.Namespace != "apps" {
			t.Errorf("%+v", create)
		}
		token = create.Object.(*authenticationv1.TokenRequest).DeepCopy()
		token.Status.Token = "secret"
		return true, token, nil
	})
	n := nodeOf(t, client)
	w := n.newWorker(t.Context(), podOf(nil))
	defer w.gone()
	if !w.bind() || !w.setUp() {
		t.Fatal("it is not bound, or has no files")
	}
	var binding *corev1.Binding
	for _, a := range client.Actions() {
		if create, ok := a.(clienttesting.CreateAction); ok && a.GetSubresource() == "binding" {
			binding = create.GetObject().(*corev1.Binding)
		}
	}
	if binding == nil || binding.Name != "one" || binding.Namespace != "apps" || binding.UID != "12345678-9" || binding.Target.Kind != "Node" || binding.Target.Name != "here" {
		t.Errorf("%+v", binding)
	}
	if ref := token.Spec.BoundObjectRef; *token.Spec.ExpirationSeconds != 3600 || ref == nil || *ref != (authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: "one", UID: "12345678-9"}) {
		t.Errorf("%+v", token.Spec)
	}
	if text, err := os.ReadFile(filepath.Join(w.dir, "token")); err != nil || string(text) != "secret" {
		t.Errorf("%v, %q", err, text)
	}
	if info, err := os.Stat(filepath.Join(w.dir, "work")); err != nil || !info.IsDir() {
		t.Errorf("its folder: %v", err)
	}
	if text, err := os.ReadFile(filepath.Join(w.dir, "kubeconfig")); err != nil || !strings.Contains(string(text), filepath.Join(w.dir, "token")) || !strings.Contains(string(text), "http://127.0.0.1:1") || strings.Contains(string(text), "secret") {
		t.Errorf("%v\n%s", err, text)
	}
	w.deleteObject()
	deletion, ok := client.Actions()[len(client.Actions())-1].(clienttesting.DeleteActionImpl)
	if !ok || deletion.Name != "one" || deletion.Namespace != "apps" || *deletion.DeleteOptions.GracePeriodSeconds != 0 || *deletion.DeleteOptions.Preconditions.UID != "12345678-9" {
		t.Errorf("%+v", deletion)
	}
	// One that is bound already is not bound again.
	before := len(client.Actions())
	if bound := n.newWorker(t.Context(), podOf(func(p *corev1.Pod) { p.Spec.NodeName = "here" })); !bound.bind() || len(client.Actions()) != before {
		t.Errorf("%v", client.Actions()[before:])
	}
}

// A binding whose answer was lost is looked for; what went elsewhere or is gone is not ours to run.
func TestABindingThatWasRefused(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, "one", errors.New("bound"))
	missing := apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, "one")
	for name, x := range map[string]struct {
		answer error
		there  *corev1.Pod
		want   bool
	}{
		"bound here":       {conflict, podOf(func(p *corev1.Pod) { p.Spec.NodeName = "here" }), true},
		"bound elsewhere":  {conflict, podOf(func(p *corev1.Pod) { p.Spec.NodeName = "there" }), false},
		"another by name":  {conflict, podOf(func(p *corev1.Pod) { p.Spec.NodeName, p.UID = "here", "another" }), false},
		"gone":             {missing, nil, false},
		"gone by the time": {conflict, nil, false},
	} {
		client := fake.NewClientset()
		if x.there != nil {
			client = fake.NewClientset(x.there)
		}
		client.PrependReactor("create", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, x.answer })
		w := nodeOf(t, client).newWorker(t.Context(), podOf(nil))
		if got := w.bind(); got != x.want {
			t.Errorf("%s: %v", name, got)
		}
		w.gone()
	}
	for name, answer := range map[string]error{"gone": missing, "another's": conflict} {
		client := fake.NewClientset()
		client.PrependReactor("*", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, answer })
		w := nodeOf(t, client).newWorker(t.Context(), podOf(nil))
		w.deleteObject() // which returns
		if err := w.status.write(t.Context()); err != nil {
			t.Errorf("the status of one that is %s: %v", name, err)
		}
		w.gone()
	}
}

// patched is what a status writer would send.
func patched(t *testing.T, w *worker) (status corev1.PodStatus, uid string) {
	t.Helper()
	text, err := w.status.patch()
	if err != nil {
		t.Fatal(err)
	}
	var patch struct {
		Metadata struct {
			UID string `json:"uid"`
		} `json:"metadata"`
		Status corev1.PodStatus `json:"status"`
	}
	if err := json.Unmarshal(text, &patch); err != nil {
		t.Fatal(err)
	}
	for _, c := range patch.Status.Conditions {
		if !strings.Contains(string(text), `"message":"`+c.Message+`"`) || c.Type == corev1.PodReady && !strings.Contains(string(text), `"reason":""`) && c.Reason == "" {
			t.Errorf("what is empty is not said in %s", text)
		}
	}
	return patch.Status, patch.Metadata.UID
}

func ready(s corev1.PodStatus, kind corev1.PodConditionType) corev1.PodCondition {
	for _, c := range s.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return corev1.PodCondition{}
}

// A Pod's status from its address to its end.
func TestTheStatusOfAPod(t *testing.T) {
	w := workerOf(t, nil)
	w.status.placed("127.0.0.9")
	s, uid := patched(t, w)
	if uid != "12345678-9" || s.Phase != corev1.PodPending || s.StartTime.IsZero() || s.HostIP != "127.0.0.2" || len(s.HostIPs) != 1 || s.HostIPs[0].IP != "127.0.0.2" ||
		s.PodIP != "127.0.0.9" || len(s.PodIPs) != 1 || s.PodIPs[0].IP != "127.0.0.9" {
		t.Errorf("%s: %+v", uid, s)
	}
	c := s.ContainerStatuses[0]
	if len(s.ContainerStatuses) != 1 || c.Name != "replica" || c.Image != "sh" || c.State.Waiting.Reason != "ContainerCreating" || *c.Started {
		t.Errorf("%+v", c)
	}
	if r := ready(s, corev1.PodReady); r.Status != corev1.ConditionFalse || r.Reason != "ContainersNotReady" || ready(s, corev1.PodInitialized).Status != corev1.ConditionTrue || len(w.status.changed) != 1 {
		t.Errorf("%+v", s.Conditions)
	}
	w.status.waiting("NoAddress", "why")
	if s, _ = patched(t, w); s.ContainerStatuses[0].State.Waiting.Reason != "NoAddress" || ready(s, corev1.PodReady).Message != "why" {
		t.Errorf("%+v", s)
	}
	w.status.running(17, 2)
	s, _ = patched(t, w)
	if c = s.ContainerStatuses[0]; c.RestartCount != 2 || s.Phase != corev1.PodRunning || c.ContainerID != "process://17" || c.State.Running.StartedAt.IsZero() || c.State.Waiting != nil || !*c.Started || ready(s, corev1.PodReady).Message != "it was not asked yet" {
		t.Errorf("%+v", s)
	}
	began := c.State.Running.StartedAt
	before := ready(s, corev1.PodReady).LastTransitionTime
	w.setReady(true, "")
	s, _ = patched(t, w)
	if r := ready(s, corev1.PodReady); len(s.Conditions) != 3 || r.LastTransitionTime.IsZero() || r.Status != corev1.ConditionTrue || r.Reason != "" || r.Message != "" || ready(s, corev1.ContainersReady).Status != corev1.ConditionTrue || !w.snapshot().Ready || !s.ContainerStatuses[0].Ready {
		t.Errorf("%+v", s.Conditions)
	}
	// The same again is not written again.
	for len(w.status.changed) > 0 {
		<-w.status.changed
	}
	if w.setReady(true, ""); len(w.status.changed) != 0 {
		t.Error("what has not changed is written")
	}
	if w.setReady(false, "deaf"); len(w.status.changed) != 1 || w.snapshot().Ready {
		t.Error("what has changed is not written")
	}
	if s, _ = patched(t, w); ready(s, corev1.PodReady).Message != "deaf" || ready(s, corev1.PodReady).LastTransitionTime.Time.Before(before.Time) {
		t.Errorf("%+v", s.Conditions)
	}
	for script, want := range map[string]corev1.ContainerStateTerminated{
		"exit 0": {ExitCode: 0, Reason: "Completed"}, "exit 3": {ExitCode: 3, Reason: "Error"}, "kill -9 $$": {ExitCode: 137, Reason: "Error"},
	} {
		w.status.running(17, 2)
		w.setReady(true, "")
		cmd := exec.Command("/bin/sh", "-c", script)
		_ = cmd.Run() // whose end is what is looked at
		w.status.ended(cmd.ProcessState)
		s, _ = patched(t, w)
		got := s.ContainerStatuses[0].State.Terminated
		if got == nil || got.ExitCode != want.ExitCode || got.Reason != want.Reason || got.Message != cmd.ProcessState.String() || got.FinishedAt.IsZero() || got.ContainerID != "process://17" ||
			got.StartedAt.Before(&began) || s.ContainerStatuses[0].Ready || ready(s, corev1.PodReady).Message != cmd.ProcessState.String() {
			t.Errorf("%s: %+v", script, s.ContainerStatuses)
		}
		w.status.backOff(time.Second, nil)
		s, _ = patched(t, w)
		if c := s.ContainerStatuses[0]; c.State.Waiting.Reason != "CrashLoopBackOff" || !strings.Contains(c.State.Waiting.Message, "restart after 1s; its output is in "+w.view.Log) || c.LastTerminationState.Terminated.ExitCode != want.ExitCode {
			t.Errorf("%s: %+v", script, c)
		}
		for policy, x := range map[corev1.RestartPolicy]struct {
			over  bool
			phase corev1.PodPhase
		}{
			corev1.RestartPolicyAlways:    {false, corev1.PodRunning},
			corev1.RestartPolicyOnFailure: {want.ExitCode == 0, corev1.PodSucceeded},
			corev1.RestartPolicyNever:     {true, map[bool]corev1.PodPhase{true: corev1.PodSucceeded, false: corev1.PodFailed}[want.ExitCode == 0]},
		} {
			w.status.phase(corev1.PodRunning)
			w.latest.Store(podOf(func(p *corev1.Pod) { p.Spec.RestartPolicy = policy }))
			over := w.finished(cmd.ProcessState)
			if s, _ := patched(t, w); over != x.over || over && s.Phase != x.phase || !over && s.Phase != corev1.PodRunning {
				t.Errorf("%s, %s: over %v, %s", script, policy, over, s.Phase)
			}
		}
	}
	w.status.backOff(time.Second, errors.New("no such program"))
	if s, _ = patched(t, w); s.ContainerStatuses[0].State.Waiting.Reason != "RunContainerError" || s.ContainerStatuses[0].State.Waiting.Message != "no such program" {
		t.Errorf("%+v", s.ContainerStatuses)
	}
}

// Who asks for a log is told what there is not.
func TestWhichLogsThereAre(t *testing.T) {
	n := nodeOf(t, nil)
	w := n.newWorker(t.Context(), podOf(nil))
	defer w.gone()
	n.workers["12345678-9"] = w
	if err := os.MkdirAll(w.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	ask := func(pod, container, query string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodGet, "/?"+query, nil)
		r.SetPathValue("namespace", "apps")
		r.SetPathValue("pod", pod)
		r.SetPathValue("container", container)
		out := httptest.NewRecorder()
		(&endpoint{node: n}).logs(out, r)
		return out
	}
	if got := ask("one", "replica", ""); got.Code != http.StatusBadRequest || !strings.Contains(got.Body.String(), "there was no such process") {
		t.Errorf("before it began: %d %s", got.Code, got.Body)
	}
	for _, text := range []string{"first\n", "first\nsecond\n"} {
		if err := w.mark(); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(w.view.Log, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, x := range map[string]struct {
		pod, container, query string
		code                  int
		body                  string
	}{
		"the present one":   {"one", "replica", "", http.StatusOK, "second\n"},
		"the previous one":  {"one", "replica", "previous=true", http.StatusOK, "first\n"},
		"no such Pod":       {"two", "replica", "", http.StatusNotFound, "apps/two: this node runs no such Pod\n"},
		"no such container": {"one", "sidecar", "", http.StatusNotFound, "the Pod has no container \"sidecar\" here\n"},
		"not understood":    {"one", "replica", "tailLines=all", http.StatusBadRequest, ""},
	} {
		got := ask(x.pod, x.container, x.query)
		if got.Code != x.code || x.body != "" && got.Body.String() != x.body || strings.Contains(got.Body.String(), "no such process") {
			t.Errorf("%s: %d %q", name, got.Code, got.Body)
		}
		if x.code == http.StatusOK && got.Header().Get("Content-Type") != "text/plain" {
			t.Errorf("%s: %v", name, got.Header())
		}
	}
	// After a Pod of the same name the newer one counts.
	newer := n.newWorker(t.Context(), podOf(func(p *corev1.Pod) { p.UID, p.CreationTimestamp = "another", metav1.Now() }))
	defer newer.gone()
	n.workers["another"] = newer
	if n.worker("apps", "one") != newer {
		t.Error("the older one counts")
	}
}
