package ground

import (
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/pilot/bootstrap"
	"incumbent.dev/incumbent/pilot/bootstrap/manifests"
	"incumbent.dev/incumbent/pilot/controllers/namespace"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pkg/kube"
	"incumbent.dev/incumbent/tests/cluster"
)

// installation is one of several in a cluster: two replicas under the manifests' rights.
type installation struct {
	home, class, content string
	replicas             []*replica
	sent                 *requests
}

func install(t *testing.T, c *cluster.Cluster, name, home string, change func(*bootstrap.Config)) *installation {
	t.Helper()
	i := &installation{home: home, class: "class-" + name, content: certificate(t), sent: &requests{}}
	rights := bootstrap.Rights(bootstrap.Config{Revision: "stable"})
	for _, pod := range []string{name + "-1", name + "-2"} {
		config := c.Identity(t, cluster.IdentityOptions{
			Namespace: home, PodName: pod, ServiceAccount: "pilot",
			Rules: manifests.NamespaceRules(rights), ClusterRules: manifests.ClusterRules(rights),
		})
		i.replicas = append(i.replicas, serve(t, i.sent.through(config), home, pod, "stable", newBundleFile(t, i.content).path, func(config *bootstrap.Config) {
			patient(config)
			config.IngressMode, config.IngressClass = "STRICT", i.class
			change(config)
		}))
	}
	return i
}

// leader waits until one of its replicas leads an election, and returns that.
func (i *installation) leader(t *testing.T, id string) (leader *replica) {
	t.Helper()
	await(t, "one of "+i.home+" leads "+id, func() bool {
		for _, r := range i.replicas {
			if r.metric(t, `leader_election_master_status{name="`+id+`"}`) == "1" {
				leader = r
			}
		}
		return leader != nil
	})
	return leader
}

// others are all namespaces but some.
func others(t *testing.T, admin kube.Client, but ...string) (names []string) {
	t.Helper()
	all, err := admin.Kube().CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range all.Items {
		if !slices.Contains(but, n.Name) {
			names = append(names, n.Name)
		}
	}
	return names
}

// touched are the writes to objects of namespaces.
func (i *installation) touched(namespaces ...string) (found []string) {
	for _, request := range i.sent.all() {
		for _, n := range namespaces {
			if !strings.HasPrefix(request, "GET ") && strings.Contains(request+"/", "/namespaces/"+n+"/") {
				found = append(found, request)
			}
		}
	}
	return found
}

// Two installations in one cluster, with a class and namespaces each: both elect for themselves, and neither
// writes what is the other's, also when one of them loses its leader.
func TestTwoInstallations(t *testing.T) {
	c := cluster.Shared(t)
	admin := client(t, c.Admin())
	homes := map[string]string{"a": c.Namespace(t), "b": c.Namespace(t)}
	spaces := map[string]string{"a": c.Namespace(t), "b": c.Namespace(t)}
	both := map[string]*installation{}
	for name := range homes {
		both[name] = install(t, c, name, homes[name], func(config *bootstrap.Config) {
			config.ExcludedNamespaces = others(t, admin, homes[name], spaces[name])
		})
		ingressFor(t, admin, homes[name], "web", both[name].class, "istio-ingressgateway", map[string]string{"a": "192.0.2.1", "b": "192.0.2.2"}[name])
	}
	inPlace := func(when string) {
		t.Helper()
		for name, i := range both {
			for _, at := range []string{homes[name], spaces[name]} {
				(&stage{admin: admin}).carries(t, at, i.content)
			}
			want := map[string]string{"a": "192.0.2.1", "b": "192.0.2.2"}[name]
			await(t, "the Ingress of "+name+" has its address", func() bool { return addressOf(t, admin, homes[name], "web") == want })
			i.leader(t, leaderelection.NamespaceController)
			i.leader(t, leaderelection.IngressController)
		}
		for name, other := range map[string]string{"a": "b", "b": "a"} {
			if writes := both[name].touched(homes[other], spaces[other]); len(writes) > 0 {
				t.Errorf("%s, %s has sent %q", when, name, writes)
			}
		}
	}
	inPlace("at first")
	// The one's leader ends; the other's leads on.
	steady := both["b"].leader(t, leaderelection.NamespaceController)
	ended := both["a"].leader(t, leaderelection.NamespaceController)
	ended.end()
	both["a"].replicas = slices.DeleteFunc(both["a"].replicas, func(r *replica) bool { return r == ended })
	for _, at := range []string{homes["a"], spaces["a"]} {
		if err := admin.Kube().CoreV1().ConfigMaps(at).Delete(t.Context(), namespace.ConfigMapName, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
	}
	inPlace("after a's leader has ended")
	if n := steady.journal.matching("run function ended"); n > 0 {
		t.Errorf("b's leader has ended %d terms", n)
	}
}
