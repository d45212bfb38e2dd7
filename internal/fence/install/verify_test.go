package install

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"

	"incumbent.dev/incumbent/internal/fence"
)

func guarding(guards ...fence.Guard) fence.Declaration {
	return fence.Declaration{Election: "e", Namespace: "sys", Lock: fence.Lease, ServiceAccounts: []string{"sys/pilot"}, Guards: guards}
}

// fenced is an API server with a fence in effect: only pod-1 leads and may write.
func fenced(t *testing.T, d fence.Declaration) (*judging, fence.Set) {
	t.Helper()
	set, err := fence.Render("sys", d)
	if err != nil {
		t.Fatal(err)
	}
	j := newJudging(t)
	j.installed(set)
	j.has("v1", "ServiceAccount", "/api/v1", "sys", "serviceaccounts", "pilot", nil)
	j.has("coordination.k8s.io/v1", "Lease", "/apis/coordination.k8s.io/v1", "sys", "leases", "e", map[string]any{"spec": map[string]any{"holderIdentity": "pod-1"}})
	j.has("v1", "ConfigMap", "/api/v1", "apps", "configmaps", "x", nil)
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
	found, err := Verify(t.Context(), j.config(), set, d)
	if err != nil {
		t.Fatal(err)
	}
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
	for name, x := range map[string]struct {
		guard fence.Guard
		want  []string // of one pod
		why   string   // without any: why
	}{
		"an object": {guard: configMap(), want: []string{
			"create /api/v1/namespaces/apps/configmaps", "delete /api/v1/namespaces/apps/configmaps/x",
			"patch /api/v1/namespaces/apps/configmaps/x", "update /api/v1/namespaces/apps/configmaps/x",
		}},
		"its updates": {guard: fence.Guard{Resources: []string{"configmaps"}, Names: []string{"x"}, Verbs: []string{"update"}}, want: []string{
			"patch /api/v1/namespaces/apps/configmaps/x", "update /api/v1/namespaces/apps/configmaps/x",
		}},
		"one by labels": {guard: fence.Guard{Resources: []string{"configmaps"}, Labels: map[string]string{"app": "x"}, Verbs: []string{"delete"}}, want: []string{
			"delete /api/v1/namespaces/apps/configmaps/x",
		}},
		"all below it": {guard: fence.Guard{Group: "apps", Resources: []string{"deployments/*"}, Names: []string{"d"}, Verbs: []string{"delete"}}, want: []string{
			"delete /apis/apps/v1/namespaces/apps/deployments/d",
		}},
		"updates of all below it": {guard: fence.Guard{Group: "apps", Resources: []string{"deployments/*"}, Names: []string{"d"}, Verbs: []string{"update"}}, want: []string{
			"patch /apis/apps/v1/namespaces/apps/deployments/d", "update /apis/apps/v1/namespaces/apps/deployments/d",
		}},
		"a subresource": {guard: fence.Guard{Group: "apps", Resources: []string{"deployments/scale"}, Names: []string{"d"}}, want: []string{
			"patch /apis/apps/v1/namespaces/apps/deployments/d/scale", "update /apis/apps/v1/namespaces/apps/deployments/d/scale",
		}},
		"an eviction": {guard: fence.Guard{Resources: []string{"pods/eviction"}, Names: []string{"p"}, Verbs: []string{"create"}}, want: []string{
			"create /api/v1/namespaces/apps/pods/p/eviction",
		}},
		"a binding": {guard: fence.Guard{Resources: []string{"pods/binding"}, Names: []string{"p"}, Verbs: []string{"create"}}, want: []string{
			"create /api/v1/namespaces/apps/pods/p/binding",
		}},
		"a token": {guard: fence.Guard{Resources: []string{"serviceaccounts/token"}, Names: []string{"pilot"}, Verbs: []string{"create"}}, want: []string{
			"create /api/v1/namespaces/sys/serviceaccounts/pilot/token",
		}},
		"a connection": {guard: fence.Guard{Resources: []string{"pods/exec"}, Names: []string{"q"}, Namespaces: []string{"far"}, Verbs: []string{"connect"}}, want: []string{
			"create /api/v1/namespaces/far/pods/q/exec",
		}},
		"a connection to any": {guard: fence.Guard{Resources: []string{"pods/exec"}, Verbs: []string{"connect"}, Wide: true}, want: []string{
			"create /api/v1/namespaces/apps/pods/incumbent-fence-probe/exec",
		}},
		"one in no namespace": {guard: fence.Guard{Resources: []string{"nodes"}, Names: []string{"n"}}, want: []string{
			"create /api/v1/nodes", "delete /api/v1/nodes/n", "patch /api/v1/nodes/n", "update /api/v1/nodes/n",
		}},
		"none yet": {guard: fence.Guard{Resources: []string{"secrets"}, Names: []string{"s"}}, want: []string{
			"create /api/v1/namespaces/sys/secrets",
		}},
		"none yet, elsewhere":    {guard: fence.Guard{Resources: []string{"secrets"}, Namespaces: []string{"far"}, Names: []string{"s"}}, want: []string{"create /api/v1/namespaces/far/secrets"}},
		"none, of its deletions": {guard: fence.Guard{Resources: []string{"secrets"}, Names: []string{"s"}, Verbs: []string{"delete"}}, why: "no such object exists to test it with"},
		"none, of its updates":   {guard: fence.Guard{Resources: []string{"pods"}, Names: []string{"s"}}, why: "no such object exists to test it with"},
		"none to evict":          {guard: fence.Guard{Resources: []string{"pods/eviction"}, Names: []string{"r"}, Verbs: []string{"create"}}, why: "no such object exists to test it with"},
		"no such subresource":    {guard: fence.Guard{Resources: []string{"pods/proxy"}, Names: []string{"p"}, Verbs: []string{"create", "connect"}}, why: "no such object exists to test it with"},
		"one never updated":      {guard: fence.Guard{Resources: []string{"pods/eviction"}, Names: []string{"p"}, Verbs: []string{"update"}}, why: "no such object exists to test it with"},
		"another version":        {guard: fence.Guard{Resources: []string{"configmaps"}, Names: []string{"x"}, Versions: []string{"v9"}}, why: "no such object exists to test it with"},
		"every version":          {guard: fence.Guard{Resources: []string{"configmaps"}, Names: []string{"x"}, Versions: []string{"*"}, Verbs: []string{"delete"}}, want: []string{"delete /api/v1/namespaces/apps/configmaps/x"}},
		"an unknown kind":        {guard: fence.Guard{Group: "c.example", Resources: []string{"buoys"}, Names: []string{"b"}}, why: "the API server does not serve buoys"},
	} {
		t.Run(name, func(t *testing.T) {
			d := guarding(x.guard)
			j, set := fenced(t, d)
			j.has("apps/v1", "Deployment", "/apis/apps/v1", "apps", "deployments", "d", nil)
			j.has("v1", "Pod", "/api/v1", "apps", "pods", "p", nil)
			j.has("v1", "Node", "/api/v1", "", "nodes", "n", nil)
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

func TestVerify_EachKind(t *testing.T) {
	d := guarding(fence.Guard{Resources: []string{"pods", "secrets"}, Names: []string{"s"}})
	j, set := fenced(t, d)
	lines := verified(t, j, set, d)
	for _, a := range j.attempts {
		if a.path != "/api/v1/namespaces/sys/secrets" {
			t.Errorf("%v", a)
		}
	}
	if want := "unclear  lease sys/e guards pods for sys/pilot: a pod that does not lead is rejected: no such object exists to test it with"; len(j.attempts) != 3 || !slices.Contains(lines, want) {
		t.Errorf("%v\n%s", j.attempts, strings.Join(lines, "\n"))
	}
}

func TestVerify_FindsExample(t *testing.T) {
	d := guarding(fence.Guard{Resources: []string{"secrets"}, Names: []string{"a", "b"}, Namespaces: []string{"n", "m"}, Labels: map[string]string{"k": "v"}})
	j, set := fenced(t, d)
	verified(t, j, set, d)
	want := []string{
		"/api/v1/namespaces/n/secrets metadata.name=a k=v 1", "/api/v1/namespaces/n/secrets metadata.name=b k=v 1",
		"/api/v1/namespaces/m/secrets metadata.name=a k=v 1", "/api/v1/namespaces/m/secrets metadata.name=b k=v 1",
	}
	if !slices.Equal(j.asked, want) {
		t.Errorf("%q", j.asked)
	}
}

func TestVerify_Findings(t *testing.T) {
	const guards = "lease sys/e guards configmaps for sys/pilot: "
	const other, unbound, leader = guards + "a pod that does not lead is rejected", guards + "an unbound token is rejected", guards + "leader pod pod-1 may write"
	const there = "holds    service account sys/pilot exists"
	said := func(pod string) string { return ": " + byPolicy(attempt{pod: pod}).Error() }
	all := ": create, delete, patch, update"
	for name, x := range map[string]struct {
		change func(j *judging, d *fence.Declaration)
		want   []string
	}{
		"stands": {func(*judging, *fence.Declaration) {}, []string{there, "holds    " + other + all + said(noPod), "holds    " + unbound + all + said(""), "holds    " + leader}},
		"admits all": {func(j *judging, _ *fence.Declaration) { j.answers = func(attempt) error { return nil } },
			[]string{there, "FAILS    " + other + ": create was admitted"}},
		"admits what exists": {func(j *judging, _ *fence.Declaration) {
			j.answers = func(attempt) error { return apierrors.NewAlreadyExists(schema.GroupResource{}, "x") }
		}, []string{there, "FAILS    " + other + ": create was admitted"}},
		"admits one": {func(j *judging, _ *fence.Declaration) {
			j.answers = func(a attempt) error {
				if a.verb == "patch" || a.pod == "pod-1" {
					return nil
				}
				return byPolicy(a)
			}
		}, []string{there, "FAILS    " + other + ": patch was admitted"}},
		"admits unbound tokens": {func(j *judging, _ *fence.Declaration) {
			j.answers = func(a attempt) error {
				if a.pod == noPod {
					return byPolicy(a)
				}
				return nil
			}
		}, []string{there, "holds    " + other + all + said(noPod), "FAILS    " + unbound + ": create was admitted", "holds    " + leader}},
		"refuses the leader": {func(j *judging, _ *fence.Declaration) { j.answers = byPolicy },
			[]string{there, "holds    " + other + all + said(noPod), "holds    " + unbound + all + said(""), "FAILS    " + leader + ": create was rejected: " + byPolicy(attempt{pod: "pod-1"}).Error()}},
		"RBAC refuses the leader": {func(j *judging, _ *fence.Declaration) {
			j.answers = func(a attempt) error {
				if a.pod == "pod-1" {
					return byRBAC(a)
				}
				return byPolicy(a)
			}
		}, []string{there, "holds    " + other + all + said(noPod), "holds    " + unbound + all + said(""), "holds    " + leader}},
		"RBAC refuses": {func(j *judging, _ *fence.Declaration) { j.answers = byRBAC },
			[]string{there, "unclear  " + other + ": " + tried(byRBAC(attempt{}), "create", "delete", "patch", "update")}},
		"RBAC refuses some": {func(j *judging, _ *fence.Declaration) {
			j.answers = func(a attempt) error {
				switch {
				case a.verb != "delete":
					return byRBAC(a)
				case a.pod == "pod-1":
					return nil
				}
				return byPolicy(a)
			}
		}, []string{there, "holds    " + other + ": delete" + said(noPod), "holds    " + unbound + ": delete" + said(""), "holds    " + leader}},
		"in mode audit": {func(_ *judging, d *fence.Declaration) { d.Mode = fence.Audit },
			[]string{there, "skipped  " + other + ": mode audit rejects nothing"}},
		"in mode warn, which warns": {func(j *judging, d *fence.Declaration) {
			d.Mode, j.warns, j.answers = fence.Warn, "Validation failed for ValidatingAdmissionPolicy '"+fence.PolicyPrefix+"s.work-1' with binding b", func(attempt) error { return nil }
		}, []string{there, "holds    " + other + all}},
		"in mode warn, which does not": {func(j *judging, d *fence.Declaration) {
			d.Mode, j.warns, j.answers = fence.Warn, "a deprecated API", func(attempt) error { return nil }
		}, []string{there, "FAILS    " + other + ": create was admitted"}},
		"warns in mode deny": {func(j *judging, _ *fence.Declaration) {
			j.warns, j.answers = "Validation failed for ValidatingAdmissionPolicy '"+fence.PolicyPrefix+"s.work-1'", func(attempt) error { return nil }
		}, []string{there, "FAILS    " + other + ": create was admitted"}},
		"nobody leads": {func(j *judging, _ *fence.Declaration) {
			j.has("coordination.k8s.io/v1", "Lease", "/apis/coordination.k8s.io/v1", "sys", "leases", "e", nil)
		}, []string{there, "holds    " + other + all + said(noPod), "holds    " + unbound + all + said(""), "skipped  " + guards + "the leader may write: no candidate leads"}},
		"no lock": {func(j *judging, _ *fence.Declaration) {
			delete(j.objects, "/apis/coordination.k8s.io/v1/namespaces/sys/leases/e")
		},
			[]string{there, "holds    " + other + all + said(noPod), "holds    " + unbound + all + said(""), "skipped  " + guards + "the leader may write: the lock does not exist. Until a candidate leads, all guarded writes are rejected"}},
		"no account": {func(j *judging, _ *fence.Declaration) {
			delete(j.objects, "/api/v1/namespaces/sys/serviceaccounts/pilot")
		},
			[]string{"unclear  service account sys/pilot exists: not found. Nothing can be tested with it, and a leader with another account is not guarded",
				"holds    " + other + all + said(noPod), "holds    " + unbound + all + said(""), "holds    " + leader}},
	} {
		t.Run(name, func(t *testing.T) {
			d := guarding(configMap())
			j, _ := fenced(t, d)
			x.change(j, &d)
			set, err := fence.Render("sys", d)
			if err != nil {
				t.Fatal(err)
			}
			j.installed(set)
			if got := verified(t, j, set, d); !slices.Equal(got, x.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(x.want, "\n"))
			}
		})
	}
}

// tried is how an answer that settles nothing is told for each verb.
func tried(err error, verbs ...string) string {
	var all []string
	for _, verb := range verbs {
		all = append(all, verb+": "+err.Error())
	}
	return strings.Join(all, "; ")
}

func TestVerify_InstalledObjects(t *testing.T) {
	d := guarding(configMap(), fence.Guard{Resources: []string{"secrets"}, Names: []string{"s"}})
	d.Lock = fence.ConfigMap
	j, set := fenced(t, d)
	j.has("v1", "ConfigMap", "/api/v1", "sys", "configmaps", "e", map[string]any{"metadata": map[string]any{
		"name": "e", "namespace": "sys", "annotations": map[string]any{
			"control-plane.alpha.kubernetes.io/leader": `{"holderIdentity":"pod-1","leaseDurationSeconds":30,"acquireTime":null,"renewTime":null,"leaderTransitions":1}`,
		},
	}})
	if got := verified(t, j, set, d); len(got) != 7 || slices.ContainsFunc(got, func(l string) bool { return !strings.HasPrefix(l, "holds") }) {
		t.Errorf("%s", strings.Join(got, "\n"))
	}
	first, second, third := set.Locks[0], set.Work[0], set.Work[1]
	const path = "/apis/admissionregistration.k8s.io/v1/"
	delete(j.objects, path+"validatingadmissionpolicies/"+first.Name())
	delete(j.objects, path+"validatingadmissionpolicybindings/"+first.Name())
	drifted := second.Binding.DeepCopy()
	drifted.Spec.ValidationActions = nil
	j.objects[path+"validatingadmissionpolicybindings/"+second.Name()] = drifted
	changed := third.Policy.DeepCopy()
	changed.Spec.Validations[0].Expression = "true"
	j.objects[path+"validatingadmissionpolicies/"+third.Name()] = changed
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
	found, err := Verify(t.Context(), j.config(), set, d)
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
	d := guarding(configMap(), fence.Guard{Resources: []string{"secrets"}, Names: []string{"s"}})
	for name, x := range map[string]struct {
		change func(j *judging, set fence.Set)
		want   string
	}{
		"a policy": {func(j *judging, set fence.Set) {
			j.objects["/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/"+set.Permanent[0].Name()] = unable
		}, "read "},
		"the kinds": {func(j *judging, _ fence.Set) {
			delete(j.objects, "/api")
			delete(j.objects, "/apis")
		}, "discover kinds: "},
		"the lock": {func(j *judging, _ fence.Set) {
			j.objects["/apis/coordination.k8s.io/v1/namespaces/sys/leases/e"] = unable
		}, "read lease sys/e: "},
	} {
		t.Run(name, func(t *testing.T) {
			j, set := fenced(t, d)
			x.change(j, set)
			found, err := Verify(t.Context(), j.config(), set, d)
			if err == nil || !strings.HasPrefix(err.Error(), x.want) || len(j.attempts) > 0 {
				t.Errorf("%v, %v, tried %v", found, err, j.attempts)
			}
		})
	}
	d.Lock = fence.ConfigMap
	j, set := fenced(t, d)
	skipped := "skipped  configmap sys/e guards configmaps for sys/pilot: the leader may write: the lock does not exist. Until a candidate leads, all guarded writes are rejected"
	if got := verified(t, j, set, d); !slices.Contains(got, skipped) {
		t.Errorf("%s", strings.Join(got, "\n"))
	}
	j.objects["/api/v1/namespaces/sys/configmaps/e"] = unable
	if found, err := Verify(t.Context(), j.config(), set, d); err == nil || !strings.HasPrefix(err.Error(), "read configmap sys/e: ") {
		t.Errorf("%v, %v", found, err)
	}
	config := j.config()
	config.Host = "http://a b"
	if _, err := Verify(t.Context(), config, set, d); err == nil {
		t.Error("with an address that is none")
	}
}

func TestVerify_ExampleForbidden(t *testing.T) {
	d := guarding(configMap())
	j, set := fenced(t, d)
	j.lists["/api/v1/namespaces/apps/configmaps?metadata.name=x"] = byRBAC(attempt{})
	want := "unclear  lease sys/e guards configmaps for sys/pilot: a pod that does not lead is rejected: find an object to test it with: " + byRBAC(attempt{}).Error()
	if lines := verified(t, j, set, d); len(lines) != 2 || !slices.Contains(lines, want) || len(j.attempts) > 0 {
		t.Errorf("%v\n%s", j.attempts, strings.Join(lines, "\n"))
	}
}

func TestVerify_ClosesConnections(t *testing.T) {
	d := guarding(configMap())
	j, set := fenced(t, d)
	j.answers = func(a attempt) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "x"}, "y", errors.New("ValidatingAdmissionPolicy '"+fence.PolicyPrefix+"s.work-1' denied request: "+a.verb))
	}
	lines := verified(t, j, set, d)
	if !strings.HasPrefix(lines[1], "holds") || !strings.HasSuffix(lines[1], "denied request: create") {
		t.Errorf("%s", strings.Join(lines, "\n"))
	}
	err := wait.PollUntilContextTimeout(t.Context(), 5*time.Millisecond, 10*time.Second, true, func(context.Context) (bool, error) { return j.open.Load() == 0, nil })
	if err != nil {
		t.Errorf("%d connections are open", j.open.Load())
	}
}

func TestTry(t *testing.T) {
	j := newJudging(t)
	client, err := dynamic.NewForConfig(impersonate(j.config(), "sys/pilot", "pod-2"))
	if err != nil {
		t.Fatal(err)
	}
	p := fence.Probes(guarding(configMap()))[0]
	for text, x := range map[string]struct {
		answers func(attempt) error
		want    Answer
	}{
		"admitted": {func(attempt) error { return nil }, Admitted},
		"refused":  {byPolicy, Refused},
		"unclear":  {byRBAC, Unclear},
	} {
		j.answers = x.answers
		got, err := Try(t.Context(), client, p)
		if got != x.want || got.String() != text || (err == nil) != (x.want == Admitted) {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	if len(j.attempts) != 3 || j.attempts[0].String() != `create /api/v1/namespaces/apps/configmaps by system:serviceaccount:sys:pilot, pod "pod-2"` {
		t.Errorf("%v", j.attempts)
	}
	p.Object = nil
	if got, err := Try(t.Context(), client, p); got != Unclear || err == nil || err.Error() != "no write can test configmaps" {
		t.Errorf("%v, %v", got, err)
	}
	if answerOf(errors.New("no answer")) != Unclear || answerOf(fmt.Errorf("wrapped: %w", byPolicy(attempt{}))) != Refused {
		t.Error("what is no answer is one")
	}
}
