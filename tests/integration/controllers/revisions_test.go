package controllers

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"incumbent.dev/incumbent/pkg/kube"
	"incumbent.dev/incumbent/pkg/revisions"
	"incumbent.dev/incumbent/tests/cluster"
)

// poll is the poll interval of the watchers.
const poll = 50 * time.Millisecond

const (
	revLabel = "istio.io/rev"
	tagLabel = "istio.io/tag"
)

// put creates or updates a webhook configuration.
func put(t *testing.T, c kube.Client, name string, labels map[string]string) {
	t.Helper()
	hooks := c.Kube().AdmissionregistrationV1().MutatingWebhookConfigurations()
	wanted := &admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	_, err := hooks.Create(t.Context(), wanted, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		wanted, err = hooks.Get(t.Context(), name, metav1.GetOptions{})
		if err == nil {
			wanted.Labels = labels
			_, err = hooks.Update(t.Context(), wanted, metav1.UpdateOptions{})
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, c kube.Client, name string) {
	t.Helper()
	err := c.Kube().AdmissionregistrationV1().MutatingWebhookConfigurations().Delete(t.Context(), name, metav1.DeleteOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

func rev(revision string) map[string]string { return map[string]string{revLabel: revision} }

// calls records the values of handler calls.
type calls[T any] struct {
	mu     sync.Mutex
	values []T
}

func (o *calls[T]) add(v T) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.values = append(o.values, v)
}

func (o *calls[T]) all() []T {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.values)
}

// may returns a rule for one webhook.
func may(name string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{
		APIGroups: []string{"admissionregistration.k8s.io"}, Resources: []string{"mutatingwebhookconfigurations"},
		ResourceNames: []string{name}, Verbs: verbs,
	}
}

// Each sufficient set of verbs lets the watcher see each change, in order.
func TestDefaultRevision_Permissions(t *testing.T) {
	for name, verbs := range map[string][]string{
		"all":             {"get", "list", "watch"},
		"list-and-watch":  {"list", "watch"},
		"get-and-watch":   {"get", "watch"},
		"get-and-list":    {"get", "list"},
		"only-get":        {"get"},
		"only-list":       {"list"},
		"everything-plus": {"*"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := cluster.Shared(t)
			admin, namespace := c.Client(t), c.Namespace(t)
			webhook := revisions.DefaultTagWebhook(namespace)
			j := newJournal()
			w := revisions.NewDefault(identity(t, c, namespace, "a", may(webhook, verbs...)),
				revisions.Config{Revision: "stable", Namespace: namespace, PollInterval: poll, Logger: j.logger(t)})
			var seen calls[string]
			w.AddHandler(func(revision string) {
				if got := w.GetDefault(); !w.HasSynced() {
					t.Errorf("handler called with %q, GetDefault returns %q", revision, got)
				}
				seen.add(revision)
			})
			if w.HasSynced() || w.GetDefault() != "" {
				t.Error("synced before Run")
			}
			during(t, w.Run)
			var want []string
			step := func(value string) {
				t.Helper()
				want = append(want, value)
				await(t, "handler called with "+value, func() bool { return slices.Equal(seen.all(), want) })
			}
			step("")
			put(t, admin, webhook, rev("stable"))
			step("stable")
			put(t, admin, webhook, rev("canary"))
			step("canary")
			put(t, admin, webhook, nil)
			step("")
			put(t, admin, webhook, rev(""))
			step("default")
			remove(t, admin, webhook)
			step("")
			put(t, admin, webhook, rev("stable"))
			step("stable")

			forbidden := 0
			for _, verb := range []string{"get", "list", "watch"} {
				if slices.Contains(verbs, verb) || slices.Contains(verbs, "*") {
					continue
				}
				// get is used only if list is forbidden.
				if logged := j.Count("WARN", "permission denied", "verb="+verb); verb != "get" && logged != 1 {
					t.Errorf("missing %s is logged %d times", verb, logged)
				}
				forbidden++
			}
			if got := j.Count("WARN"); got > forbidden {
				t.Errorf("%d warnings, more than %d missing verbs", got, forbidden)
			}
		})
	}
}

// grant replaces the rules of a cluster role.
func grant(t *testing.T, admin kube.Client, role string, rules ...rbacv1.PolicyRule) {
	t.Helper()
	wanted := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: role}, Rules: rules}
	if _, err := admin.Kube().RbacV1().ClusterRoles().Update(t.Context(), wanted, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// The watcher reads Services and the default validator as soon as it has the permissions.
func TestTags_ServicesAndValidator(t *testing.T) {
	t.Parallel()
	c := cluster.Shared(t)
	admin, namespace := c.Client(t), c.Namespace(t)
	revision, role := "r-"+namespace, namespace+":a"
	hooks := rbacv1.PolicyRule{
		APIGroups: []string{"admissionregistration.k8s.io"}, Resources: []string{"mutatingwebhookconfigurations"}, Verbs: []string{"list", "watch"},
	}
	j := newJournal()
	w := revisions.NewTags(identity(t, c, namespace, "a", hooks), revisions.Config{Revision: revision, Namespace: namespace, PollInterval: poll, Logger: j.logger(t)})
	var seen calls[sets.Set[string]]
	w.AddHandler(seen.add)
	end := during(t, w.Run)
	mine := func(what string, unlabelled bool, tags ...string) {
		t.Helper()
		await(t, what, func() bool {
			return w.HasSynced() && w.GetMyTags().Equal(sets.New(append(tags, revision)...)) && w.IsMine(metav1.ObjectMeta{}) == unlabelled
		})
	}
	services, validators := admin.Kube().CoreV1().Services(namespace), admin.Kube().AdmissionregistrationV1().ValidatingWebhookConfigurations()
	tag := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "istiod-revision-tag-prod", Labels: map[string]string{revLabel: revision, tagLabel: "prod"}},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 443}}},
	}
	validator := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "istiod-default-validator", Labels: rev(revision)}}
	must(t)(services.Create(t.Context(), tag, metav1.CreateOptions{}))
	must(t)(validators.Create(t.Context(), validator, metav1.CreateOptions{}))
	t.Cleanup(func() {
		err := validators.Delete(context.WithoutCancel(t.Context()), validator.Name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
	mine("known without rights to Services and validators", false)
	await(t, "missing permissions logged", func() bool { return j.Count("permission denied") == 3 })
	if w.(revisions.Reporter).Problem() == nil {
		t.Error("Problem returned nil")
	}

	grant(t, admin, role, hooks,
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"services"}, Verbs: []string{"list", "watch"}},
		rbacv1.PolicyRule{
			APIGroups: []string{"admissionregistration.k8s.io"}, Resources: []string{"validatingwebhookconfigurations"},
			ResourceNames: []string{validator.Name}, Verbs: []string{"list", "watch"},
		})
	mine("both read", true, "prod")
	if j.Count("permission denied") != 3 || w.(revisions.Reporter).Problem() != nil {
		t.Errorf("logged %d times; problem %v", j.Count("permission denied"), w.(revisions.Reporter).Problem())
	}
	must(t)(services.Patch(t.Context(), tag.Name, types.MergePatchType, []byte(`{"metadata":{"labels":{"istio.io/rev":"other"}}}`), metav1.PatchOptions{}))
	mine("a tag of another", true)
	must(t)(validators.Patch(t.Context(), validator.Name, types.MergePatchType, []byte(`{"metadata":{"labels":{"istio.io/rev":"other"}}}`), metav1.PatchOptions{}))
	mine("another default", false)
	must(t)(services.Patch(t.Context(), tag.Name, types.MergePatchType, []byte(`{"metadata":{"labels":{"istio.io/rev":"`+revision+`"}}}`), metav1.PatchOptions{}))
	mine("ours again", false, "prod")
	if err := services.Delete(t.Context(), tag.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	mine("the Service is deleted", false)
	end()
}

// must fails the test on an error.
func must(t *testing.T) func(_ any, err error) {
	t.Helper()
	return func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
}
