package controllers

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/pilot/bootstrap"
	"incumbent.dev/incumbent/pilot/bootstrap/manifests"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pkg/kube"
	"incumbent.dev/incumbent/tests/cluster"
)

// eventsOn returns the messages of the Events on a lock, with their type unless it is Normal.
func eventsOn(t *testing.T, admin kube.Client, home, kind string) []string {
	t.Helper()
	all, err := admin.Kube().CoreV1().Events(home).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var messages []string
	for _, e := range all.Items {
		if about := e.InvolvedObject; about.Kind == kind && about.Name == leaderelection.NamespaceController && e.Reason == "LeaderElection" {
			messages = append(messages, strings.TrimPrefix(e.Type+": ", corev1.EventTypeNormal+": ")+e.Message)
		}
	}
	slices.Sort(messages)
	return messages
}

// The permissions of the manifests suffice for Events on the lock, including the last one.
func TestServer_Events(t *testing.T) {
	for lock, kind := range map[string]string{"configmap": "ConfigMap", "lease": "Lease"} {
		t.Run(lock, func(t *testing.T) {
			c := cluster.Shared(t)
			admin, home := c.Client(t), c.Namespace(t)
			r := serve(t, pilotIdentity(t, c, home, "a"), home, "a", "stable", newBundleFile(t, certificate(t)).path,
				func(config *bootstrap.Config) { config.Lock = lock })
			await(t, "a leads", func() bool { return r.state(t).Leading })
			r.end()
			want := []string{"a became leader (lock-absent)", "a stopped leading (stopped)"}
			if got := eventsOn(t, admin, home, kind); !slices.Equal(got, want) {
				t.Errorf("Events %q, want %q", got, want)
			}
		})
	}
}

// Without the permission to write Events, only Events are missing.
func TestServer_EventsForbidden(t *testing.T) {
	c := cluster.Shared(t)
	admin, home, content := c.Client(t), c.Namespace(t), certificate(t)
	alone := oneElection
	alone.Namespace = home
	without := func(rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
		return slices.DeleteFunc(rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, "events") })
	}
	config := c.Identity(t, cluster.IdentityOptions{
		Namespace: home, PodName: "a", ServiceAccount: "pilot",
		Rules: without(manifests.NamespaceRules(bootstrap.Rights(alone))), ClusterRules: without(manifests.ClusterRules(bootstrap.Rights(alone))),
	})
	r := serve(t, config, home, "a", "stable", newBundleFile(t, content).path, nil)
	await(t, "a leads", func() bool { return r.state(t).Leading })
	(&stage{admin: admin}).carries(t, home, content)
	r.end()
	if n := r.journal.Count("permission denied", "verb=\"write Events\""); n != 1 {
		t.Errorf("logged %d times", n)
	}
	if got := eventsOn(t, admin, home, "ConfigMap"); len(got) != 0 {
		t.Errorf("Events %q", got)
	}
	again := serve(t, config, home, "a", "stable", newBundleFile(t, content).path, nil)
	await(t, "the lock was released, and a leads again", func() bool { return again.state(t).Leading })
}
