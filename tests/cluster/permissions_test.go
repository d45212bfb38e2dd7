package cluster

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// An identity's account gets its rules, and these in the place of earlier ones.
func TestWhatAnIdentityIsGiven(t *testing.T) {
	client := fake.NewClientset()
	options := IdentityOptions{Namespace: "n", PodName: "p", ServiceAccount: "a"}
	for _, verb := range []string{"get", "list"} {
		options.Rules = []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{verb}}}
		options.ClusterRules = []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{verb}}}
		if err := allow(t.Context(), client, options); err != nil {
			t.Fatal(err)
		}
		role, err := client.RbacV1().Roles("n").Get(t.Context(), "a", metav1.GetOptions{})
		if err != nil || !reflect.DeepEqual(role.Rules, options.Rules) {
			t.Errorf("%s: the role is %+v, %v", verb, role, err)
		}
		everywhere, err := client.RbacV1().ClusterRoles().Get(t.Context(), "n:a", metav1.GetOptions{})
		if err != nil || !reflect.DeepEqual(everywhere.Rules, options.ClusterRules) {
			t.Errorf("%s: the cluster role is %+v, %v", verb, everywhere, err)
		}
	}
	subjects := []rbacv1.Subject{{Kind: "ServiceAccount", Name: "a", Namespace: "n"}}
	bound, err := client.RbacV1().RoleBindings("n").Get(t.Context(), "a", metav1.GetOptions{})
	if want := (rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "Role", Name: "a"}); err != nil || bound.RoleRef != want || !reflect.DeepEqual(bound.Subjects, subjects) {
		t.Errorf("the binding is %+v, %v", bound, err)
	}
	everywhere, err := client.RbacV1().ClusterRoleBindings().Get(t.Context(), "n:a", metav1.GetOptions{})
	if want := (rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "n:a"}); err != nil || everywhere.RoleRef != want || !reflect.DeepEqual(everywhere.Subjects, subjects) {
		t.Errorf("the cluster-wide binding is %+v, %v", everywhere, err)
	}
	none := fake.NewClientset()
	if err := allow(t.Context(), none, IdentityOptions{Namespace: "n", ServiceAccount: "a"}); err != nil || len(none.Actions()) > 0 {
		t.Errorf("without rules: %v, %v", err, none.Actions())
	}
}

// What is refused on the way to an identity is said, by what it was about.
func TestWhatAnIdentityIsRefused(t *testing.T) {
	options := IdentityOptions{
		Namespace: "n", PodName: "p", ServiceAccount: "a",
		Rules: []rbacv1.PolicyRule{{Verbs: []string{"get"}}}, ClusterRules: []rbacv1.PolicyRule{{Verbs: []string{"get"}}},
	}
	refused := errors.New("refused")
	for resource, says := range map[string]string{
		"roles": "giving role a its rules: refused", "rolebindings": "binding role a: refused",
		"clusterroles": "giving cluster role n:a its rules: refused", "clusterrolebindings": "binding cluster role n:a: refused",
	} {
		client := fake.NewClientset()
		client.PrependReactor("create", resource, func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, refused })
		if err := allow(t.Context(), client, options); err == nil || err.Error() != says {
			t.Errorf("%s: %v", resource, err)
		}
	}
	client := fake.NewClientset()
	for range 2 { // one that is there stays
		if err := ensureServiceAccount(t.Context(), client, "n", "a"); err != nil {
			t.Error(err)
		}
	}
	if _, err := client.CoreV1().ServiceAccounts("n").Get(t.Context(), "a", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	client.PrependReactor("create", "serviceaccounts", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, refused })
	if err := ensureServiceAccount(t.Context(), client, "n", "a"); err == nil || err.Error() != "creating the service account n/a: refused" {
		t.Errorf("the account: %v", err)
	}
	if _, err := podToken(t.Context(), client, identityPod(options)); err == nil || err.Error() != "requesting a token of service account a: refused" {
		t.Errorf("the token: %v", err)
	}
}

// A token is one's Pod's, whose account the options name.
func TestWhatAnIdentityAsksFor(t *testing.T) {
	pod := identityPod(IdentityOptions{Namespace: "n", PodName: "p", ServiceAccount: "a"})
	if pod.Namespace != "n" || pod.Name != "p" || pod.Spec.ServiceAccountName != "a" || pod.Spec.SchedulerName == corev1.DefaultSchedulerName || pod.Spec.SchedulerName == "" || len(pod.Spec.Containers) != 1 {
		t.Errorf("the Pod is %+v", pod)
	}
	pod.UID = "uid"
	client := fake.NewClientset()
	client.PrependReactor("create", "serviceaccounts", func(action clienttesting.Action) (bool, runtime.Object, error) {
		create, ok := action.(clienttesting.CreateActionImpl)
		if !ok || create.Name != "a" || create.Subresource != "token" {
			t.Errorf("asked for %+v", action)
			return false, nil, nil
		}
		request, _ := create.Object.(*authenticationv1.TokenRequest)
		if ref := request.Spec.BoundObjectRef; request.Spec.ExpirationSeconds == nil || *request.Spec.ExpirationSeconds != tokenSeconds || ref == nil ||
			*ref != (authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "uid"}) {
			t.Errorf("asked for %+v", request.Spec)
		}
		return true, &authenticationv1.TokenRequest{Status: authenticationv1.TokenRequestStatus{Token: "secret"}}, nil
	})
	if token, err := podToken(t.Context(), client, pod); err != nil || token != "secret" {
		t.Errorf("%q, %v", token, err)
	}
}

// Of a folder the definitions are read, wherever in its files they stand, and nothing else.
func TestADefinitionIsReadOfAFolder(t *testing.T) {
	folder := t.TempDir()
	put := func(name, text string) {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if found, err := readDefinitions(folder); err == nil || !strings.Contains(err.Error(), "there are none in "+folder) {
		t.Errorf("of an empty folder: %v, %v", found, err)
	}
	definition := func(name string) string { return "kind: CustomResourceDefinition\nmetadata: {name: " + name + "}\n" }
	put("a.yaml", "kind: ConfigMap\nmetadata: {name: x}\n---\n"+definition("one")+"---\n"+definition("two"))
	put("b.yaml", definition("three"))
	put("c.json", definition("four"))
	found, err := readDefinitions(folder)
	var names []string
	for _, object := range found {
		names = append(names, object.GetName())
	}
	if got := strings.Join(names, " "); err != nil || got != "one two three" {
		t.Errorf("%q, %v", got, err)
	}
	put("d.yaml", "a: [")
	if _, err := readDefinitions(folder); err == nil || !strings.Contains(err.Error(), filepath.Join(folder, "d.yaml")) {
		t.Errorf("of a file that is no YAML: %v", err)
	}
	if err := errors.Join(os.Remove(filepath.Join(folder, "d.yaml")), os.Mkdir(filepath.Join(folder, "d.yaml"), 0o700)); err != nil {
		t.Fatal(err)
	}
	if _, err := readDefinitions(folder); err == nil {
		t.Error("what is a folder was read")
	}
}

// The folder of a module is the one that the go command names; what it cannot find is said.
func TestADefinitionsModule(t *testing.T) {
	if folder, err := moduleFolder(t.Context(), "k8s.io/client-go@none"); err == nil || folder != "" || !strings.Contains(err.Error(), "locating module k8s.io/client-go@none") {
		t.Errorf("of a version that there is not: %q, %v", folder, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := moduleFolder(ended, "k8s.io/client-go"); err == nil || !strings.Contains(err.Error(), "with the go command") {
		t.Errorf("after the end: %v", err)
	}
}

// kubectl is the one beside the servers, if it is there.
func TestWhichServersKubectlIsUsed(t *testing.T) {
	folder := t.TempDir()
	if got := (&Cluster{assets: folder}).Kubectl(); got != "kubectl" {
		t.Errorf("without one: %s", got)
	}
	own := filepath.Join(folder, "kubectl")
	if err := os.WriteFile(own, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := (&Cluster{assets: folder}).Kubectl(); got != own {
		t.Errorf("with one: %s, want %s", got, own)
	}
	t.Chdir(folder)
	if got := (&Cluster{}).Kubectl(); got != "kubectl" {
		t.Errorf("of a cluster that was there: %s", got)
	}
}
