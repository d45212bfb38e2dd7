package controllers

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
	gatewayclient "sigs.k8s.io/gateway-api/pkg/client/clientset/versioned/typed/apis/v1"

	"incumbent.dev/incumbent/internal/testutil/logs"
	"incumbent.dev/incumbent/pilot/bootstrap"
	"incumbent.dev/incumbent/pilot/controllers/namespace"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pkg/kube"
	"incumbent.dev/incumbent/pkg/revisions"
	"incumbent.dev/incumbent/tests/cluster"
	"incumbent.dev/incumbent/tests/servers"
)

// installation consists of two replicas with the permissions of the manifests.
type installation struct {
	home, class, content string
	replicas             []*replica // that run
	all                  []*replica
}

func install(t *testing.T, c *cluster.Cluster, name, home string, change func(*bootstrap.Config)) *installation {
	t.Helper()
	i := &installation{home: home, class: "class-" + name, content: certificate(t)}
	for _, pod := range []string{name + "-1", name + "-2"} {
		config := servers.Identity(t, c, bootstrap.Config{Namespace: home, Revision: name}, pod, "pilot")
		i.replicas = append(i.replicas, serve(t, config, home, pod, name, bundleFile(t, i.content), func(config *bootstrap.Config) {
			config.IngressMode, config.IngressClass, config.DisableGatewayAPI = "STRICT", i.class, false
			change(config)
		}))
	}
	i.all = i.replicas
	return i
}

// leader waits for a leader of an election and returns it.
func (i *installation) leader(t *testing.T, id string) (leader *replica) {
	t.Helper()
	await(t, "one of "+i.home+" leads "+id, func() bool {
		for _, r := range i.replicas {
			if r.Metric(t, `leader_election_master_status{name="`+id+`"}`) == "1" {
				leader = r
			}
		}
		return leader != nil
	})
	return leader
}

// others returns all other namespaces.
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

// gatewayOf creates a Gateway.
func gatewayOf(t *testing.T, gateways gatewayclient.GatewayV1Interface, space string) {
	t.Helper()
	if _, err := gateways.Gateways(space).Create(t.Context(), &gateway.Gateway{
		ObjectMeta: metav1.ObjectMeta{Name: "gw"},
		Spec:       gateway.GatewaySpec{GatewayClassName: "istio", Listeners: []gateway.Listener{{Name: "http", Port: 8080, Protocol: gateway.HTTPProtocolType}}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// gatewayReady reports whether a Gateway is accepted and deployed by its revision.
func gatewayReady(t *testing.T, admin kube.Client, gateways gatewayclient.GatewayV1Interface, name, space string) bool {
	t.Helper()
	g, err := gateways.Gateways(space).Get(t.Context(), "gw", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	d, err := admin.Kube().AppsV1().Deployments(space).Get(t.Context(), "gw-istio", metav1.GetOptions{})
	return err == nil && d.Spec.Template.Annotations["istio.io/rev"] == name && meta.IsStatusConditionTrue(g.Status.Conditions, "Accepted")
}

// Two installations with their own class, revision and namespaces elect independently and do not write objects
// of each other, even if a leader ends.
func TestInstallations_Independent(t *testing.T) {
	c := cluster.Shared(t)
	admin := c.Client(t)
	homes := map[string]string{"a": c.Namespace(t), "b": c.Namespace(t)}
	spaces := map[string]string{"a": c.Namespace(t), "b": c.Namespace(t)}
	both := map[string]*installation{}
	put(t, admin, revisions.DefaultTagWebhook(""), map[string]string{revLabel: "a", "istio.io/tag": "default"})
	if err := c.LoadGatewayAPI(t.Context()); err != nil {
		t.Fatal(err)
	}
	gateways, err := gatewayclient.NewForConfig(admin.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	// A revision that does not know the label of a namespace yet counts a new Gateway in it as its own for a moment.
	for name, space := range spaces {
		label := []byte(`{"metadata":{"labels":{"istio.io/rev":"` + name + `"}}}`)
		if _, err := admin.Kube().CoreV1().Namespaces().Patch(t.Context(), space, types.MergePatchType, label, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		// The other installation recognizes the revision by the Service of its control plane.
		service := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: "pilot-" + name, Labels: rev(name)}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 443}}},
		}
		if _, err := admin.Kube().CoreV1().Services(homes[name]).Create(t.Context(), service, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for name := range homes {
		both[name] = install(t, c, name, homes[name], func(config *bootstrap.Config) {
			config.ExcludedNamespaces = others(t, admin, homes[name], spaces[name])
		})
		gatewayOf(t, gateways, spaces[name])
		ingressFor(t, admin, homes[name], "web", both[name].class, "istio-ingressgateway", map[string]string{"a": "192.0.2.1", "b": "192.0.2.2"}[name])
	}
	inPlace := func(when string) {
		t.Helper()
		for name, i := range both {
			for _, at := range []string{homes[name], spaces[name]} {
				carries(t, admin, at, i.content)
			}
			want := map[string]string{"a": "192.0.2.1", "b": "192.0.2.2"}[name]
			await(t, "the Ingress of "+name+" has its address", func() bool { return addressOf(t, admin, homes[name], "web") == want })
			await(t, "the Gateway of "+name+" is accepted, and deployed by it", func() bool { return gatewayReady(t, admin, gateways, name, spaces[name]) })
			for _, id := range []string{
				leaderelection.NamespaceController, leaderelection.IngressController,
				leaderelection.GatewayStatusController + "-" + name, leaderelection.GatewayDeploymentController + "-" + name,
			} {
				i.leader(t, id)
			}
		}
		for name, other := range map[string]string{"a": "b", "b": "a"} {
			for _, namespace := range []string{homes[other], spaces[other]} {
				for _, r := range both[name].all {
					sent := r.Sent.String()
					if n := logs.Count(sent, "/namespaces/"+namespace) - logs.Count(sent, "GET ", "/namespaces/"+namespace); n != 0 {
						t.Errorf("%s: %s sent %d writes to a namespace of %s:\n%s", when, name, n, other, sent)
					}
				}
			}
		}
	}
	inPlace("start")
	// The class has no label, so only the default revision writes its status.
	var class *gateway.GatewayClass
	await(t, "the class is accepted", func() bool {
		class, err = gateways.GatewayClasses().Get(t.Context(), "istio", metav1.GetOptions{})
		return err == nil && meta.IsStatusConditionTrue(class.Status.Conditions, "Accepted")
	})
	// A leader of a ends. The leader of b continues.
	steady := both["b"].leader(t, leaderelection.NamespaceController)
	ended := both["a"].leader(t, leaderelection.NamespaceController)
	ended.End()
	both["a"].replicas = slices.DeleteFunc(slices.Clone(both["a"].replicas), func(r *replica) bool { return r == ended })
	for _, at := range []string{homes["a"], spaces["a"]} {
		if err := admin.Kube().CoreV1().ConfigMaps(at).Delete(t.Context(), namespace.ConfigMapName, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
	}
	inPlace("after the end of the leader of a")
	if now, err := gateways.GatewayClasses().Get(t.Context(), "istio", metav1.GetOptions{}); err != nil || now.ResourceVersion != class.ResourceVersion {
		t.Errorf("the class was written again: %v", err)
	}
	if n := steady.Log.Count("run function ended"); n > 0 {
		t.Errorf("the leader of b ended %d terms", n)
	}
}
