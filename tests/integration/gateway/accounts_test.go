package gateway

import (
	"context"
	"os"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
	gatewayclient "sigs.k8s.io/gateway-api/pkg/client/clientset/versioned/typed/apis/v1"
	"sigs.k8s.io/yaml"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/tests/cluster"
	objects "incumbent.dev/incumbent/tests/upgrade/workload"
)

// installAccountPolicy creates the policy of the chart for the annotation of the ServiceAccount.
func (p *plane) installAccountPolicy() {
	p.Helper()
	content, err := os.ReadFile("../../../deploy/kustomize/stable/rendered.yaml")
	harness.Must(p.T, err)
	installed := 0
	for _, document := range strings.Split(string(content), "\n---\n") {
		o := &unstructured.Unstructured{}
		harness.Must(p.T, yaml.Unmarshal([]byte(document), &o.Object))
		if !strings.HasPrefix(o.GetName(), "incumbent-accounts.") {
			continue
		}
		resource := map[string]string{"ValidatingAdmissionPolicy": "validatingadmissionpolicies", "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings"}[o.GetKind()]
		client := p.admin.Dynamic().Resource(schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: resource})
		_, err := client.Create(p.Context(), o, metav1.CreateOptions{})
		harness.Must(p.T, err)
		p.Cleanup(func() {
			harness.Must(p.T, client.Delete(context.WithoutCancel(p.Context()), o.GetName(), metav1.DeleteOptions{}))
		})
		installed++
	}
	if installed != 2 {
		p.Fatalf("%d objects, want a policy and its binding", installed)
	}
}

// A user who creates Gateways may name only the accounts that the user may use. Later writes of other users are not affected.
func TestAccountPolicy(t *testing.T) {
	p := newPlane(t)
	user := func(name string, more ...rbacv1.PolicyRule) gatewayclient.GatewayInterface {
		rules := append(more, rbacv1.PolicyRule{APIGroups: []string{gateway.GroupName}, Resources: []string{"gateways", "gateways/status"}, Verbs: []string{"get", "create", "patch", "update"}})
		config := p.cluster.Identity(t, cluster.IdentityOptions{Namespace: p.home, PodName: name, Rules: rules})
		api, err := gatewayclient.NewForConfig(cluster.ClientFor(t, config).RESTConfig())
		harness.Must(p.T, err)
		return api.Gateways(p.home)
	}
	account := func(verb string, names ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"serviceaccounts"}, ResourceNames: names, Verbs: []string{verb}}
	}
	plain := user("plain")
	using := user("using", account("use", "allowed"))
	editor := user("editor", account("impersonate"))
	create := func(as gatewayclient.GatewayInterface, name string, annotations map[string]string) error {
		_, err := as.Create(t.Context(), objects.Gateway(metav1.ObjectMeta{Name: name, Annotations: annotations}, ""), metav1.CreateOptions{})
		return err
	}
	patch := func(as gatewayclient.GatewayInterface, name, patch string, subresources ...string) error {
		_, err := as.Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
		return err
	}
	named := func(account string) map[string]string {
		return map[string]string{"gateway.istio.io/service-account": account, "other": "a"}
	}
	harness.Must(p.T, create(plain, "before", named("secret"))) // before the policy
	p.installAccountPolicy()
	attempt := 0
	p.until("the policy is in effect", func() bool {
		attempt++
		return apierrors.IsForbidden(create(plain, "attempt-"+strings.Repeat("a", attempt), named("secret")))
	})
	harness.Must(p.T, create(p.api.Gateways(p.home), "of-admin", named("secret")))
	const set, other = `{"metadata":{"annotations":{"gateway.istio.io/service-account":"secret"}}}`, `{"metadata":{"labels":{"a":"b"},"annotations":{"other":"b"}}}`
	for name, c := range map[string]struct {
		err     error
		allowed bool
	}{
		"create without annotations":    {create(plain, "plain", nil), true},
		"create with an empty account":  {create(plain, "empty", named("")), true},
		"create with the account":       {create(plain, "denied", named("allowed")), false},
		"set the account":               {patch(plain, "plain", set), false},
		"user of the account":           {create(using, "using", named("allowed")), true},
		"user of another account":       {create(using, "secret", named("secret")), false},
		"change to another account":     {patch(using, "using", set), false},
		"editor":                        {create(editor, "editor", named("secret")), true},
		"label by another user":         {patch(plain, "of-admin", other), true},
		"status by another user":        {patch(plain, "of-admin", `{"status":{"addresses":[{"value":"192.0.2.1"}]}}`, "status"), true},
		"label of a Gateway before":     {patch(plain, "before", other), true},
		"the same account":              {patch(plain, "of-admin", set), true},
		"another account by other user": {patch(plain, "of-admin", strings.Replace(set, "secret", "more", 1)), false},
		"removal of the account":        {patch(plain, "before", strings.Replace(set, `"secret"`, "null", 1)), true},
	} {
		if c.allowed && c.err != nil || !c.allowed && (!apierrors.IsForbidden(c.err) || !strings.Contains(c.err.Error(), "needs the permission to use serviceaccounts")) {
			t.Errorf("%s: %v", name, c.err)
		}
	}
}
