package deploy

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"incumbent.dev/incumbent/internal/testutil/logs"
	"incumbent.dev/incumbent/internal/testutil/waits"
	"incumbent.dev/incumbent/pilot/bootstrap"
	"incumbent.dev/incumbent/pilot/bootstrap/manifests"
	"incumbent.dev/incumbent/pkg/kube"
	"incumbent.dev/incumbent/tests/cluster"
)

func TestMain(m *testing.M) { cluster.Main(m, cluster.Options{WithoutControllers: true}) }

// field is a namespace with Gateways of the first of two revisions.
type field struct {
	*testing.T
	cluster *cluster.Cluster
	admin   kube.Client
	// system is the namespace of both servers.
	system, home string
	revisions    [2]string
	logs         [2]*logs.Buffer
}

func newField(t *testing.T) *field {
	t.Helper()
	c := cluster.Shared(t)
	if err := c.LoadGatewayAPI(t.Context()); err != nil {
		t.Fatal(err)
	}
	f := &field{T: t, cluster: c, admin: c.Client(t), system: c.Namespace(t), home: c.Namespace(t)}
	f.revisions = [2]string{f.system, f.system + "-next"}
	f.own(f.home, 0)
	for i, revision := range f.revisions {
		f.serve(i, revision)
	}
	return f
}

// own moves a namespace to a revision.
func (f *field) own(namespace string, revision int) {
	f.Helper()
	f.patch("namespaces", "", namespace, fmt.Sprintf(`{"metadata":{"labels":{"istio.io/rev":%q}}}`, f.revisions[revision]))
}

// serve runs the server of a revision until the test ends.
func (f *field) serve(i int, revision string) {
	f.Helper()
	f.logs[i] = &logs.Buffer{}
	config := bootstrap.Config{
		Namespace: f.system, Revision: revision, Address: "127.0.0.1:0", CABundle: "../../../../pilot/bootstrap/testdata/ca.pem", IngressMode: "OFF",
		LeaseDuration: 60 * time.Second, RenewDeadline: 40 * time.Second, RetryPeriod: time.Second,
		Identity: fmt.Sprintf("pod-%d", i), Logger: slog.New(slog.NewTextHandler(f.logs[i], nil)),
	}
	rights := bootstrap.Rights(config)
	config.RESTConfig = f.cluster.Identity(f.T, cluster.IdentityOptions{
		Namespace: f.system, PodName: config.Identity, ServiceAccount: "pilot-" + revision,
		Rules: manifests.NamespaceRules(rights), ClusterRules: manifests.ClusterRules(rights),
	})
	server, err := bootstrap.New(config)
	f.must(err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(f.Context()))
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	f.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			f.Error(err)
		}
		if f.Failed() {
			f.Logf("%s logged:\n%s", revision, f.logs[i].String())
		}
	})
}

func (f *field) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

func (f *field) until(what string, holds func() bool) {
	f.Helper()
	waits.Until(f.T, what, holds)
}

var kinds = map[string]schema.GroupVersionResource{
	"Gateway":                 {Group: "gateway.networking.k8s.io", Version: "v1", Resource: "gateways"},
	"GatewayClass":            {Group: "gateway.networking.k8s.io", Version: "v1", Resource: "gatewayclasses"},
	"ConfigMap":               {Version: "v1", Resource: "configmaps"},
	"ServiceAccount":          {Version: "v1", Resource: "serviceaccounts"},
	"Service":                 {Version: "v1", Resource: "services"},
	"Deployment":              {Group: "apps", Version: "v1", Resource: "deployments"},
	"HorizontalPodAutoscaler": {Group: "autoscaling", Version: "v2", Resource: "horizontalpodautoscalers"},
	"PodDisruptionBudget":     {Group: "policy", Version: "v1", Resource: "poddisruptionbudgets"},
	"namespaces":              {Version: "v1", Resource: "namespaces"},
}

// apply creates the objects of a YAML text. Objects without namespace are created in home.
func (f *field) apply(text string) {
	f.Helper()
	for _, document := range strings.Split(text, "\n---\n") {
		o := &unstructured.Unstructured{}
		f.must(yaml.Unmarshal([]byte(document), &o.Object))
		resource := f.admin.Dynamic().Resource(kinds[o.GetKind()])
		var err error
		if o.GetKind() == "GatewayClass" {
			_, err = resource.Create(f.Context(), o, metav1.CreateOptions{})
			f.Cleanup(func() { _ = resource.Delete(context.WithoutCancel(f.Context()), o.GetName(), metav1.DeleteOptions{}) })
		} else {
			if o.GetNamespace() == "" {
				o.SetNamespace(f.home)
			}
			_, err = resource.Namespace(o.GetNamespace()).Create(f.Context(), o, metav1.CreateOptions{})
		}
		f.must(err)
	}
}

// gateway creates a Gateway with a listener and these lines of YAML.
func (f *field) gateway(name, class, metadata, spec string) {
	f.Helper()
	f.apply(fmt.Sprintf(`{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {name: %q, %s},
spec: {gatewayClassName: %s, listeners: [{name: http, port: 80, protocol: HTTP}], %s}}`, name, metadata, class, spec))
}

// patch changes an object with a merge patch.
func (f *field) patch(kind, namespace, name, patch string, subresource ...string) {
	f.Helper()
	_, err := f.admin.Dynamic().Resource(kinds[kind]).Namespace(namespace).Patch(f.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "kubectl"}, subresource...)
	f.must(err)
}

// get returns an object of home, or nil.
func (f *field) get(kind, name string) *unstructured.Unstructured {
	f.Helper()
	o, err := f.admin.Dynamic().Resource(kinds[kind]).Namespace(f.home).Get(f.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	f.must(err)
	return o
}

// exists waits until objects of home exist.
func (f *field) exists(name string, of ...string) {
	f.Helper()
	for _, kind := range of {
		f.until(kind+" "+name+" exists", func() bool { return f.get(kind, name) != nil })
	}
}

// gone waits until objects of home do not exist.
func (f *field) gone(name string, of ...string) {
	f.Helper()
	for _, kind := range of {
		f.until(kind+" "+name+" is gone", func() bool { return f.get(kind, name) == nil })
	}
}

// workload lists the objects of each Gateway.
var workload = []string{"ServiceAccount", "Service", "Deployment"}

// served sets the status of the objects as after a rollout.
func (f *field) served(name string) {
	f.Helper()
	f.exists(name, workload...)
	f.patch("Deployment", f.home, name, fmt.Sprintf(`{"status":{"observedGeneration":%d,"replicas":1,"updatedReplicas":1,"readyReplicas":1,"availableReplicas":1,
"conditions":[{"type":"Available","status":"True"}]}}`, f.get("Deployment", name).GetGeneration()), "status")
	f.patch("Service", f.home, name, `{"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.1"}]}}}`, "status")
}

// condition waits until a condition of a Gateway has a status, a reason and a message.
func (f *field) condition(gateway, kind, status, reason, message string) {
	f.Helper()
	var last string
	defer func() {
		if f.Failed() {
			f.Logf("condition %s: %s", kind, last)
		}
	}()
	f.until(fmt.Sprintf("Gateway %s has %s=%s/%s %q", gateway, kind, status, reason, message), func() bool {
		all, _, _ := unstructured.NestedSlice(f.get("Gateway", gateway).Object, "status", "conditions")
		return slices.ContainsFunc(all, func(c any) bool {
			is, _ := c.(map[string]any)
			if is["type"] == kind {
				last = fmt.Sprint(is)
			}
			return is["type"] == kind && is["status"] == status && is["reason"] == reason && strings.Contains(fmt.Sprint(is["message"]), message)
		})
	})
}

// events returns the Events of a Gateway with a reason.
func (f *field) events(gateway, reason string) []corev1.Event {
	f.Helper()
	all, err := f.admin.Kube().CoreV1().Events(f.home).List(f.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + gateway + ",reason=" + reason})
	f.must(err)
	return all.Items
}

// problem waits until a Gateway has an Event and a condition with the same message.
func (f *field) problem(gateway, event, kind, status, reason, message string) {
	f.Helper()
	f.condition(gateway, kind, status, reason, message)
	f.until("Gateway "+gateway+" has Event "+event, func() bool { return len(f.events(gateway, event)) > 0 })
	if all := f.events(gateway, event); len(all) != 1 || !strings.Contains(all[0].Message, message) {
		f.Errorf("Events: %+v", all)
	}
}
