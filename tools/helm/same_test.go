package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"incumbent.dev/incumbent/internal/fence"
	"incumbent.dev/incumbent/internal/fence/install"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/bootstrap"
	"incumbent.dev/incumbent/pilot/leaderelection"
)

// trial describes a release by the values of the chart, and by the server that it runs.
type trial struct {
	release, values string
	// name is the name of the control plane, if it is not pilot.
	name string
	// config is the configuration of the server. args and env have it as arguments and variables of the Pod.
	config bootstrap.Config
	args   []string
	env    map[string]string
	fence  install.Config
	// unfenced expects no policies.
	unfenced bool
	// golden compares the complete objects with a file in testdata.
	golden string
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
	"a revision": {release: "anything", values: "revision: canary", config: bootstrap.Config{Config: leaderelection.Config{Revision: "canary"}}},
	"a name": {
		values: "name: plane", name: "plane", fence: install.Config{Others: []string{"plane-*"}},
	},
	"leases": {
		values: "elections: {lock: lease}", config: bootstrap.Config{LockType: "lease"}, args: []string{"--lock=lease"},
	},
	"coordinated": {
		values: "elections: {lock: lease, strategy: incumbent.dev/DefaultRevision}",
		config: bootstrap.Config{LockType: "lease", ElectionStrategy: "incumbent.dev/DefaultRevision", Coordinator: true},
		args:   []string{"--lock=lease", "--election-strategy=incumbent.dev/DefaultRevision"}, env: fenced(map[string]string{"ENABLE_COORDINATOR": "true"}),
	},
	"fence for coordinated candidates of other releases": {
		values: "{elections: {lock: lease}, fence: {coordinated: true}}", config: bootstrap.Config{LockType: "lease"}, args: []string{"--lock=lease"},
		fence: install.Config{Coordinated: true},
	},
	"coordinated by another release": {
		values: "{elections: {lock: lease, strategy: mine, coordinator: false}, fence: {mode: audit}, gatewayAPI: {deployment: false}}",
		config: bootstrap.Config{LockType: "lease", ElectionStrategy: "mine", DisableGatewayDeployment: true},
		args:   []string{"--lock=lease", "--election-strategy=mine"}, env: map[string]string{"PILOT_ENABLE_GATEWAY_API_DEPLOYMENT_CONTROLLER": "false"},
		fence: install.Config{Mode: "audit"},
	},
	"coordinator of other releases": {
		values: "elections: {coordinator: true}", config: bootstrap.Config{Coordinator: true},
		env: fenced(map[string]string{"ENABLE_COORDINATOR": "true"}),
	},
	"both lock types": {
		values: "elections: {lock: multi}", config: bootstrap.Config{LockType: "multi"}, args: []string{"--lock=multi"},
	},
	"timing": {
		values: "elections: {leaseDuration: 40s, renewDeadline: 30s, retryPeriod: 5s}",
		args:   []string{"--lease-duration=40s", "--renew-deadline=30s", "--retry-period=5s"},
	},
	"one node": {
		values: "elections: {enabled: false}", config: bootstrap.Config{Config: leaderelection.Config{Disabled: true}}, env: map[string]string{"ENABLE_LEADER_ELECTION": "false"}, golden: "one-node",
		unfenced: true,
	},
	"no fence": {
		values: "fence: {mode: none}", unfenced: true, config: bootstrap.Config{DisableMember: true}, env: memberless,
	},
	"a member without a fence": {values: "{fence: {mode: none}, elections: {member: true}}", unfenced: true, env: map[string]string{}},
	"warnings": {
		values: "fence: {mode: warn}", fence: install.Config{Mode: "warn"},
		config: bootstrap.Config{DisableMember: true}, env: memberless,
	},
	"audit": {
		values: "fence: {mode: audit, set: other}", fence: install.Config{Mode: "audit", Set: "other"},
		config: bootstrap.Config{DisableMember: true}, env: memberless,
	},
	"istiod takes part": {
		values: "fence: {others: [istio-system/istiod, mesh/plane-*]}",
		fence:  install.Config{Others: []string{"pilot-*", "istio-system/istiod", "mesh/plane-*"}},
	},
	"no member": {
		values: "elections: {member: false}", config: bootstrap.Config{DisableMember: true},
		env: fenced(map[string]string{"ENABLE_MEMBER_LEASE": "false"}),
	},
	"no gate": {values: "gate: false", env: fenced(map[string]string{"ENABLE_WRITE_GATE": "false"})},
	"remote":  {values: "remoteKubeconfigSecret: there", args: []string{"--remote-kubeconfig=/etc/incumbent/remote/kubeconfig"}, golden: "remote"},
	"witness in a sidecar": {
		values: "witness: {sidecar: true}", args: []string{"--witness=socket", "--witness-socket=/run/incumbent/witness"}, golden: "sidecar",
	},
	"no Gateway API": {
		values: "gatewayAPI: {enabled: false}", config: bootstrap.Config{DisableGatewayAPI: true},
		env: fenced(map[string]string{"PILOT_ENABLE_GATEWAY_API": "false"}),
	},
	"no Gateway API and leases": {
		values: "{gatewayAPI: {enabled: false}, elections: {lock: lease}, fence: {mode: audit}}", config: bootstrap.Config{DisableGatewayAPI: true, LockType: "lease", DisableMember: true},
		args: []string{"--lock=lease"}, env: map[string]string{"PILOT_ENABLE_GATEWAY_API": "false", "ENABLE_MEMBER_LEASE": "false"},
		fence: install.Config{Mode: "audit"},
	},
	// The user of --remote-kubeconfig needs these permissions (docs/controllers.md).
	"remote controllers": {
		values: "{gatewayAPI: {enabled: false}, ingress: {mode: OFF}}", config: bootstrap.Config{DisableGatewayAPI: true, IngressMode: "OFF"},
		args: []string{"--ingress-controller-mode=OFF"}, env: fenced(map[string]string{"PILOT_ENABLE_GATEWAY_API": "false"}),
	},
	"no status": {
		values: "gatewayAPI: {status: false}", config: bootstrap.Config{DisableGatewayStatus: true},
		env: fenced(map[string]string{"PILOT_ENABLE_GATEWAY_API_STATUS": "false"}),
	},
	"no deployment": {
		values: "gatewayAPI: {deployment: false}", config: bootstrap.Config{DisableGatewayDeployment: true},
		env: fenced(map[string]string{"PILOT_ENABLE_GATEWAY_API_DEPLOYMENT_CONTROLLER": "false"}),
	},
	"no class": {
		values: "gatewayAPI: {gatewayClass: false}", config: bootstrap.Config{DisableGatewayClass: true},
		env: fenced(map[string]string{"PILOT_ENABLE_GATEWAY_API_GATEWAYCLASS_CONTROLLER": "false"}),
	},
	"no ingress": {
		values: "ingress: {mode: OFF}", config: bootstrap.Config{IngressMode: "OFF"},
		args: []string{"--ingress-controller-mode=OFF"},
	},
	"an ingress": {
		values: "ingress: {mode: DEFAULT, class: theirs, service: front}", config: bootstrap.Config{IngressMode: "DEFAULT", IngressClass: "theirs", IngressService: "front"},
		args: []string{"--ingress-controller-mode=DEFAULT", "--ingress-class=theirs", "--ingress-service=front"},
	},
	"an ingress gateway elsewhere": {
		values: "{ingress: {service: istio-ingress/front}, gatewayAPI: {enabled: false}}", config: bootstrap.Config{DisableGatewayAPI: true},
		args: []string{"--ingress-service=istio-ingress/front"}, env: fenced(map[string]string{"PILOT_ENABLE_GATEWAY_API": "false"}),
	},
	"an ingress gateway as in istiod": {
		values: "{env: {K8S_INGRESS_NS: istio-ingress}, meshConfig: {ingressControllerMode: DEFAULT, ingressClass: theirs, ingressService: front, ingressSelector: front, discoverySelectors: [{matchLabels: {a: b}}], rootNamespace: x}}",
		args:   []string{"--discovery-selector=a=b", "--ingress-controller-mode=DEFAULT", "--ingress-class=theirs", "--ingress-service=front"},
		env:    fenced(map[string]string{"K8S_INGRESS_NS": "istio-ingress"}),
	},
	"Pods of an ingress gateway": {
		values: "{env: {K8S_INGRESS_NS: istio-ingress}, ingress: {selector: front}, meshConfig: {ingressService: other}}", args: []string{"--ingress-selector=front"},
		env: fenced(map[string]string{"K8S_INGRESS_NS": "istio-ingress"}),
	},
	"Pods of an ingress gateway as in istiod": {
		values: "{env: {K8S_INGRESS_NS: istio-ingress}, meshConfig: {ingressService: '', ingressSelector: front}}", args: []string{"--ingress-selector=front"},
		env: fenced(map[string]string{"K8S_INGRESS_NS": "istio-ingress"}),
	},
	"addresses and image": {
		values: "{caBundle: {configMap: bundle, file: ''}, replicas: 3, address: '$(POD_IP):15099', debugAddress: '$(POD_IP):15098', image: 'registry.example/plane:1'}",
		args:   []string{"--debug-address=$(POD_IP):15098"}, golden: "addresses-and-image",
	},
	"no page": {values: "debugAddress: ''", args: []string{"--debug-address="}},
	"flags": {
		values: "{discoverySelectors: ['a in (b,c)', d=e, {matchLabels: {f: g}, matchExpressions: [{key: h, operator: NotIn, values: [i, j]}, {key: k, operator: DoesNotExist}, {key: l, operator: Exists}]}], excludedNamespaces: [a, b], gatewayAPI: {objects: [podDisruptionBudget, networkPolicy], overlayFields: [service.spec.externalIPs, service.spec.ports]}, kube: {qps: -1, burst: 5}, log: {level: 'warn,pilot:debug', json: true}, args: [--pprof], env: {ZONE: z, CLUSTER_ID: c}}",
		args:   []string{"--discovery-selector=a in (b,c)", "--discovery-selector=d=e", "--discovery-selector=f=g,h notin (i,j),!k,l", "--excluded-namespaces=a,b", "--gateway-objects=podDisruptionBudget,networkPolicy", "--gateway-overlay-fields=service.spec.externalIPs,service.spec.ports", "--kube-qps=-1", "--kube-burst=5", "--log-level=warn,pilot:debug", "--log-as-json", "--pprof"},
		env:    fenced(map[string]string{"ZONE": "z", "CLUSTER_ID": "c"}),
	},
}

// The chart has the policies of the packages and no locks, and starts the server with the configuration.
func TestChart_MatchesServer(t *testing.T) {
	t.Parallel()
	for name, c := range trials {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := c.withDefaults()
			got, want := byKey(t, c.rendered(t)), byKey(t, c.made(t))
			for key := range want {
				if got[key] == "" {
					t.Errorf("the chart has no %s", key)
				} else if got[key] != want[key] {
					t.Errorf("%s differs (first the packages, then the chart)\n%s", key, difference(want[key], got[key]))
				}
			}
			for key := range got {
				kind, _, _ := strings.Cut(key, " ")
				if want[key] == "" && !strings.Contains(key, "incumbent-accounts.") && slices.Contains([]string{"Lease", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}, kind) {
					t.Errorf("only the chart has %s", key)
				}
			}
			c.checkContainer(t)
			if c.golden != "" {
				c.checkGolden(t, got)
			}
		})
	}
}

func (c trial) withDefaults() trial {
	c.release, c.name = cmp.Or(c.release, "stable"), cmp.Or(c.name, "pilot")
	c.config.Revision = cmp.Or(c.config.Revision, c.release)
	c.config.Fence = !c.unfenced && (c.fence.Mode == "" || c.fence.Mode == "deny")
	if c.env == nil && c.config.Fence {
		c.env = fenced(nil)
	}
	return c
}

// made returns the objects of the packages.
func (c trial) made(t *testing.T) (objects []runtime.Object) {
	t.Helper()
	if !c.unfenced {
		objects = append(objects, c.policies(t, c.name)...)
	}
	return objects
}

func kind(version, name string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: version, Kind: name}
}

// checkContainer checks the arguments and the variables of the server.
func (c trial) checkContainer(t *testing.T) {
	t.Helper()
	var deployment appsv1.Deployment
	for _, o := range c.rendered(t) {
		if content := o.(*unstructured.Unstructured); content.GetKind() == "Deployment" {
			harness.Must(t, runtime.DefaultUnstructuredConverter.FromUnstructured(content.Object, &deployment))
		}
	}
	container := deployment.Spec.Template.Spec.Containers[0]
	const first = 3 // server, --address, --ca-bundle
	if got := container.Args[first:]; !slices.Equal(got, c.args) {
		t.Errorf("arguments %q, want %q", got, c.args)
	}
	env := map[string]string{}
	for _, v := range container.Env {
		if v.ValueFrom == nil && v.Name != "REVISION" {
			env[v.Name] = v.Value
		} else if v.Name == "REVISION" && v.Value != c.config.Revision {
			t.Errorf("REVISION is %s", v.Value)
		}
	}
	if !maps.Equal(env, c.env) {
		t.Errorf("variables %v, want %v", env, c.env)
	}
}

// checkGolden compares the objects without policies, which the check above compares, and without roles, which TestChart_Access compares. deploy/kustomize has the objects of
// the defaults.
func (c trial) checkGolden(t *testing.T, objects map[string]string) {
	t.Helper()
	var text strings.Builder
	for _, key := range slices.Sorted(maps.Keys(objects)) {
		if kind, _, _ := strings.Cut(key, " "); !strings.HasSuffix(kind, "Role") && !strings.HasPrefix(kind, "Validating") {
			content, err := yaml.JSONToYAML([]byte(objects[key]))
			harness.Must(t, err)
			text.WriteString("---\n" + string(content))
		}
	}
	golden(t, filepath.Join("testdata", c.golden+".yaml"), []byte(text.String()))
}

// Two revisions of an installation share no object, and two installations of a revision share none. Otherwise the second one
// would overwrite an object, or remove it with its own.
func TestChart_NotShared(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for what, c := range map[string]struct{ release, namespace, name string }{
		"first":                 {"canary", "mesh", "pilot"},
		"another revision":      {"stable", "mesh", "pilot"},
		"another namespace":     {"canary", "other", "pilot"},
		"another name":          {"canary", "mesh", "second"},
		"a hyphen on one side":  {"canary-a", "mesh", "pilot"},
		"a hyphen on the other": {"canary", "a-mesh", "pilot"},
	} {
		text, err := runHelm(t, c.namespace, "", pilot("template", c.release, kubeVersion, "--set", "fence.mode=none,name="+c.name)...)
		harness.Must(t, err)
		for _, o := range parse(t, text) {
			key := fmt.Sprintf("%s %s/%s", o.GetKind(), o.GetNamespace(), o.GetName())
			if other := seen[key]; other != "" {
				t.Errorf("%s: %s also belongs to %s", what, key, other)
			}
			seen[key] = what
			if o.GetLabels()["istio.io/rev"] != c.release {
				t.Errorf("%s: %s has no label of its revision", what, key)
			}
		}
	}
}

func (c trial) policies(t *testing.T, name string) (objects []runtime.Object) {
	t.Helper()
	f, account := c.fence, name+"-"+c.config.Revision
	f.Namespace, f.Lock, f.Revisions, f.ServiceAccounts = "istio-system", c.config.LockType, []string{c.config.Revision}, []string{account}
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
	harness.Must(t, err)
	set, err := fence.Render(f.Set, declarations...)
	harness.Must(t, err)
	for _, p := range set.All() {
		objects = append(objects, p.Policy, p.Binding)
	}
	return objects
}

// texts has the rendered chart of trials, by their values.
var texts sync.Map

// text returns the rendered chart.
func (c trial) text(t *testing.T) string {
	t.Helper()
	release := cmp.Or(c.release, "stable")
	key := release + c.values
	if text, ok := texts.Load(key); ok {
		return text.(string)
	}
	text := mustTemplate(t, release, "pilot", valueFiles(t, always, c.values)...)
	texts.Store(key, text)
	return text
}

// rendered returns the objects of the chart.
func (c trial) rendered(t *testing.T) (objects []runtime.Object) {
	t.Helper()
	for _, o := range parse(t, c.text(t)) {
		for _, forHelm := range []string{"resource-policy", "hook", "hook-delete-policy"} {
			unstructured.RemoveNestedField(o.Object, "metadata", "annotations", "helm.sh/"+forHelm)
		}
		if len(o.GetAnnotations()) == 0 {
			o.SetAnnotations(nil)
		}
		objects = append(objects, o)
	}
	return objects
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
		harness.Must(t, err)
		all[key] = string(text)
	}
	return all
}
