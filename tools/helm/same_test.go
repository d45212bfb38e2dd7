package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"incumbent.dev/incumbent/internal/fence"
	"incumbent.dev/incumbent/internal/fence/install"
	"incumbent.dev/incumbent/pilot/bootstrap"
	"incumbent.dev/incumbent/pilot/bootstrap/manifests"
)

// trial describes a release by the values of the chart, and by the values of the packages.
type trial struct {
	release, values string
	// config is the configuration of the server.
	config bootstrap.Config
	// manifests are the values of package manifests that do not follow from config.
	manifests manifests.Values
	fence     install.Config
	// unfenced expects no policies.
	unfenced bool
}

// always are the values of each trial.
const always = "image: pilot\ncaBundle: {file: /ca.pem}\n"

// fenced returns the environment of a server with a fence.
func fenced(more map[string]string) map[string]string {
	env := map[string]string{"ENABLE_WRITE_FENCE": "true"}
	maps.Copy(env, more)
	return env
}

var memberless = map[string]string{"ENABLE_MEMBER_LEASE": "false"}

var trials = map[string]trial{
	"defaults":   {},
	"a revision": {release: "anything", values: "revision: canary", config: bootstrap.Config{Revision: "canary"}},
	"a name": {
		values: "name: plane", manifests: manifests.Values{Name: "plane"}, fence: install.Config{Others: []string{"plane-*"}},
	},
	"leases": {
		values: "elections: {lock: lease}", config: bootstrap.Config{Lock: "lease"}, manifests: manifests.Values{Args: []string{"--lock=lease"}},
	},
	"coordinated": {
		values:    "elections: {lock: lease, strategy: incumbent.dev/DefaultRevision}",
		config:    bootstrap.Config{Lock: "lease", ElectionStrategy: "incumbent.dev/DefaultRevision", Coordinator: true},
		manifests: manifests.Values{Args: []string{"--lock=lease", "--election-strategy=incumbent.dev/DefaultRevision"}, Env: fenced(map[string]string{"ENABLE_COORDINATOR": "true"})},
	},
	"fence for coordinated candidates of other releases": {
		values: "{elections: {lock: lease}, fence: {coordinated: true}}", config: bootstrap.Config{Lock: "lease"}, manifests: manifests.Values{Args: []string{"--lock=lease"}},
		fence: install.Config{Coordinated: true},
	},
	"coordinated by another release": {
		values: "{elections: {lock: lease, strategy: mine, coordinator: false}, fence: {mode: audit}, gatewayAPI: {deployment: false}}",
		config: bootstrap.Config{Lock: "lease", ElectionStrategy: "mine", DisableGatewayDeployment: true},
		manifests: manifests.Values{
			Args: []string{"--lock=lease", "--election-strategy=mine"}, Env: map[string]string{"PILOT_ENABLE_GATEWAY_API_DEPLOYMENT_CONTROLLER": "false"},
		},
		fence: install.Config{Mode: "audit"},
	},
	"coordinator of other releases": {
		values: "elections: {coordinator: true}", config: bootstrap.Config{Coordinator: true},
		manifests: manifests.Values{Env: fenced(map[string]string{"ENABLE_COORDINATOR": "true"})},
	},
	"both lock types": {
		values: "elections: {lock: multi}", config: bootstrap.Config{Lock: "multi"}, manifests: manifests.Values{Args: []string{"--lock=multi"}},
	},
	"timing": {
		values: "elections: {leaseDuration: 40s, renewDeadline: 30s, retryPeriod: 5s}",
		manifests: manifests.Values{
			LeaseDuration: 40 * time.Second, RenewDeadline: 30 * time.Second, RetryPeriod: 5 * time.Second,
		},
	},
	"one node": {
		values: "elections: {enabled: false}", config: bootstrap.Config{DisableElections: true}, manifests: manifests.Values{WithoutElections: true},
		unfenced: true,
	},
	"no fence": {
		values: "fence: {mode: none}", unfenced: true, config: bootstrap.Config{DisableMember: true}, manifests: manifests.Values{Env: memberless},
	},
	"a member without a fence": {values: "{fence: {mode: none}, elections: {member: true}}", unfenced: true, manifests: manifests.Values{Env: map[string]string{}}},
	"warnings": {
		values: "fence: {mode: warn}", fence: install.Config{Mode: "warn"},
		config: bootstrap.Config{DisableMember: true}, manifests: manifests.Values{Env: memberless},
	},
	"audit": {
		values: "fence: {mode: audit, set: other}", fence: install.Config{Mode: "audit", Set: "other"},
		config: bootstrap.Config{DisableMember: true}, manifests: manifests.Values{Env: memberless},
	},
	"istiod takes part": {
		values: "fence: {others: [istio-system/istiod, mesh/plane-*]}",
		fence:  install.Config{Others: []string{"pilot-*", "istio-system/istiod", "mesh/plane-*"}},
	},
	"no member": {
		values: "elections: {member: false}", config: bootstrap.Config{DisableMember: true},
		manifests: manifests.Values{Env: fenced(map[string]string{"ENABLE_MEMBER_LEASE": "false"})},
	},
	"no gate": {values: "gate: false", manifests: manifests.Values{Env: fenced(map[string]string{"ENABLE_WRITE_GATE": "false"})}},
	"remote":  {values: "remoteKubeconfigSecret: there", manifests: manifests.Values{RemoteKubeconfigSecret: "there"}},
	"no Gateway API": {
		values: "gatewayAPI: {enabled: false}", config: bootstrap.Config{DisableGatewayAPI: true},
		manifests: manifests.Values{Env: fenced(map[string]string{"PILOT_ENABLE_GATEWAY_API": "false"})},
	},
	"no Gateway API and leases": {
		values: "{gatewayAPI: {enabled: false}, elections: {lock: lease}, fence: {mode: audit}}", config: bootstrap.Config{DisableGatewayAPI: true, Lock: "lease", DisableMember: true},
		manifests: manifests.Values{Args: []string{"--lock=lease"}, Env: map[string]string{"PILOT_ENABLE_GATEWAY_API": "false", "ENABLE_MEMBER_LEASE": "false"}},
		fence:     install.Config{Mode: "audit"},
	},
	"no status": {
		values: "gatewayAPI: {status: false}", config: bootstrap.Config{DisableGatewayStatus: true},
		manifests: manifests.Values{Env: fenced(map[string]string{"PILOT_ENABLE_GATEWAY_API_STATUS": "false"})},
	},
	"no deployment": {
		values: "gatewayAPI: {deployment: false}", config: bootstrap.Config{DisableGatewayDeployment: true},
		manifests: manifests.Values{Env: fenced(map[string]string{"PILOT_ENABLE_GATEWAY_API_DEPLOYMENT_CONTROLLER": "false"})},
	},
	"no class": {
		values: "gatewayAPI: {gatewayClass: false}", config: bootstrap.Config{DisableGatewayClass: true},
		manifests: manifests.Values{Env: fenced(map[string]string{"PILOT_ENABLE_GATEWAY_API_GATEWAYCLASS_CONTROLLER": "false"})},
	},
	"no ingress": {
		values: "ingress: {mode: OFF}", config: bootstrap.Config{IngressMode: "OFF"},
		manifests: manifests.Values{Args: []string{"--ingress-controller-mode=OFF"}},
	},
	"an ingress": {
		values: "ingress: {mode: DEFAULT, class: theirs, service: front}", config: bootstrap.Config{IngressMode: "DEFAULT", IngressClass: "theirs", IngressService: "front"},
		manifests: manifests.Values{Args: []string{"--ingress-controller-mode=DEFAULT", "--ingress-class=theirs", "--ingress-service=front"}},
	},
	"addresses and image": {
		values:    "{caBundle: {configMap: bundle, file: ''}, replicas: 3, address: '$(POD_IP):15099', debugAddress: '$(POD_IP):15098', image: 'registry.example/plane:1'}",
		manifests: manifests.Values{CABundle: "-", CABundleConfigMap: "bundle", Replicas: 3, Address: "$(POD_IP):15099", DebugAddress: "$(POD_IP):15098", Image: "registry.example/plane:1"},
	},
	"no page": {values: "debugAddress: ''", manifests: manifests.Values{Args: []string{"--debug-address="}}},
	"flags": {
		values: "{excludedNamespaces: [a, b], kube: {qps: -1, burst: 5}, log: {level: 'warn,pilot:debug', json: true}, args: [--pprof], env: {ZONE: z, CLUSTER_ID: c}}",
		manifests: manifests.Values{
			Args: []string{"--excluded-namespaces=a,b", "--kube-qps=-1", "--kube-burst=5", "--log-level=warn,pilot:debug", "--log-as-json", "--pprof"},
			Env:  fenced(map[string]string{"ZONE": "z", "CLUSTER_ID": "c"}),
		},
	},
}

// The chart and the packages create the same objects, so that server tests use the installed permissions.
func TestChart_EqualsManifests(t *testing.T) {
	t.Parallel()
	for name, c := range trials {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.release == "" {
				c.release = "stable"
			}
			got, want := rendered(t, c), c.made(t)
			for key := range want {
				if got[key] == "" {
					t.Errorf("the chart has no %s", key)
				} else if got[key] != want[key] {
					t.Errorf("%s differs (first manifests, then the chart)\n%s", key, difference(want[key], got[key]))
				}
			}
			for key := range got {
				if want[key] == "" {
					t.Errorf("only the chart has %s", key)
				}
			}
		})
	}
}

// made returns the objects of the packages.
func (c trial) made(t *testing.T) map[string]string {
	t.Helper()
	v := c.manifests
	if c.config.Revision == "" {
		c.config.Revision = c.release
	}
	c.config.Fence = !c.unfenced && (c.fence.Mode == "" || c.fence.Mode == "deny")
	if v.Env == nil && c.config.Fence {
		v.Env = fenced(nil)
	}
	v.Namespace, v.Revision = "istio-system", c.config.Revision
	v.Rights, v.GuardedLeases = bootstrap.Rights(c.config), bootstrap.GuardedLeases(c.config)
	if v.Image == "" {
		v.Image = "pilot"
	}
	switch v.CABundle {
	case "":
		v.CABundle = "/ca.pem"
	case "-":
		v.CABundle = ""
	}
	objects, err := manifests.Make(v)
	if err != nil {
		t.Fatal(err)
	}
	if v.Name == "" {
		v.Name = "pilot"
	}
	if !c.unfenced {
		objects = append(objects, c.policies(t, v.Name)...)
	}
	return byKey(t, objects)
}

func (c trial) policies(t *testing.T, name string) (objects []runtime.Object) {
	t.Helper()
	f, account := c.fence, name+"-"+c.config.Revision
	f.Namespace, f.Lock, f.Revisions, f.ServiceAccounts = "istio-system", c.config.Lock, []string{c.config.Revision}, []string{account}
	f.Coordinated = f.Coordinated || c.config.ElectionStrategy != ""
	f.Coordinators = coordinators(f.Coordinated)
	f.Elections = bootstrap.FencedElections(c.config)
	if f.Others == nil {
		f.Others = []string{"pilot-*"}
	}
	if f.Set == "" {
		f.Set = "istio-system-" + account
	}
	declarations, err := f.Declarations()
	if err != nil {
		t.Fatal(err)
	}
	set, err := fence.Render(f.Set, declarations...)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range set.All() {
		objects = append(objects, p.Policy, p.Binding)
	}
	return objects
}

// text returns the rendered chart.
func (c trial) text(t *testing.T, namespace string) string {
	t.Helper()
	if c.release == "" {
		c.release = "stable"
	}
	folder := t.TempDir()
	args := []string{"template", c.release, charts("pilot"), "--namespace", namespace}
	for i, values := range []string{always, c.values} {
		file := filepath.Join(folder, fmt.Sprintf("%d.yaml", i))
		if err := os.WriteFile(file, []byte(values), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--values", file)
	}
	return mustHelm(t, args...)
}

// rendered returns the objects of the chart.
func rendered(t *testing.T, c trial) map[string]string {
	t.Helper()
	var objects []runtime.Object
	for _, o := range parse(t, c.text(t, "istio-system")) {
		// This annotation is for helm only.
		unstructured.RemoveNestedField(o.Object, "metadata", "annotations", "helm.sh/resource-policy")
		if len(o.GetAnnotations()) == 0 {
			o.SetAnnotations(nil)
		}
		objects = append(objects, o)
	}
	return byKey(t, objects)
}

// parse reads YAML documents.
func parse(t testing.TB, text string) (objects []*unstructured.Unstructured) {
	t.Helper()
	for _, document := range strings.Split("\n"+text, "\n---") {
		content := map[string]any{}
		if err := yaml.Unmarshal([]byte(document), &content); err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		if len(content) > 0 {
			objects = append(objects, &unstructured.Unstructured{Object: content})
		}
	}
	return objects
}

// byKey returns the objects as text, without fields of the server.
func byKey(t testing.TB, objects []runtime.Object) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, object := range objects {
		content := plain(t, object)
		delete(content, "status")
		u := &unstructured.Unstructured{Object: content}
		unstructured.RemoveNestedField(content, "metadata", "creationTimestamp")
		if spec, ok := content["spec"].(map[string]any); ok && len(spec) == 0 {
			delete(content, "spec") // Go writes an empty spec for a new lock
		}
		unstructured.RemoveNestedField(content, "spec", "template", "metadata", "creationTimestamp")
		key := fmt.Sprintf("%s %s/%s", u.GetKind(), u.GetNamespace(), u.GetName())
		if all[key] != "" {
			t.Errorf("duplicate %s", key)
		}
		text, err := json.MarshalIndent(content, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		all[key] = string(text)
	}
	return all
}
