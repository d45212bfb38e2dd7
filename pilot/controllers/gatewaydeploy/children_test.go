package gatewaydeploy

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"incumbent.dev/incumbent/internal/testutil/apiserver"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/controllers/reconcile"
)

func TestKept_Children(t *testing.T) {
	ours, others := meta("shop", "web"), meta("shop", "web")
	ours.Labels = map[string]string{ManagedLabel: "of istiod"}
	deployment := func(meta metav1.ObjectMeta) *appsv1.Deployment {
		return &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{MinReadySeconds: 3}, Status: appsv1.DeploymentStatus{Replicas: 2}}
	}
	want := deployment(*ours.DeepCopy())
	want.Status, want.ManagedFields = appsv1.DeploymentStatus{}, ours.ManagedFields[:1]
	// Repairs of an object are equal if they write the same content.
	ours.Annotations["deployment.kubernetes.io/revision"] = "7"
	if got := kept(Deployment, deployment(ours), keepDeployment); !reflect.DeepEqual(got, want) {
		t.Errorf("managed: kept\n%+v, want\n%+v", got, want)
	}
	// Former objects are deleted if these are in service.
	ready := deployment(ours)
	ready.Status = appsv1.DeploymentStatus{ObservedGeneration: ours.Generation, Replicas: 3, UpdatedReplicas: 3, AvailableReplicas: 2}
	if got := keepDeployment(ready); !rolledOut(got) || rolledOut(keepDeployment(deployment(ours))) {
		t.Errorf("rolled out: kept %+v", got.Status)
	}
	addressed := &corev1.Service{ObjectMeta: ours}
	addressed.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}
	if len(keepService(addressed).Status.LoadBalancer.Ingress) == 0 || len(keepService(&corev1.Service{ObjectMeta: ours}).Status.LoadBalancer.Ingress) > 0 {
		t.Error("it is not kept whether a Service has an address")
	}
	if got, want := kept(Deployment, deployment(others), keepDeployment), (&appsv1.Deployment{ObjectMeta: slim("shop", "web")}); !reflect.DeepEqual(got, want) {
		t.Errorf("not managed: kept\n%+v, want\n%+v", got, want)
	}
}

func TestManagedFieldsEntries(t *testing.T) {
	entries := []metav1.ManagedFieldsEntry{
		{Manager: reconcile.GatewayController, Operation: metav1.ManagedFieldsOperationUpdate},
		{Manager: reconcile.GatewayController, Operation: metav1.ManagedFieldsOperationApply},
		{Manager: reconcile.GatewayController, Operation: metav1.ManagedFieldsOperationUpdate, Subresource: "status"},
		{Manager: "kubectl", Operation: metav1.ManagedFieldsOperationUpdate},
	}
	if got := ourFields(entries); !reflect.DeepEqual(got, entries[:2]) {
		t.Errorf("ours are %+v", got)
	}
	for i, want := range []bool{true, false, false, false} {
		o := &corev1.Service{ObjectMeta: metav1.ObjectMeta{ManagedFields: entries[i : i+1]}}
		if got := created(o); got != want {
			t.Errorf("%+v: created: %v", entries[i], got)
		}
	}
}

func TestApply_WithClaim(t *testing.T) {
	object := func(version string, managers ...any) map[string]any {
		return map[string]any{"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{
			"name": "web", "namespace": "shop", "resourceVersion": version, "managedFields": managers,
		}}
	}
	owned := map[string]any{
		"manager": reconcile.GatewayController, "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": map[string]any{"f:spec": map[string]any{"f:type": map[string]any{}}},
	}
	failure := apiserver.Fault{Err: apierrors.NewInternalError(errors.New("out of order"))}
	for name, c := range map[string]struct {
		get, patch apiserver.Fault
		err        string
		requests   string
	}{
		"get fails":                   {get: failure, err: "out of order", requests: "get"},
		"get returns another version": {get: apiserver.Fault{Object: object("43", owned)}, err: "version is 43, expected 42", requests: "get"},
		"claim fails":                 {get: apiserver.Fault{Object: object("42", owned)}, patch: failure, err: "out of order", requests: "get patch"},
		"already claimed":             {get: apiserver.Fault{Object: object("42")}, patch: apiserver.Fault{Object: object("44")}, requests: "get apply 42"},
		"claimed":                     {get: apiserver.Fault{Object: object("42", owned)}, patch: apiserver.Fault{Object: object("44")}, requests: "get patch apply 44"},
	} {
		t.Run(name, func(t *testing.T) {
			var requests []string
			server := apiserver.New()
			server.On(func(r apiserver.Request) apiserver.Fault {
				verb := r.Verb
				if r.Header.Get("Content-Type") == string(types.ApplyPatchType) {
					sent := unstructured.Unstructured{Object: r.Body}
					verb = "apply " + sent.GetResourceVersion()
					if r.URL.Query().Get("force") != "true" || r.URL.Query().Get("fieldManager") != reconcile.GatewayController {
						t.Errorf("the apply is %s", r.URL)
					}
				}
				requests = append(requests, verb)
				if r.Verb == "patch" {
					return c.patch
				}
				return c.get
			})
			client, err := dynamic.NewForConfig(server.Config())
			harness.Must(t, err)
			document := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Service"}}
			document.SetResourceVersion("42")
			got, err := apply(t.Context(), client.Resource(Service.Resource()).Namespace("shop"), step{Kind: Service, Namespace: "shop", Name: "web", Document: document.Object, Claim: true})
			if c.err == "" && (err != nil || got.GetResourceVersion() != "44") || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
				t.Errorf("the result is %+v, %v, want %q", got, err, c.err)
			}
			if all := strings.Join(requests, " "); all != c.requests {
				t.Errorf("requests: %s, want %s", all, c.requests)
			}
		})
	}
}
