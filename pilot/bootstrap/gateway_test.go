package bootstrap

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
	gatewayclient "sigs.k8s.io/gateway-api/pkg/client/clientset/versioned/typed/apis/v1"

	"incumbent.dev/incumbent/pilot/bootstrap/manifests"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/tests/cluster"
)

// gatewayConfig is that of a replica of a revision of its own, which has what lies in the environment's namespace, with
// the rights that the manifests give that configuration and no others.
func (e *environment) gatewayConfig(t *testing.T, pod string, change func(*Config)) Config {
	t.Helper()
	config := e.config(t, pod+"-of-pilot")
	config.Identity, config.Revision, config.IngressMode = pod, e.home, "OFF"
	change(&config)
	needed := Rights(config)
	config.RESTConfig = e.cluster.Identity(t, cluster.IdentityOptions{
		Namespace: e.home, PodName: pod, ServiceAccount: "pilot-" + config.Revision,
		Rules: manifests.NamespaceRules(needed), ClusterRules: manifests.ClusterRules(needed),
	})
	return config
}

// gateways is a client of the Gateway API, whose kinds are there, and whose objects in the environment's namespace are
// the revision's of that name.
func (e *environment) gateways(t *testing.T) gatewayclient.GatewayV1Interface {
	t.Helper()
	if err := e.cluster.LoadGatewayAPI(t.Context()); err != nil {
		t.Fatal(err)
	}
	label := fmt.Sprintf(`{"metadata":{"labels":{"istio.io/rev":%q}}}`, e.home)
	if _, err := e.admin.Kube().CoreV1().Namespaces().Patch(t.Context(), e.home, types.MergePatchType, []byte(label), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	client, err := gatewayclient.NewForConfig(e.admin.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func newGateway(name string) *gateway.Gateway {
	return &gateway.Gateway{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: gateway.GatewaySpec{
		GatewayClassName: "istio", Listeners: []gateway.Listener{{Name: "http", Port: 8080, Protocol: gateway.HTTPProtocolType}},
	}}
}

// gatewaysHaveTheirEffect: what is off is in no table, asks for no rights and does nothing, while the others do their work
// with the rights that they have asked for.
func gatewaysHaveTheirEffect(t *testing.T, e *environment) {
	client := e.gateways(t)
	core, ctx := e.admin.Kube(), t.Context()
	status, deployment := leaderelection.GatewayStatusController, leaderelection.GatewayDeploymentController
	class := func() bool {
		_, err := client.GatewayClasses().Get(ctx, "istio", metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
		return err == nil
	}
	for n, test := range []struct {
		change  func(*Config)
		elects  []string
		classes bool
	}{
		{func(c *Config) { c.DisableGatewayStatus = true }, []string{deployment}, false},
		{func(c *Config) { c.DisableGatewayDeployment, c.DisableGatewayClass = true, true }, []string{status}, false},
		{func(c *Config) { c.DisableGatewayDeployment = true }, []string{status}, true},
		{func(c *Config) { c.DisableGatewayAPI = true }, nil, false},
		{func(*Config) {}, []string{status, deployment}, true},
	} {
		if err := client.GatewayClasses().Delete(ctx, "istio", metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
		name := fmt.Sprint("gw-", n)
		if _, err := client.Gateways(e.home).Create(ctx, newGateway(name), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		config := e.gatewayConfig(t, fmt.Sprint("replica-", n), test.change)
		if _, within := Elections(config); !slices.Equal(within, test.elects) {
			t.Errorf("%d: the elections are %q, not %q", n, within, test.elects)
		}
		if asked := strings.Contains(fmt.Sprint(Rights(config)), gateway.GroupName); asked != (len(test.elects) > 0) {
			t.Errorf("%d: it asks for rights on the Gateway API: %v", n, asked)
		}
		accepted := func() bool {
			g, err := client.Gateways(e.home).Get(ctx, name, metav1.GetOptions{})
			return err == nil && slices.ContainsFunc(g.Status.Conditions, func(c metav1.Condition) bool { return c.Type == "Accepted" && c.Reason == "Accepted" })
		}
		deployed := func() bool {
			d, err := core.AppsV1().Deployments(e.home).Get(ctx, name+"-istio", metav1.GetOptions{})
			return err == nil && d.Spec.Template.Annotations["istio.io/rev"] == e.home
		}
		r := start(t, config, config.rows())
		effects := map[string]func() bool{status: accepted, deployment: deployed}
		for _, id := range test.elects {
			await(t, fmt.Sprintf("%d: %s has its effect", n, id), effects[id])
			delete(effects, id)
			lease, err := core.CoordinationV1().Leases(e.home).Get(ctx, id+"-"+e.home, metav1.GetOptions{})
			if err != nil || *lease.Spec.HolderIdentity != config.Identity {
				t.Errorf("%d: the lock of %s: %v, %v", n, id, lease, err)
			}
		}
		if test.classes {
			await(t, fmt.Sprintf("%d: there is a class", n), class)
		} else if class() {
			t.Errorf("%d: there is a class", n)
		}
		for id, happened := range effects {
			if happened() {
				t.Errorf("%d: %s is off, and has its effect", n, id)
			}
		}
		if states := r.states(t); len(states) != len(test.elects)+1 { // the namespace controller's is there always
			t.Errorf("%d: its elections are %v", n, states)
		}
		if err := r.end(); err != nil {
			t.Error(err)
		}
	}
	// The lock that guarded the status of all revisions is kept meanwhile, under nobody's name.
	lock, err := core.CoreV1().ConfigMaps(e.home).Get(ctx, status, metav1.GetOptions{})
	if err != nil || !strings.Contains(fmt.Sprint(lock.Annotations), "incumbent-successors") {
		t.Errorf("the predecessor's lock: %v, %v", lock, err)
	}
}
