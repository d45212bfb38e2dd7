package install

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"

	"incumbent.dev/incumbent/internal/fence"
	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pkg/kube"
)

func guarding(guards ...fence.Guard) fence.Declaration {
	return fence.Declaration{Election: "e", Namespace: "sys", Lock: record.Lease, ServiceAccounts: []string{"sys/pilot"}, Guards: guards}
}

// fenced is an API server with a fence in effect: only pod-1 leads and may write.
func fenced(t *testing.T, d fence.Declaration) (*judging, fence.Set) {
	t.Helper()
	set := render(t, "sys", d)
	j := newJudging(t)
	j.installed(set)
	j.has("v1", "ServiceAccount", "sys", "pilot", nil)
	j.has("coordination.k8s.io/v1", "Lease", "sys", "e", map[string]any{"spec": map[string]any{"holderIdentity": "pod-1"}})
	j.has("v1", "ConfigMap", "apps", "x", nil)
	j.answers = func(a attempt) error {
		if a.pod == "pod-1" {
			return nil
		}
		return byPolicy(a)
	}
	return j, set
}

// verified returns the findings about guards, one per line, and failed findings about the installation.
func verified(t *testing.T, j *judging, set fence.Set, d fence.Declaration) []string {
	t.Helper()
	found, err := Verify(t.Context(), clientOf(t, j.config()), set, d)
	harness.Must(t, err)
	var lines []string
	for _, f := range found {
		if f.Server != j.URL {
			t.Errorf("%v speaks of %s", f, f.Server)
		}
		if !strings.HasPrefix(f.What, "policy ") || f.Verdict != Holds {
			lines = append(lines, f.String())
		}
	}
	return lines
}

func configMap() fence.Guard {
	return fence.Guard{Resources: []string{"configmaps"}, Names: []string{"x"}, Namespaces: []string{"apps"}}
}

func TestVerify_Writes(t *testing.T) {
	const none = "no such object exists to test it with"
	const core, x, deployment, pod = "/api/v1/namespaces/", "/api/v1/namespaces/apps/configmaps/x", "/apis/apps/v1/namespaces/apps/deployments/d", "/api/v1/namespaces/apps/pods/p"
	named := func(resource, name string, verbs ...string) fence.Guard {
		return fence.Guard{Resources: []string{resource}, Names: []string{name}, Verbs: verbs}
	}
	deployments := func(resource string, verbs ...string) fence.Guard {
		return fence.Guard{Group: "apps", Resources: []string{resource}, Names: []string{"d"}, Verbs: verbs}
	}
	for name, x := range map[string]struct {
		guard fence.Guard
		want  []string // of one pod
		why   string   // there are none
	}{
		"object":                    {configMap(), []string{"create /api/v1/namespaces/apps/configmaps", "delete " + x, "patch " + x, "update " + x}, ""},
		"update":                    {named("configmaps", "x", "update"), []string{"patch " + x, "update " + x}, ""},
		"by labels":                 {fence.Guard{Resources: []string{"configmaps"}, Labels: map[string]string{"app": "x"}, Verbs: []string{"delete"}}, []string{"delete " + x}, ""},
		"every version":             {fence.Guard{Resources: []string{"configmaps"}, Names: []string{"x"}, Versions: []string{"*"}, Verbs: []string{"delete"}}, []string{"delete " + x}, ""},
		"delete with subresources":  {deployments("deployments/*", "delete"), []string{"delete " + deployment}, ""},
		"update with subresources":  {deployments("deployments/*", "update"), []string{"patch " + deployment, "update " + deployment}, ""},
		"subresource":               {deployments("deployments/scale"), []string{"patch " + deployment + "/scale", "update " + deployment + "/scale"}, ""},
		"eviction":                  {named("pods/eviction", "p", "create"), []string{"create " + pod + "/eviction"}, ""},
		"binding":                   {named("pods/binding", "p", "create"), []string{"create " + pod + "/binding"}, ""},
		"token":                     {named("serviceaccounts/token", "pilot", "create"), []string{"create " + core + "sys/serviceaccounts/pilot/token"}, ""},
		"connection":                {fence.Guard{Resources: []string{"pods/exec"}, Names: []string{"q"}, Namespaces: []string{"far"}, Verbs: []string{"connect"}}, []string{"create " + core + "far/pods/q/exec"}, ""},
		"connection to all":         {fence.Guard{Resources: []string{"pods/exec"}, Verbs: []string{"connect"}, Wide: true}, []string{"create " + core + "apps/pods/incumbent-fence-probe/exec"}, ""},
		"cluster-scoped":            {named("nodes", "n"), []string{"create /api/v1/nodes", "delete /api/v1/nodes/n", "patch /api/v1/nodes/n", "update /api/v1/nodes/n"}, ""},
		"missing object":            {named("secrets", "s"), []string{"create " + core + "sys/secrets"}, ""},
		"missing object, namespace": {fence.Guard{Resources: []string{"secrets"}, Namespaces: []string{"far"}, Names: []string{"s"}}, []string{"create " + core + "far/secrets"}, ""},
		"delete missing object":     {named("secrets", "s", "delete"), nil, none},
		"missing pod":               {named("pods", "s"), nil, none},
		"evict missing pod":         {named("pods/eviction", "r", "create"), nil, none},
		"unknown subresource":       {named("pods/proxy", "p", "create", "connect"), nil, none},
		"update of an eviction":     {named("pods/eviction", "p", "update"), nil, none},
		"another version":           {fence.Guard{Resources: []string{"configmaps"}, Names: []string{"x"}, Versions: []string{"v9"}}, nil, none},
		"unknown kind":              {fence.Guard{Group: "c.example", Resources: []string{"buoys"}, Names: []string{"b"}}, nil, "the API server does not serve buoys"},
	} {
		t.Run(name, func(t *testing.T) {
			d := guarding(x.guard)
			j, set := fenced(t, d)
			j.has("apps/v1", "Deployment", "apps", "d", nil)
			j.has("v1", "Pod", "apps", "p", nil)
			j.has("v1", "Node", "", "n", nil)
			lines := verified(t, j, set, d)
			if x.why != "" {
				if want := "unclear  lease sys/e guards " + x.guard.Resources[0] + " for sys/pilot: a pod that does not lead is rejected: " + x.why; !slices.Contains(lines, want) || len(lines) != 2 || len(j.attempts) > 0 {
					t.Errorf("%v\n%s\nwant %s", j.attempts, strings.Join(lines, "\n"), want)
				}
				return
			}
			byPod := map[string][]string{}
			for _, a := range j.attempts {
				if a.user != "system:serviceaccount:sys:pilot" {
					t.Errorf("%v", a)
				}
				byPod[a.pod] = append(byPod[a.pod], a.verb+" "+a.path)
			}
			for _, pod := range []string{noPod, "", "pod-1"} {
				if slices.Sort(byPod[pod]); !slices.Equal(byPod[pod], x.want) {
					t.Errorf("as pod %q: %q", pod, byPod[pod])
				}
			}
			if len(byPod) != 3 || len(lines) != 4 || slices.ContainsFunc(lines, func(l string) bool { return !strings.HasPrefix(l, "holds") }) {
				t.Errorf("%s", strings.Join(lines, "\n"))
			}
		})
	}
}

// The object to create for one kind is not used for another kind.
func TestVerify_TwoKinds(t *testing.T) {
	d := guarding(fence.Guard{Resources: []string{"pods", "secrets"}, Names: []string{"s"}})
	j, set := fenced(t, d)
	verified(t, j, set, d)
	if len(j.attempts) != 3 || slices.ContainsFunc(j.attempts, func(a attempt) bool { return a.path != "/api/v1/namespaces/sys/secrets" }) {
		t.Errorf("%v", j.attempts)
	}
}

func TestVerify_Findings(t *testing.T) {
	const guards = "lease sys/e guards configmaps for sys/pilot: "
	const other, unbound, leader = guards + "a pod that does not lead is rejected", guards + "an unbound token is rejected", guards + "leader pod pod-1 may write"
	const account, leads, admitted = "holds    service account sys/pilot exists", "holds    " + leader, "FAILS    " + other + ": create was admitted"
	because := func(pod string) string { return ": " + byPolicy(attempt{pod: pod}).Error() }
	const verbs = ": create, delete, patch, update"
	rejected, unboundRejected := "holds    "+other+verbs+because(noPod), "holds    "+unbound+verbs+because("")
	rbac := byRBAC(attempt{}).Error()
	policyWarns := "Validation failed for ValidatingAdmissionPolicy '" + fence.PolicyPrefix + "s.work-1' with binding b"

	admit := func(attempt) error { return nil }
	// rejectUnless returns the answers of a fence that admits some writes.
	rejectUnless := func(admitted func(attempt) bool) func(attempt) error {
		return func(a attempt) error {
			if admitted(a) {
				return nil
			}
			return byPolicy(a)
		}
	}
	for name, x := range map[string]struct {
		mode    fence.Mode
		answers func(attempt) error // the default is a fence in effect
		warns   string
		change  func(j *judging)
		want    []string
	}{
		"in effect":          {want: []string{account, rejected, unboundRejected, leads}},
		"admits all":         {answers: admit, want: []string{account, admitted}},
		"admits what exists": {answers: func(attempt) error { return apierrors.NewAlreadyExists(schema.GroupResource{}, "x") }, want: []string{account, admitted}},
		"admits one verb": {
			answers: rejectUnless(func(a attempt) bool { return a.verb == "patch" || a.pod == "pod-1" }),
			want:    []string{account, "FAILS    " + other + ": patch was admitted"},
		},
		"admits unbound tokens": {
			answers: rejectUnless(func(a attempt) bool { return a.pod != noPod }),
			want:    []string{account, rejected, "FAILS    " + unbound + ": create was admitted", leads},
		},
		"rejects the leader": {
			answers: byPolicy,
			want:    []string{account, rejected, unboundRejected, "FAILS    " + leader + ": create was rejected" + because("pod-1")},
		},
		"RBAC rejects the leader": {
			answers: func(a attempt) error {
				if a.pod == "pod-1" {
					return byRBAC(a)
				}
				return byPolicy(a)
			},
			want: []string{account, rejected, unboundRejected, leads},
		},
		"RBAC rejects all": {
			answers: byRBAC,
			want:    []string{account, "unclear  " + other + ": create: " + rbac + "; delete: " + rbac + "; patch: " + rbac + "; update: " + rbac},
		},
		"RBAC rejects some": {
			answers: func(a attempt) error {
				if a.verb != "delete" {
					return byRBAC(a)
				}
				return rejectUnless(func(a attempt) bool { return a.pod == "pod-1" })(a)
			},
			want: []string{account, "holds    " + other + ": delete" + because(noPod), "holds    " + unbound + ": delete" + because(""), leads},
		},
		"mode audit":                {mode: fence.Audit, want: []string{account, "skipped  " + other + ": mode audit rejects nothing"}},
		"mode warn":                 {mode: fence.Warn, answers: admit, warns: policyWarns, want: []string{account, "holds    " + other + verbs}},
		"mode warn, no warning":     {mode: fence.Warn, answers: admit, warns: "a deprecated API", want: []string{account, admitted}},
		"mode deny, only a warning": {answers: admit, warns: policyWarns, want: []string{account, admitted}},
		"no leader": {
			change: func(j *judging) {
				j.has("coordination.k8s.io/v1", "Lease", "sys", "e", nil)
			},
			want: []string{account, rejected, unboundRejected, "skipped  " + guards + "the leader may write: no candidate leads"},
		},
		"no lock": {
			change: func(j *judging) { j.Delete("leases", "sys", "e") },
			want:   []string{account, rejected, unboundRejected, "skipped  " + guards + "the leader may write: the lock does not exist. Until a candidate leads, all guarded writes are rejected"},
		},
		"no account": {
			change: func(j *judging) { j.Delete("serviceaccounts", "sys", "pilot") },
			want: []string{"unclear  service account sys/pilot exists: not found. Nothing can be tested with it, and a leader with another account is not guarded",
				rejected, unboundRejected, leads},
		},
		"no right to list": {
			change: func(j *judging) { j.pages["/api/v1/namespaces/apps/configmaps"] = byRBAC(attempt{}) },
			want:   []string{account, "unclear  " + other + ": find an object to test it with: " + rbac},
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := guarding(configMap())
			d.Mode = x.mode
			j, set := fenced(t, d)
			j.warns = x.warns
			if x.answers != nil {
				j.answers = x.answers
			}
			if x.change != nil {
				x.change(j)
			}
			if got := verified(t, j, set, d); !slices.Equal(got, x.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(x.want, "\n"))
			}
		})
	}
}

func TestVerify_InstalledObjects(t *testing.T) {
	d := guarding(configMap(), fence.Guard{Resources: []string{"secrets"}, Names: []string{"s"}})
	d.Lock = record.ConfigMap
	j, set := fenced(t, d)
	j.has("v1", "ConfigMap", "sys", "e", map[string]any{"metadata": map[string]any{
		"name": "e", "namespace": "sys", "annotations": map[string]any{
			"control-plane.alpha.kubernetes.io/leader": `{"holderIdentity":"pod-1","leaseDurationSeconds":30,"acquireTime":null,"renewTime":null,"leaderTransitions":1}`,
		},
	}})
	if got := verified(t, j, set, d); len(got) != 7 || slices.ContainsFunc(got, func(l string) bool { return !strings.HasPrefix(l, "holds") }) {
		t.Errorf("%s", strings.Join(got, "\n"))
	}
	first, second, third := set.Locks[0], set.Work[0], set.Work[1]
	j.Delete(bothPolicies, "", first.Name())
	j.Delete(bothBindings, "", first.Name())
	drifted := second.Binding.DeepCopy()
	drifted.Spec.ValidationActions = nil
	j.Put(drifted)
	changed := third.Policy.DeepCopy()
	changed.Spec.Validations[0].Expression = "true"
	j.Put(changed)
	got := verified(t, j, set, d)
	for _, want := range []string{
		"FAILS    policy " + first.Name() + " is installed: ValidatingAdmissionPolicy is missing, ValidatingAdmissionPolicyBinding is missing. Run `pilot fence install`",
		"FAILS    policy " + second.Name() + " is installed: ValidatingAdmissionPolicyBinding was changed. Run `pilot fence install`",
		"FAILS    policy " + third.Name() + " is installed: ValidatingAdmissionPolicy was changed. Run `pilot fence install`",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("%s\nis missing in\n%s", want, strings.Join(got, "\n"))
		}
	}
	found, err := Verify(t.Context(), clientOf(t, j.config()), set, d)
	installed := 0
	for _, f := range found {
		if strings.HasPrefix(f.What, "policy ") {
			installed++
		}
	}
	if err != nil || installed != len(set.All()) {
		t.Errorf("%v, %d of %d policies looked at", err, installed, len(set.All()))
	}
}

func TestVerify_CannotRead(t *testing.T) {
	unable := metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}}
	const policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/"
	for name, x := range map[string]struct {
		lock   record.Kind
		change func(j *judging, set fence.Set)
		want   string
	}{
		"policy": {record.Lease, func(j *judging, set fence.Set) { j.pages[policies+set.Permanent[0].Name()] = unable }, "read "},
		"kinds": {record.Lease, func(j *judging, _ fence.Set) {
			delete(j.pages, "/api")
			delete(j.pages, "/apis")
		}, "discover kinds: "},
		"lease": {record.Lease, func(j *judging, _ fence.Set) {
			j.pages["/apis/coordination.k8s.io/v1/namespaces/sys/leases/e"] = unable
		}, "read lease sys/e: "},
		"configmap": {record.ConfigMap, func(j *judging, _ fence.Set) { j.pages["/api/v1/namespaces/sys/configmaps/e"] = unable }, "read configmap sys/e: "},
	} {
		t.Run(name, func(t *testing.T) {
			d := guarding(configMap(), fence.Guard{Resources: []string{"secrets"}, Names: []string{"s"}})
			d.Lock = x.lock
			j, set := fenced(t, d)
			x.change(j, set)
			found, err := Verify(t.Context(), clientOf(t, j.config()), set, d)
			if err == nil || !strings.HasPrefix(err.Error(), x.want) || len(j.attempts) > 0 {
				t.Errorf("%v, %v, tried %v", found, err, j.attempts)
			}
		})
	}
	d := guarding(configMap())
	d.Lock = record.ConfigMap
	j, set := fenced(t, d)
	skipped := "skipped  configmap sys/e guards configmaps for sys/pilot: the leader may write: the lock does not exist. Until a candidate leads, all guarded writes are rejected"
	if got := verified(t, j, set, d); !slices.Contains(got, skipped) {
		t.Errorf("%s", strings.Join(got, "\n"))
	}
}

// A fence whose accounts the holder does not have would reject its leader. A check before the installation finds that.
func TestPrecheck(t *testing.T) {
	const unknown = "unclear  service account sys/pilot exists: not found. Nothing can be tested with it, and a leader with another account is not guarded"
	for name, x := range map[string]struct {
		account string
		change  func(d *fence.Declaration, j *judging)
		want    string
	}{
		"as declared":     {"pilot", nil, "holds    pod pod-1, which holds lease sys/e, has an account that may hold it"},
		"another":         {"istiod", nil, "FAILS    pod pod-1, which holds lease sys/e, has an account that may hold it: it runs with service account sys/istiod, and the fence declares sys/pilot"},
		"one of others":   {"istiod", func(d *fence.Declaration, _ *judging) { d.Others = []string{"sys/isti*"} }, "holds    pod pod-1, which holds lease sys/e, has an account that may hold it"},
		"mode audit":      {"istiod", func(d *fence.Declaration, _ *judging) { d.Mode = fence.Audit }, "holds    service account sys/pilot exists"},
		"missing account": {"pilot", func(_ *fence.Declaration, j *judging) { j.Delete("serviceaccounts", "sys", "pilot") }, unknown},
	} {
		d := guarding(configMap())
		j, _ := fenced(t, d)
		j.has("v1", "Pod", "sys", "pod-1", map[string]any{"spec": map[string]any{"serviceAccountName": x.account, "containers": []any{}}})
		if x.change != nil {
			x.change(&d, j)
		}
		v := newVerifier(t.Context(), clientOf(t, j.config()))
		v.holders([]fence.Declaration{d})
		found, err := v.findings, v.err
		if err != nil || !slices.ContainsFunc(found, func(f Finding) bool { return f.String() == x.want }) || len(j.attempts) > 0 {
			t.Errorf("%s: %v, %v, tried %v", name, found, err, j.attempts)
		}
	}
}

// If the fence rejects the writes of the leader, the wait ends before the leader loses its lock.
func TestInstall_LeaderRejected(t *testing.T) {
	d := guarding(configMap())
	j, set := fenced(t, d)
	j.answers = byPolicy
	found, err := (&connection{clients: []kube.Client{clientOf(t, j.config())}}).await(t.Context(), set, []fence.Declaration{d})
	if err == nil || !slices.ContainsFunc(found, func(f Finding) bool {
		return f.Verdict == Fails && strings.Contains(f.What, "leader pod pod-1 may write")
	}) {
		t.Errorf("%v, %v", found, err)
	}
}

func TestVerify_ClosesConnections(t *testing.T) {
	d := guarding(configMap())
	j, set := fenced(t, d)
	client := clientOf(t, j.config())
	_, err := Verify(t.Context(), client, set, d)
	harness.Must(t, err)
	kube.CloseIdleConnections(client)
	err = wait.PollUntilContextTimeout(t.Context(), 5*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) { return j.open.Load() == 0, nil })
	if err != nil {
		t.Errorf("%d connections are open", j.open.Load())
	}
}
