package manifests

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

var rewrite = flag.Bool("rewrite", false, "write the rendered manifests to testdata")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// full sets each field to a different value.
func full() Values {
	return Values{
		Namespace: "mesh", Name: "plane", Revision: "canary", Rights: rights(), Image: "registry.example/plane:1", Replicas: 3,
		Address: "$(POD_IP):15099", DebugAddress: "$(POD_IP):15098", CABundle: "/etc/other/ca.pem", CABundleConfigMap: "the-bundle",
		RemoteKubeconfigSecret: "the-remote", GuardedLeases: []string{"lock-c-canary"},
		LeaseDuration: 40 * time.Second, RenewDeadline: 30 * time.Second, RetryPeriod: 5 * time.Second,
		Args: []string{"--pprof", "--log-level=debug"}, Env: map[string]string{"ZONE": "z", "ENABLE_WRITE_FENCE": "true"},
	}
}

// rights returns example rights.
func rights() Rights {
	return Rights{
		ConfigMaps: []string{"lock-a", "lock-b"}, Leases: []string{"lock-b", "lock-c-canary"},
		Home:       []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list"}}},
		Everywhere: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"list"}}},
	}
}

func minimal() Values { return Values{Rights: Rights{Leases: []string{"lock"}}, Image: "pilot"} }

// TestManifests_Golden compares the complete manifests with the files in testdata, so that a reviewer sees every change.
func TestManifests_Golden(t *testing.T) {
	many := minimal()
	many.Rights.Leases = []string{"a", "b", "c", "d"}
	alone := Values{WithoutElections: true, Rights: rights(), Image: "pilot"}
	for name, values := range map[string]Values{"minimal": minimal(), "full": full(), "many-locks": many, "without-elections": alone} {
		all, err := Make(values)
		if err != nil {
			t.Fatal(err)
		}
		got := text(t, all...)
		file := filepath.Join("testdata", name+".yaml")
		if *rewrite {
			if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s is out of date; update it with go test -rewrite:\n%s", file, difference(string(want), got))
		}
	}
}

func text(t *testing.T, objects ...runtime.Object) string {
	t.Helper()
	var all strings.Builder
	for _, object := range objects {
		content, err := yaml.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		all.WriteString("---\n" + string(content))
	}
	return all.String()
}

// difference returns the first lines that differ.
func difference(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range min(len(w), len(g)) {
		if w[i] != g[i] {
			return "want " + w[i] + "\ngot  " + g[i]
		}
	}
	return "one text is a prefix of the other"
}

// TestValues_AllUsed fails if a field of Values does not change the manifests, or if full does not set it.
func TestValues_AllUsed(t *testing.T) {
	whole := reflect.ValueOf(full())
	all := func(v Values) string {
		all, err := Make(v)
		if err != nil {
			t.Fatal(err)
		}
		return text(t, all...)
	}
	before := all(minimal())
	for i := range whole.NumField() {
		v := minimal()
		name, value := whole.Type().Field(i).Name, whole.Field(i)
		if name == "WithoutElections" { // requires one replica
			value = reflect.ValueOf(true)
		}
		if value.IsZero() {
			t.Errorf("full does not set %s", name)
			continue
		}
		reflect.ValueOf(&v).Elem().Field(i).Set(value)
		if all(v) == before {
			t.Errorf("%s changes nothing", name)
		}
	}
}

func TestErrors_NameTheField(t *testing.T) {
	for want, spoil := range map[string]func(*Values){
		`Namespace "A"`:            func(v *Values) { v.Namespace = "A" },
		`Name "a.b"`:               func(v *Values) { v.Name = "a.b" },
		`Revision "1.2"`:           func(v *Values) { v.Revision = "1.2" },
		"no locks in Rights":       func(v *Values) { v.Rights = Rights{Home: rights().Home} },
		`the address "15014"`:      func(v *Values) { v.Address = "15014" },
		`the address ":http"`:      func(v *Values) { v.Address = ":http" },
		"no Image":                 func(v *Values) { v.Image = "" },
		"-1 Replicas":              func(v *Values) { v.Replicas = -1 },
		"2 Replicas without elect": func(v *Values) { v.Replicas, v.WithoutElections = 2, true },
	} {
		v := minimal()
		spoil(&v)
		if _, err := MakeAccess(v); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("MakeAccess returned %v, want %s", err, want)
		}
		if _, err := MakeDeployment(v); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("MakeDeployment returned %v, want %s", err, want)
		}
	}
}

// TestObjects_NotShared checks that two revisions of an installation share no object, and that two installations of a
// revision share none. Otherwise the second would overwrite an object, or remove it with its own.
func TestObjects_NotShared(t *testing.T) {
	seen := map[string]string{}
	for what, change := range map[string]func(*Values){
		"first":                 func(*Values) {},
		"another revision":      func(v *Values) { v.Revision = "stable" },
		"another namespace":     func(v *Values) { v.Namespace = "other" },
		"another name":          func(v *Values) { v.Name = "second" },
		"a hyphen on one side":  func(v *Values) { v.Revision = "canary-a" },
		"a hyphen on the other": func(v *Values) { v.Namespace = "a-mesh" },
	} {
		v := full()
		v.GuardedLeases = nil // their names depend on the revision only
		change(&v)
		access, err := MakeAccess(v)
		if err != nil {
			t.Fatal(err)
		}
		deployment, err := MakeDeployment(v)
		if err != nil {
			t.Fatal(err)
		}
		all, err := Make(v)
		if err != nil {
			t.Fatal(err)
		}
		for _, object := range all {
			meta, ok := object.(metav1.Object)
			if !ok {
				t.Fatalf("a %T has no name", object)
			}
			key := fmt.Sprintf("%T %s/%s", object, meta.GetNamespace(), meta.GetName())
			if other := seen[key]; other != "" {
				t.Errorf("%s: %s also belongs to %s", what, key, other)
			}
			seen[key] = what
			if meta.GetLabels()["istio.io/rev"] != v.Revision {
				t.Errorf("%s: %s has no label of its revision", what, key)
			}
		}
		if account := deployment.Spec.Template.Spec.ServiceAccountName; account != access.ServiceAccount.Name ||
			access.RoleBinding.Subjects[0].Name != account || access.ClusterRoleBinding.Subjects[0].Name != account {
			t.Errorf("%s: the Pods use the service account %s, the bindings %s", what, account, access.RoleBinding.Subjects[0].Name)
		}
	}
}
