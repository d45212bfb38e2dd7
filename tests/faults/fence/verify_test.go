package fence

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"incumbent.dev/incumbent/internal/fence"
	"incumbent.dev/incumbent/internal/fence/install"
	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pkg/kube"
)

// finding returns the only finding whose statement contains all words.
func finding(t *testing.T, findings []install.Finding, words ...string) install.Finding {
	t.Helper()
	var found []install.Finding
	for _, f := range findings {
		all := true
		for _, word := range words {
			all = all && strings.Contains(f.What, word)
		}
		if all {
			found = append(found, f)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d findings about %v in %v", len(found), words, findings)
	}
	return found[0]
}

// versions returns the versions of all objects of the namespace that a probe could have changed.
func (s *stage) versions() string {
	s.t.Helper()
	var all []string
	client := s.cluster.Client(s.t).Dynamic()
	for _, kind := range []schema.GroupVersionResource{
		{Version: "v1", Resource: "secrets"}, {Version: "v1", Resource: "configmaps"}, {Version: "v1", Resource: "pods"},
		{Group: "apps", Version: "v1", Resource: "deployments"},
	} {
		list, err := client.Resource(kind).Namespace(s.namespace).List(s.t.Context(), metav1.ListOptions{})
		harness.Must(s.t, err)
		for _, o := range list.Items {
			all = append(all, o.GetName()+"@"+o.GetResourceVersion())
		}
	}
	return strings.Join(all, " ")
}

func TestVerify_TriesEveryWrite(t *testing.T) {
	t.Parallel()
	s := newStage(t, record.Lease)
	a, b := s.pod("a"), s.pod("b")
	s.put(content{holder: "a", transitions: 3})
	managed := map[string]string{"managed": "yes"}
	d := s.declaration()
	d.Guards[0].Resources = []string{"configmaps"}
	d.Guards = append(d.Guards,
		fence.Guard{Resources: []string{"secrets"}, Labels: managed, Namespaces: []string{s.namespace}},
		fence.Guard{Group: "apps", Resources: []string{"deployments", "deployments/scale"}, Names: []string{guarded}, Namespaces: []string{s.namespace}},
		fence.Guard{Resources: []string{"pods/eviction"}, Namespaces: []string{s.namespace}},
		fence.Guard{Resources: []string{"pods/exec"}, Verbs: []string{"connect"}, Namespaces: []string{s.namespace}})
	s.must(s.admin.CoreV1().ConfigMaps(s.namespace).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: guarded}}, metav1.CreateOptions{}))
	s.must(s.admin.CoreV1().Secrets(s.namespace).Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "managed", Labels: managed}}, metav1.CreateOptions{}))
	s.install(d)
	s.inEffect(a, b)
	client, err := kube.NewClient(s.cluster.Admin(), kube.WithRateLimit(-1, 0))
	harness.Must(t, err)
	defer kube.CloseIdleConnections(client)
	verify := func() []install.Finding {
		t.Helper()
		findings, err := install.Verify(t.Context(), client, s.set, d)
		harness.Must(t, err)
		return findings
	}
	findings := verify()
	if f := finding(t, findings, "deployments/scale", "does not lead"); f.Verdict != install.Undecided {
		t.Errorf("without any Deployment, its scale is %v", f)
	}
	s.must(s.admin.AppsV1().Deployments(s.namespace).Create(t.Context(), deployment(), metav1.CreateOptions{}))
	before := s.versions()
	findings = verify()
	if err := install.Judge(findings, install.Judging{Strict: true}); err != nil {
		t.Errorf("all could be tried: %v", err)
	}
	for resource, verbs := range map[string]string{
		"guards configmaps ": "create, delete, patch, update", "guards secrets ": "create, delete, patch, update", "guards deployments ": "create, delete, patch, update",
		"guards deployments/scale ": "patch, update", "guards pods/eviction ": "create", "guards pods/exec ": "connect",
	} {
		for _, who := range []string{"a pod that does not lead", "an unbound token"} {
			if f := finding(t, findings, resource, who); f.Verdict != install.Holds || !strings.HasPrefix(f.Why, verbs+":") {
				t.Errorf("%s%s: %v", resource, who, f)
			}
		}
		if f := finding(t, findings, resource, "leader pod a"); f.Verdict != install.Holds {
			t.Errorf("%v", f)
		}
	}
	if after := s.versions(); after != before {
		t.Errorf("verifying changed\n%s to\n%s", before, after)
	}
	t.Log("writes that no probe makes")
	dry := metav1.PatchOptions{DryRun: dryRun, FieldManager: "t"}
	for what, write := range map[string]func(as kubernetes.Interface) error{
		"server-side apply": func(as kubernetes.Interface) error {
			body := []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"guarded"},"data":{"a":"b"}}`)
			_, err := as.CoreV1().ConfigMaps(s.namespace).Patch(t.Context(), guarded, applyPatch, body, dry)
			return err
		},
		"removing the label": func(as kubernetes.Interface) error {
			_, err := as.CoreV1().Secrets(s.namespace).Patch(t.Context(), "managed", mergePatch, []byte(`{"metadata":{"labels":null}}`), dry)
			return err
		},
		"deleting all Secrets": func(as kubernetes.Interface) error {
			return as.CoreV1().Secrets(s.namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{DryRun: dryRun}, metav1.ListOptions{})
		},
	} {
		s.allowed(what+" by the leader", write(a))
		s.refused(what+" by another pod", write(b), "pod b is not the leader")
	}
	// In a request for a collection, guarded objects have no name.
	for who, as := range map[string]kubernetes.Interface{"another pod": b, "the leader": a} {
		err := as.CoreV1().ConfigMaps(s.namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{DryRun: dryRun}, metav1.ListOptions{})
		s.refused("deleting all ConfigMaps by "+who, err, "delete them by name")
	}
	_, err = b.CoreV1().ConfigMaps(s.namespace).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "free"}}, metav1.CreateOptions{DryRun: dryRun})
	s.allowed("another ConfigMap", err)
	_, err = b.CoreV1().Secrets(s.namespace).Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "plain"}}, metav1.CreateOptions{DryRun: dryRun})
	s.allowed("a Secret without the label", err)
	s.allowed("a write of an operator", s.write(s.admin))
	t.Log("a guard without one of its verbs, by another's hand")
	soften := `[{"op":"replace","path":"/spec/matchConstraints/resourceRules/0/operations","value":["CREATE","UPDATE"]}]`
	for _, p := range s.set.Work {
		if within := p.Binding.Spec.MatchResources; within != nil && len(within.ObjectSelector.MatchLabels) > 0 {
			s.must(s.admin.AdmissionregistrationV1().ValidatingAdmissionPolicies().Patch(t.Context(), p.Name(), types.JSONPatchType, []byte(soften), metav1.PatchOptions{}))
		}
	}
	eventually(t, "the deletion is admitted", func() bool { return finding(t, verify(), "guards secrets ", "does not lead").Verdict == install.Fails })
	if after := s.versions(); after != before {
		t.Errorf("an admitted probe changed\n%s to\n%s", before, after)
	}
}
