package gatewaystatus

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
	versioned "sigs.k8s.io/gateway-api/pkg/client/clientset/versioned/typed/apis/v1"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/controllers/gatewaystatus"
	"incumbent.dev/incumbent/pkg/kube"
	"incumbent.dev/incumbent/pkg/revisions"
	"incumbent.dev/incumbent/tests/cluster"
)

// The cluster has no controllers, so that the tests set the status of Deployments and Services.
func TestMain(m *testing.M) { cluster.Main(m, cluster.Options{WithoutControllers: true}) }

// cell is a namespace with a controller. Each test has a revision of its own.
type cell struct {
	t         *testing.T
	c         *cluster.Cluster
	namespace string
	admin     kube.Client
	api       versioned.GatewayV1Interface
	sent      *harness.Log // requests
	log       *harness.Log
	identity  *rest.Config
	end       func()
}

// newCell creates a namespace with a revision of its own.
func newCell(t *testing.T) *cell {
	t.Helper()
	shared := cluster.Shared(t)
	if err := shared.LoadGatewayAPI(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := &cell{t: t, c: shared, namespace: shared.Namespace(t), sent: &harness.Log{}, log: &harness.Log{}}
	c.admin = c.client(shared.Admin())
	var err error
	if c.api, err = versioned.NewForConfig(c.admin.RESTConfig()); err != nil {
		t.Fatal(err)
	}
	c.label(c.namespace, c.namespace)
	return c
}

// label sets the revision of a namespace.
func (c *cell) label(namespace, revision string) {
	c.t.Helper()
	_, err := c.admin.Kube().CoreV1().Namespaces().Patch(c.t.Context(), namespace, types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"istio.io/rev":"`+revision+`"}}}`), metav1.PatchOptions{})
	c.must(err)
}

func (c *cell) client(config *rest.Config, more ...kube.Option) kube.Client {
	c.t.Helper()
	client, err := kube.NewClient(config, append(more, kube.WithRateLimit(-1, 0), kube.WithOwnConnections())...)
	c.must(err)
	c.t.Cleanup(func() { kube.CloseIdleConnections(client) })
	return client
}

func (c *cell) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// start runs the controller of the revision of the cell until end is called or the test ends.
func (c *cell) start() {
	c.t.Helper()
	c.end = c.serve(c.namespace, c.sent)
}

// serve runs a controller until the returned function is called or the test ends.
func (c *cell) serve(revision string, sent *harness.Log) (end func()) {
	c.t.Helper()
	if c.identity == nil {
		c.identity = c.c.Identity(c.t, cluster.IdentityOptions{Namespace: c.namespace, PodName: "pilot", ClusterRules: gatewaystatus.ClusterRules(true)})
	}
	client := c.client(c.identity, kube.WithWrapTransport(harness.Requests(sent)))
	log := slog.New(slog.NewTextHandler(c.log, nil))
	tags := revisions.NewTags(c.admin, revisions.Config{Revision: revision, Namespace: c.namespace, Logger: log})
	controller, err := gatewaystatus.New(client, gatewaystatus.Config{Tags: tags, Logger: log})
	c.must(err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(c.t.Context()))
	var ended sync.WaitGroup
	ended.Go(func() { tags.Run(ctx.Done()) })
	ended.Go(func() {
		if err := controller.Run(ctx); err != nil {
			c.t.Error(err)
		}
	})
	end = sync.OnceFunc(func() {
		cancel()
		ended.Wait()
	})
	c.t.Cleanup(func() {
		end()
		if c.t.Failed() {
			c.t.Logf("logged:\n%s", c.log)
		}
	})
	return end
}

// put creates an object with a JSON spec.
func (c *cell) put(kind, name, spec string) {
	c.t.Helper()
	body := `{"apiVersion":"gateway.networking.k8s.io/v1","kind":"` + kind + `","metadata":{"name":"` + name + `"},"spec":` + spec + `}`
	c.must(c.api.RESTClient().Post().Namespace(c.namespace).Resource(strings.ToLower(kind)+"s").
		SetHeader("Content-Type", "application/json").Body([]byte(body)).Do(c.t.Context()).Error())
}

func (c *cell) gateway(name string) *gateway.Gateway {
	c.t.Helper()
	g, err := c.api.Gateways(c.namespace).Get(c.t.Context(), name, metav1.GetOptions{})
	c.must(err)
	return g
}

func (c *cell) route(name string) *gateway.HTTPRoute {
	c.t.Helper()
	r, err := c.api.HTTPRoutes(c.namespace).Get(c.t.Context(), name, metav1.GetOptions{})
	c.must(err)
	return r
}

// stored returns an object as the API server sends it.
func (c *cell) stored(resource, name string) map[string]any {
	c.t.Helper()
	content, err := c.api.RESTClient().Get().Namespace(c.namespace).Resource(resource).Name(name).
		SetHeader("Accept", "application/json").Do(c.t.Context()).Raw()
	c.must(err)
	var o map[string]any
	c.must(json.Unmarshal(content, &o))
	return o
}

// await waits until a function returns true.
func (c *cell) await(what string, holds func() bool) {
	c.t.Helper()
	harness.Until(c.t, what, holds)
}

// awaitCondition waits until a condition has this status and reason.
func (c *cell) awaitCondition(what string, conditions func() []metav1.Condition, kind, want string) {
	c.t.Helper()
	got := ""
	defer func() {
		if c.t.Failed() {
			c.t.Logf("%s: %s is %s", what, kind, got)
		}
	}()
	c.await(what+": "+kind+" is "+want, func() bool {
		got = ""
		for _, one := range conditions() {
			if one.Type == kind {
				got = string(one.Status) + "/" + one.Reason
			}
		}
		return got == want
	})
}

// ofGateway returns the conditions of a Gateway.
func (c *cell) ofGateway(name string) func() []metav1.Condition {
	return func() []metav1.Condition { return c.gateway(name).Status.Conditions }
}

func (c *cell) ofListener(name string) func() []metav1.Condition {
	return func() []metav1.Condition {
		for _, l := range c.gateway(name).Status.Listeners {
			return l.Conditions
		}
		return nil
	}
}

func (c *cell) ofRoute(name, parent string) func() []metav1.Condition {
	return func() []metav1.Condition {
		for _, p := range c.route(name).Status.Parents {
			if string(p.ParentRef.Name) == parent && p.ControllerName == gatewaystatus.ControllerName {
				return p.Conditions
			}
		}
		return nil
	}
}
