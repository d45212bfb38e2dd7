package gateway

import (
	"fmt"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
	gatewayclient "sigs.k8s.io/gateway-api/pkg/client/clientset/versioned/typed/apis/v1"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/bootstrap"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pkg/kube"
	"incumbent.dev/incumbent/tests/cluster"
	"incumbent.dev/incumbent/tests/servers"
	objects "incumbent.dev/incumbent/tests/upgrade/workload"
)

// The cluster has no controllers, so that the tests set the status of Deployments and Services.
func TestMain(m *testing.M) { cluster.Main(m, cluster.Options{WithoutControllers: true}) }

// plane is a control plane of one revision. Its namespace has the same name and contains its Gateways.
type plane struct {
	*testing.T
	cluster *cluster.Cluster
	admin   kube.Client
	home    string
	api     gatewayclient.GatewayV1Interface
	config  bootstrap.Config
}

func newPlane(t *testing.T) *plane {
	t.Helper()
	c := cluster.Shared(t)
	p := &plane{T: t, cluster: c, admin: c.Client(t), home: c.Namespace(t)}
	harness.Must(p.T, c.LoadGatewayAPI(t.Context()))
	var err error
	p.api, err = gatewayclient.NewForConfig(p.admin.RESTConfig())
	harness.Must(p.T, err)
	p.label(p.home, p.home)
	p.config = bootstrap.Config{
		Config: leaderelection.Config{
			Namespace: p.home, Revision: p.home, LeaseDuration: 60 * time.Second, RenewDeadline: 40 * time.Second, RetryPeriod: time.Second,
		},
		Address: "127.0.0.1:0", CABundle: "../../../pilot/bootstrap/testdata/ca.pem", IngressMode: "OFF",
	}
	return p
}

// label sets the revision of a namespace.
func (p *plane) label(namespace, revision string) {
	p.Helper()
	p.patch(namespaces, "", namespace, fmt.Sprintf(`{"metadata":{"labels":{"istio.io/rev":%q}}}`, revision))
}

// patch changes an object with a merge patch.
func (p *plane) patch(resource schema.GroupVersionResource, namespace, name, patch string, subresources ...string) {
	p.Helper()
	_, err := p.admin.Dynamic().Resource(resource).Namespace(namespace).
		Patch(p.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "kubectl"}, subresources...)
	harness.Must(p.T, err)
}

// identity returns the identity of a replica with the permissions of the chart.
func (p *plane) identity(pod string) *rest.Config {
	p.Helper()
	return servers.Identity(p.T, p.cluster, p.config, pod, "pilot-"+p.config.Revision)
}

type replica = servers.Replica

// serve runs a server until End is called or the test ends.
func (p *plane) serve(pod string, as *rest.Config) *replica {
	p.Helper()
	config := p.config
	config.Identity = pod
	config.RESTConfig = as
	return servers.Run(p.T, config)
}

// leads waits until a server leads an election.
func (p *plane) leads(r *replica, id string) {
	p.Helper()
	p.until("the server leads "+id, func() bool { return slices.Contains(p.leading(r), id) })
}

// leading returns the elections that a server leads.
func (p *plane) leading(r *replica) (ids []string) {
	p.Helper()
	for _, e := range r.Elections(p.T) {
		if e.Process.Leading {
			ids = append(ids, e.Process.ElectionID)
		}
	}
	return ids
}

func (p *plane) until(what string, holds func() bool) {
	p.Helper()
	harness.Until(p.T, what, holds)
}

// gateway creates a Gateway.
func (p *plane) gateway(namespace, name string, change ...func(*gateway.Gateway)) {
	p.Helper()
	g := objects.Gateway(metav1.ObjectMeta{Name: name}, "")
	for _, do := range change {
		do(g)
	}
	_, err := p.api.Gateways(namespace).Create(p.Context(), g, metav1.CreateOptions{})
	harness.Must(p.T, err)
}

func (p *plane) accepted(namespace, name string) bool {
	g, err := p.api.Gateways(namespace).Get(p.Context(), name, metav1.GetOptions{})
	return err == nil && slices.ContainsFunc(g.Status.Conditions, func(c metav1.Condition) bool { return c.Reason == "Accepted" })
}

func (p *plane) deployed(namespace, name string) bool {
	_, err := p.admin.Kube().AppsV1().Deployments(namespace).Get(p.Context(), name+"-istio", metav1.GetOptions{})
	return err == nil
}

func (p *plane) served(namespace, name string) {
	p.Helper()
	p.until("Gateway "+name+" is served", func() bool { return p.accepted(namespace, name) && p.deployed(namespace, name) })
}

// othersWork waits until the namespace controller has served a new namespace.
func (p *plane) othersWork() {
	p.Helper()
	name, err := p.cluster.NewNamespace(p.Context(), "further")
	harness.Must(p.T, err)
	p.until("the other controllers work", func() bool {
		_, err := p.admin.Kube().CoreV1().ConfigMaps(name).Get(p.Context(), "istio-ca-root-cert", metav1.GetOptions{})
		return err == nil
	})
}

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

var namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

// gatewayAPI returns a resource of the Gateway API.
func gatewayAPI(resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: gateway.GroupName, Version: "v1", Resource: resource}
}

var gatewaysResource = gatewayAPI("gateways")

// gatewayKinds lists the kinds that servers read.
var gatewayKinds = []string{"gatewayclasses", "gateways", "httproutes", "referencegrants"}

// removeDefinitions deletes CustomResourceDefinitions of the Gateway API. The next plane restores them.
func (p *plane) removeDefinitions(kinds ...string) {
	p.Helper()
	for _, kind := range kinds {
		name := kind + "." + gateway.GroupName
		err := p.admin.Dynamic().Resource(definitions).Delete(p.Context(), name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			p.Fatal(err)
		}
		p.until(name+" is gone", func() bool {
			_, err := p.admin.Dynamic().Resource(definitions).Get(p.Context(), name, metav1.GetOptions{})
			return apierrors.IsNotFound(err)
		})
	}
}
