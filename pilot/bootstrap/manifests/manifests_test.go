package manifests

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

var rewrite = flag.Bool("rewrite", false, "write the manifests as they are now to testdata")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// full has a value of its own in each field.
func full() Values {
	return Values{
		Namespace: "mesh", Name: "plane", Revision: "canary", Rights: rights(), Image: "registry.example/plane:1", Replicas: 3,
		Address: "$(POD_IP):15099", DebugAddress: "$(POD_IP):15098", CABundle: "/etc/other/ca.pem", CABundleConfigMap: "the-bundle",
		RemoteKubeconfigSecret: "the-remote", GuardedLeases: []string{"lock-c-canary"},
		LeaseDuration: 40 * time.Second, RenewDeadline: 30 * time.Second, RetryPeriod: 5 * time.Second,
		Args: []string{"--pprof", "--log-level=debug"}, Env: map[string]string{"ZONE": "z", "ENABLE_WRITE_FENCE": "true"},
	}
}

// rights are some of a controller's.
func rights() Rights {
	return Rights{
		ConfigMaps: []string{"lock-a", "lock-b"}, Leases: []string{"lock-b", "lock-c-canary"},
		Home:       []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list"}}},
		Everywhere: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"list"}}},
	}
}

func minimal() Values { return Values{Rights: Rights{Leases: []string{"lock"}}, Image: "pilot"} }

// The manifests word by word: rights, probes, grace period, selectors and all. A change
// of them is a change of these files (-rewrite), which a reviewer reads.
func TestManifestsAreAsWritten(t *testing.T) {
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
			t.Errorf("%s is not what is made of its values (go test -rewrite writes it):\n%s", file, difference(string(want), got))
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

// difference is the first place where two texts differ.
func difference(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range min(len(w), len(g)) {
		if w[i] != g[i] {
			return "want " + w[i] + "\ngot  " + g[i]
		}
	}
	return "one of them goes on"
}

// Each field of Values changes the manifests; one that is not in full fails.
func TestEveryValueIsUsed(t *testing.T) {
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
		if name == "WithoutElections" { // which goes with one replica
			value = reflect.ValueOf(true)
		}
		if value.IsZero() {
			t.Errorf("full says nothing of %s", name)
			continue
		}
		reflect.ValueOf(&v).Elem().Field(i).Set(value)
		if all(v) == before {
			t.Errorf("%s changes nothing", name)
		}
	}
}

func TestWrongValuesAreNamed(t *testing.T) {
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
			t.Errorf("MakeAccess says %v, not %s", err, want)
		}
		if _, err := MakeDeployment(v); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("MakeDeployment says %v, not %s", err, want)
		}
	}
}

// The Pods get longer than the server takes to stop at most, and what selects them is on them.
func TestDeploymentFitsTheServer(t *testing.T) {
	d, err := MakeDeployment(full())
	if err != nil {
		t.Fatal(err)
	}
	pod := d.Spec.Template
	for key, value := range d.Spec.Selector.MatchLabels {
		if pod.Labels[key] != value {
			t.Errorf("the selector wants %s=%s, the Pods have %q", key, value, pod.Labels[key])
		}
	}
	stable := full()
	stable.Revision = "stable"
	if other, err := MakeDeployment(stable); err != nil || reflect.DeepEqual(other.Spec.Selector, d.Spec.Selector) || other.Name == d.Name {
		t.Errorf("two revisions have one selector or one name: %v", err)
	}
	args := pod.Spec.Containers[0].Args
	if i := slices.Index(args, "--pprof"); i < 0 || args[0] != "server" {
		t.Errorf("arguments are %q", args)
	}
}

func TestManyLocksMayShareAWatch(t *testing.T) {
	unnamed := func(locks ...string) (n int) {
		for _, rule := range NamespaceRules(Rights{Leases: locks}) {
			if slices.Contains(rule.Verbs, "watch") && len(rule.ResourceNames) == 0 {
				n++
			}
		}
		return n
	}
	if few, many := unnamed("a", "b", "c"), unnamed("a", "b", "c", "d"); few != 0 || many != 1 {
		t.Errorf("%d and %d rules allow to watch everything", few, many)
	}
}

// Two revisions of one installation have no object in common, and two installations of one revision have none either: so
// none of them is overwritten, or taken away with the other.
func TestRevisionsShareNoObject(t *testing.T) {
	seen := map[string]string{}
	for what, change := range map[string]func(*Values){
		"one":                  func(*Values) {},
		"another revision":     func(v *Values) { v.Revision = "stable" },
		"another namespace":    func(v *Values) { v.Namespace = "other" },
		"another name":         func(v *Values) { v.Name = "second" },
		"a hyphen on one side": func(v *Values) { v.Revision = "canary-a" },
		"and on the other":     func(v *Values) { v.Namespace = "a-mesh" },
	} {
		v := full()
		v.GuardedLeases = nil // which are of the revision, whoever installs it
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
				t.Errorf("%s: %s is that of %s", what, key, other)
			}
			seen[key] = what
			if meta.GetLabels()["istio.io/rev"] != v.Revision {
				t.Errorf("%s: %s does not say of which revision it is", what, key)
			}
		}
		if account := deployment.Spec.Template.Spec.ServiceAccountName; account != access.ServiceAccount.Name ||
			access.RoleBinding.Subjects[0].Name != account || access.ClusterRoleBinding.Subjects[0].Name != account {
			t.Errorf("%s: the Pods are %s, and the rights are those of %s", what, account, access.RoleBinding.Subjects[0].Name)
		}
	}
}
