package fence

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"incumbent.dev/incumbent/internal/fence/install"
	"incumbent.dev/incumbent/pilot/leaderelection/fence"
	"incumbent.dev/incumbent/tests/cluster"
)

const (
	// declarationsVariable says how many declarations to install, and seedVariable which.
	declarationsVariable = "FENCE_DECLARATIONS"
	seedVariable         = "FENCE_SEED"
	// atOnce is how many declarations one set has, and triesOfEach how many writes are tried of it.
	atOnce, triesOfEach = 6, 60
)

// sample is an object that writes are tried on.
type sample struct {
	resource   schema.GroupVersionResource
	namespaced bool
	kind       string
	object     map[string]any
	subs       []string // that are patched
}

var samples = []sample{
	{resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, namespaced: true, kind: "ConfigMap"},
	{resource: schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, namespaced: true, kind: "Secret"},
	{
		resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, namespaced: true, kind: "Pod", subs: []string{"status"},
		object: map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "c", "image": "none"}}, "automountServiceAccountToken": false}},
	},
	{
		resource: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, namespaced: true, kind: "Deployment", subs: []string{"scale", "status"},
		object: map[string]any{"spec": map[string]any{
			"replicas": int64(0), "selector": map[string]any{"matchLabels": map[string]any{"d": "d"}},
			"template": map[string]any{"metadata": map[string]any{"labels": map[string]any{"d": "d"}}, "spec": map[string]any{"containers": []any{map[string]any{"name": "c", "image": "none"}}}},
		}},
	},
	{resource: schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"}, kind: "ClusterRole"},
	{resource: schema.GroupVersionResource{Group: customGroup, Version: "v1", Resource: "buoys"}, namespaced: true, kind: "Buoy", subs: []string{"status"}},
	{resource: schema.GroupVersionResource{Group: customGroup, Version: "v1", Resource: "beacons"}, kind: "Beacon", subs: []string{"status"}},
}

// declared is a cluster in which declarations are installed and tried.
type declared struct {
	*stage
	r       *rand.Rand
	clients map[string]dynamic.Interface
}

func (d *declared) namespaces() []string { return []string{d.namespace, d.namespace + "-b"} }

// labelsOf are those of an object by its name.
func labelsOf(name string) map[string]string {
	if name == "tagged" {
		return map[string]string{"app": "x", "example.com/part": "x-r1"}
	}
	return nil
}

func (m sample) named(name, namespace string) *unstructured.Unstructured {
	object := (&unstructured.Unstructured{Object: m.object}).DeepCopy()
	if object.Object == nil {
		object.Object = map[string]any{}
	}
	object.SetGroupVersionKind(m.resource.GroupVersion().WithKind(m.kind))
	object.SetName(name)
	object.SetLabels(labelsOf(name))
	if m.namespaced {
		object.SetNamespace(namespace)
	}
	return object
}

// furnish makes the objects.
func (d *declared) furnish() {
	d.t.Helper()
	if _, err := d.admin.CoreV1().Namespaces().Create(d.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: d.namespaces()[1]}}, metav1.CreateOptions{}); err != nil {
		d.t.Fatal(err)
	}
	as := d.cluster.Client(d.t).Dynamic()
	for _, m := range samples {
		for _, namespace := range d.namespaces() {
			for _, name := range []string{"plain", "tagged"} {
				object := m.named(name, namespace)
				eventually(d.t, m.kind+" is made", func() bool { // a Pod, once its namespace has a service account
					_, err := as.Resource(m.resource).Namespace(object.GetNamespace()).Create(d.t.Context(), object, metav1.CreateOptions{})
					return err == nil || apierrors.IsAlreadyExists(err)
				})
			}
		}
	}
}

// as is a pod of an account.
func (d *declared) as(account, pod string) dynamic.Interface {
	key := account + " " + pod
	if d.clients[key] == nil {
		d.clients[key] = cluster.ClientFor(d.t, d.stage.as(account, pod)).Dynamic()
	}
	return d.clients[key]
}

// Random declarations, nasty ones among them: each that is accepted becomes policies which the API
// server accepts and finds no fault with, and which refuse to each pod what the declarations say, and no more.
func TestFenceOfRandomDeclarations(t *testing.T) {
	t.Parallel()
	want, seed := 2*atOnce, uint64(1)
	for variable, set := range map[string]func(n int){declarationsVariable: func(n int) { want = n }, seedVariable: func(n int) { seed = uint64(n) }} {
		if text := os.Getenv(variable); text != "" {
			n, err := strconv.Atoi(text)
			if err != nil {
				t.Fatalf("%s=%s: give a number", variable, text)
			}
			set(n)
		}
	}
	c := startCluster(t, cluster.Options{}) // its controllers look for faults in policies
	s := stageOn(t, c, fence.Lease)
	d := &declared{stage: s, r: rand.New(rand.NewPCG(seed, 3)), clients: map[string]dynamic.Interface{}}
	loadKinds(t, c, customKind("buoys", "Buoy", "Namespaced"), customKind("beacons", "Beacon", "Cluster"))
	d.furnish()
	from := &declarer{r: d.r, home: s.namespace}
	accepted, drawn, refused, admitted := 0, 0, 0, 0
	for accepted < want && !t.Failed() {
		var batch []fence.Declaration
		for len(batch) < atOnce {
			from.odds = []int{8, 40, 400}[d.r.IntN(3)]
			one := from.declaration(drawn)
			drawn++
			if _, err := fence.Render("fuzz", append(batch[:len(batch):len(batch)], one)...); err == nil && one.Namespace == s.namespace {
				batch = append(batch, one)
			}
		}
		if !d.installed(batch) {
			continue // what only an API server knows speaks against it
		}
		accepted += len(batch)
		yes, no := d.try(locksOf(batch))
		admitted, refused = admitted+yes, refused+no
	}
	if _, err := install.Remove(t.Context(), s.admin, "fuzz"); err != nil {
		t.Error(err)
	}
	if refused == 0 || admitted == 0 {
		t.Errorf("of the writes, %d were refused and %d admitted", refused, admitted)
	}
	t.Logf("figure: seed %d: %d declarations drawn, %d installed, %d writes refused and %d admitted as declared", seed, drawn, accepted, refused, admitted)
}

// installed installs declarations in place of the former ones.
func (d *declared) installed(batch []fence.Declaration) bool {
	d.t.Helper()
	for _, l := range locksOf(batch) {
		r := record{holder: l.holder, transitions: 3}
		lease, cm := r.lease(), r.configMap()
		lease.Name, cm.Name = l.name, l.name
		_, err := d.admin.CoordinationV1().Leases(d.namespace).Create(d.t.Context(), lease, metav1.CreateOptions{})
		if err == nil {
			_, err = d.admin.CoreV1().ConfigMaps(d.namespace).Create(d.t.Context(), cm, metav1.CreateOptions{})
		}
		if err != nil {
			d.t.Fatalf("the lock %q: %v", l.name, err)
		}
	}
	set, err := fence.Render("fuzz", batch...)
	if err != nil {
		d.t.Fatal(err)
	}
	_, err = install.Apply(d.t.Context(), d.admin, set, install.Options{TakeOver: true})
	switch {
	case err != nil && strings.Contains(err.Error(), "by namespaces, but such objects lie in none"):
		return false
	case err != nil:
		d.t.Errorf("%v\n%s", err, spelled(batch))
		return false
	}
	for _, p := range set.All() {
		d.faultless(p.Name(), batch)
	}
	return true
}

func spelled(batch []fence.Declaration) string {
	var text strings.Builder
	for _, one := range batch {
		fmt.Fprintf(&text, "%+v\n", one)
	}
	return text.String()
}

// faultless: the API server's controllers have checked the types in a policy's expressions.
func (d *declared) faultless(name string, batch []fence.Declaration) {
	d.t.Helper()
	eventually(d.t, name+" is checked", func() bool {
		policy, err := d.admin.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(d.t.Context(), name, metav1.GetOptions{})
		if err != nil {
			d.t.Fatal(err)
		}
		if policy.Status.TypeChecking == nil || policy.Status.ObservedGeneration != policy.Generation {
			return false
		}
		if found := policy.Status.TypeChecking.ExpressionWarnings; len(found) > 0 {
			d.t.Errorf("%s: %v\n%s", name, found, spelled(batch))
		}
		return true
	})
}

// try makes writes of all kinds, dry, as leaders and as others.
func (d *declared) try(locks []lockOf) (admitted, refused int) {
	d.t.Helper()
	pods := []string{"nobody"}
	for _, l := range locks {
		pods = append(pods, l.holder)
	}
	for range triesOfEach {
		account, pod := d.namespace+"/"+[]string{"p1", "p2", "p-r1"}[d.r.IntN(3)], pods[d.r.IntN(len(pods))]
		if d.r.IntN(2) == 0 {
			pod = "nobody"
		}
		about, write := d.draw()
		expected := func() bool {
			return slices.ContainsFunc(locks, func(l lockOf) bool { return l.refuses(account, pod, about) })
		}
		for n := d.r.IntN(60); n > 0 && !expected(); n-- { // most writes are guarded by nothing
			about, write = d.draw()
		}
		refusal := expected()
		// Locks were made a moment ago, and the API server may not know their holders yet.
		eventually(d.t, fmt.Sprintf("%+v as pod %s of %s is refused: %v\n%+v", about, pod, account, refusal, locks), func() bool {
			return fence.IsRefusal(write(d.as(account, pod))) == refusal
		})
		if refusal {
			refused++
		} else {
			admitted++
		}
	}
	return admitted, refused
}

// draw draws a write.
func (d *declared) draw() (asked, func(as dynamic.Interface) error) {
	m, name, namespace := samples[d.r.IntN(len(samples))], []string{"plain", "tagged"}[d.r.IntN(2)], d.namespaces()[d.r.IntN(2)]
	if !m.namespaced {
		namespace = ""
	}
	a := asked{group: m.resource.Group, resource: m.resource.Resource, namespace: namespace, name: name, labels: labelsOf(name)}
	at := func(as dynamic.Interface) dynamic.ResourceInterface {
		return as.Resource(m.resource).Namespace(namespace)
	}
	dry, ctx := []string{metav1.DryRunAll}, d.t.Context()
	patch := func(subs ...string) func(as dynamic.Interface) error {
		return func(as dynamic.Interface) error {
			_, err := at(as).Patch(ctx, name, mergePatch, []byte(`{"metadata":{"annotations":{"a":"b"}}}`), metav1.PatchOptions{DryRun: dry}, subs...)
			return err
		}
	}
	switch n := d.r.IntN(4 + len(m.subs)); {
	case n == 0:
		a.verb = "create"
		return a, func(as dynamic.Interface) error {
			_, err := at(as).Create(ctx, m.named(name, namespace), metav1.CreateOptions{DryRun: dry})
			return err
		}
	case n == 1:
		a.verb = "delete"
		return a, func(as dynamic.Interface) error { return at(as).Delete(ctx, name, metav1.DeleteOptions{DryRun: dry}) }
	case n == 2 && m.kind == "Pod":
		a.verb, a.resource, a.labels = "create", "pods/eviction", nil
		body := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "policy/v1", "kind": "Eviction", "metadata": map[string]any{"name": name, "namespace": namespace}, "deleteOptions": map[string]any{"dryRun": []any{metav1.DryRunAll}}}}
		return a, func(as dynamic.Interface) error {
			_, err := at(as).Create(ctx, body, metav1.CreateOptions{DryRun: dry}, "eviction")
			return err
		}
	case n <= 3:
		a.verb = "update"
		return a, patch()
	default:
		sub := m.subs[n-4]
		a.verb, a.resource = "update", a.resource+"/"+sub
		if sub == "scale" {
			a.labels = nil
		}
		return a, patch(sub)
	}
}
