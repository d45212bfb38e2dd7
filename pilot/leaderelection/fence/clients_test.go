package fence_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/pilot/leaderelection/fence"
	le "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

func TestNotLeaderError_ThroughClients(t *testing.T) {
	gate, _, _ := newGate()
	config := &rest.Config{Host: "http://127.0.0.1:1", QPS: -1}
	config.Wrap(gate.Transport)
	typed, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	untyped, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	maps := typed.CoreV1().ConfigMaps("a")
	loose := untyped.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace("a")
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "b"}}}
	for what, write := range map[string]func() error{
		"create": func() error {
			_, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "b"}}, metav1.CreateOptions{})
			return err
		},
		"update": func() error {
			_, err := maps.Update(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "b"}}, metav1.UpdateOptions{})
			return err
		},
		"patch": func() error {
			_, err := maps.Patch(t.Context(), "b", types.MergePatchType, []byte("{}"), metav1.PatchOptions{})
			return err
		},
		"apply": func() error {
			_, err := maps.Apply(t.Context(), applycorev1.ConfigMap("b", "a"), metav1.ApplyOptions{FieldManager: "x"})
			return err
		},
		"delete":     func() error { return maps.Delete(t.Context(), "b", metav1.DeleteOptions{}) },
		"delete all": func() error { return maps.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}) },
		"dynamic create": func() error {
			_, err := loose.Create(t.Context(), object, metav1.CreateOptions{})
			return err
		},
		"dynamic apply": func() error {
			_, err := loose.Apply(t.Context(), "b", object, metav1.ApplyOptions{FieldManager: "x"})
			return err
		},
		"exec": func() error {
			return typed.CoreV1().RESTClient().Post().Namespace("a").Resource("pods").Name("b").SubResource("exec").
				VersionedParams(&corev1.PodExecOptions{Command: []string{"true"}, Stdout: true}, scheme.ParameterCodec).Do(t.Context()).Error()
		},
		// As client-go's websocket executor begins: a GET, whose Upgrade header is set further down.
		"exec by websocket": func() error {
			return typed.CoreV1().RESTClient().Get().Namespace("a").Resource("pods").Name("b").SubResource("exec").
				SetHeader("Sec-Websocket-Protocol", "v5.channel.k8s.io").Do(t.Context()).Error()
		},
	} {
		var refused *fence.NotLeaderError
		if err := write(); !errors.Is(err, fence.ErrNotLeader) || !errors.As(err, &refused) || refused.Election != "istio-leader" || refused.Reason == "" {
			t.Errorf("%s: %v", what, err)
		}
	}
	if byGate, byFence := gate.Refused(); byGate != 10 || byFence != 0 {
		t.Errorf("%d refused by the gate, %d by the fence", byGate, byFence)
	}
	if _, err := maps.Get(t.Context(), "b", metav1.GetOptions{}); errors.Is(err, fence.ErrNotLeader) || err == nil {
		t.Errorf("a read did not get out: %v", err)
	}
}

func TestTransport_RejectsUpgrades(t *testing.T) {
	gate, clock, _ := newGate()
	gate.Set(le.Term{Token: 7}, clock.Now().Plus(time.Hour))
	for path, refused := range map[string]bool{
		"/api/v1/namespaces/a/pods/b/exec":               true,
		"/api/v1/namespaces/a/pods/b/attach":             true,
		"/prefix/api/v1/namespaces/a/pods/b/portforward": true,
		"/api/v1/namespaces/a/pods/exec":                 false,
		"/api/v1/namespaces/exec":                        false,
		"/api/v1/namespaces/a/services/b/proxy/apis/authorization.k8s.io/v1/subjectaccessreviews":              false,
		"/apis/apps/v1/namespaces/a/deployments/b/exec":                                                        false,
		"/api/v1/namespaces/a/pods/b/proxy/exec":                                                               false,
		"/api/v1/namespaces/portforward/pods/attach":                                                           false,
		"/apis/example.com/v1/namespaces/a/things/b/api/v1/namespaces/a/pods/b/exec-is-no-subresource-of-this": false,
	} {
		if err := send(t, gate, server{}, "GET", path); errors.Is(err, fence.ErrUpgrade) != refused {
			t.Errorf("%s: %v", path, err)
		}
	}
	if err := send(t, gate, server{}, "GET", "/api/v1/nodes", "Upgrade"); !errors.Is(err, fence.ErrUpgrade) {
		t.Errorf("a request with the header: %v", err)
	}
	shut, _, _ := newGate()
	for _, path := range []string{"/api/v1/nodes/a/proxy/x", "/api/v1/namespaces/a/services/b/proxy/apis/authorization.k8s.io/v1/subjectaccessreviews"} {
		if err := send(t, shut, server{}, "POST", path); !errors.Is(err, fence.ErrNotLeader) {
			t.Errorf("%s passed as a read: %v", path, err)
		}
	}
}

// judge refuses a number of requests, by the words of a policy, and then answers.
type judge struct {
	refusals int
	words    string
	got      []string
}

func (j *judge) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	j.got = append(j.got, string(body))
	if len(j.got) <= j.refusals {
		return &http.Response{StatusCode: http.StatusForbidden, Body: io.NopCloser(strings.NewReader(j.words)), Request: req}, nil
	}
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("done")), Request: req}, nil
}

const ours = `{"message":"ValidatingAdmissionPolicy 'incumbent-fence.a.b.lease.work-1' with binding 'x' denied request: no"}`

func TestTransport_RetriesFenceRejections(t *testing.T) {
	for name, c := range map[string]struct {
		judge judge
		age   time.Duration
		want  string
		tries int
	}{
		"lag":              {judge{refusals: 3, words: ours}, 0, "done", 4},
		"for good":         {judge{refusals: 1000, words: ours}, 0, ours, 36},
		"long lag":         {judge{refusals: 15, words: ours}, 0, "done", 16},
		"an old term":      {judge{refusals: 3, words: ours}, time.Second, "done", 4},
		"another's":        {judge{refusals: 3, words: `{"message":"forbidden: RBAC"}`}, 0, `{"message":"forbidden: RBAC"}`, 1},
		"another policy's": {judge{refusals: 3, words: `ValidatingAdmissionPolicy 'theirs' denied`}, 0, `ValidatingAdmissionPolicy 'theirs' denied`, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				gate, clock, _ := newGate()
				gate.Set(le.Term{Token: 7}, clock.Now().Plus(15*time.Second))
				time.Sleep(c.age)
				gate.Set(le.Term{Token: 7}, clock.Now().Plus(15*time.Second)) // a renewal is no new term
				req, err := http.NewRequestWithContext(t.Context(), "POST", "http://127.0.0.1/x", strings.NewReader("body"))
				if err != nil {
					t.Fatal(err)
				}
				resp, err := gate.Transport(&c.judge).RoundTrip(req)
				if err != nil {
					t.Fatal(err)
				}
				got, err := io.ReadAll(resp.Body)
				if err != nil || string(got) != c.want {
					t.Errorf("answer %q, %v", got, err)
				}
				if err := resp.Body.Close(); err != nil {
					t.Error(err)
				}
				if len(c.judge.got) != c.tries || strings.Join(c.judge.got, "") != strings.Repeat("body", c.tries) {
					t.Errorf("sent %q", c.judge.got)
				}
				gate.Drain() // nothing is under way any more
				if byGate, byFence := gate.Refused(); byGate != 0 || (byFence > 0) != (c.judge.words == ours) {
					t.Errorf("%d refused by the gate, %d by the fence", byGate, byFence)
				}
			})
		})
	}
}
