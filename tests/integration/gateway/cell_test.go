package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	gateway "sigs.k8s.io/gateway-api/apis/v1"

	"incumbent.dev/incumbent/internal/testutil/access"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/controllers/gatewaystatus"
	"incumbent.dev/incumbent/pilot/controllers/reconcile"
	"incumbent.dev/incumbent/pkg/revisions"
	"incumbent.dev/incumbent/tests/cluster"
)

// cell is a plane with only the status controller and its permissions, without an election.
type cell struct {
	*plane
	log      *harness.Log
	sent     *harness.Log // requests
	identity *rest.Config
	end      func()
}

func newCell(t *testing.T) *cell {
	t.Helper()
	c := &cell{plane: newPlane(t), sent: &harness.Log{}, log: &harness.Log{}}
	c.identity = c.cluster.Identity(t, cluster.IdentityOptions{Namespace: c.home, PodName: "pilot", ClusterRules: access.Of(t, "no deployment", c.home, "stable").Cluster})
	return c
}

// start runs the controller of the revision of the cell until end is called or the test ends.
func (c *cell) start() {
	c.Helper()
	config := rest.CopyConfig(c.identity)
	config.Wrap(harness.Requests(c.sent))
	log := slog.New(slog.NewTextHandler(c.log, nil))
	tags := revisions.NewTags(c.admin, revisions.Config{Revision: c.home, Namespace: c.home, Logger: log})
	controller, err := gatewaystatus.New(cluster.ClientFor(c.T, config), gatewaystatus.Config{Tags: tags, Logger: log})
	harness.Must(c.T, err)
	c.end = harness.Background(c.T, func(ctx context.Context) error {
		var ended sync.WaitGroup
		defer ended.Wait()
		ended.Go(func() { tags.Run(ctx.Done()) })
		return controller.Run(ctx)
	})
	c.Cleanup(func() {
		if c.Failed() {
			c.Logf("logged:\n%s", c.log)
		}
	})
}

// create creates an object of the Gateway API with a JSON spec.
func (p *plane) create(namespace, kind, name, spec string) error {
	body := `{"apiVersion":"gateway.networking.k8s.io/v1","kind":"` + kind + `","metadata":{"name":"` + name + `"},"spec":` + spec + `}`
	return p.api.RESTClient().Post().Namespace(namespace).Resource(strings.ToLower(kind)+"s").
		SetHeader("Content-Type", "application/json").Body([]byte(body)).Do(p.Context()).Error()
}

// put creates an object of the Gateway API in home.
func (p *plane) put(kind, name, spec string) {
	p.Helper()
	harness.Must(p.T, p.create(p.home, kind, name, spec))
}

// read returns a Gateway of home.
func (p *plane) read(name string) *gateway.Gateway {
	p.Helper()
	g, err := p.api.Gateways(p.home).Get(p.Context(), name, metav1.GetOptions{})
	harness.Must(p.T, err)
	return g
}

// route returns an HTTPRoute of home.
func (p *plane) route(name string) *gateway.HTTPRoute {
	p.Helper()
	r, err := p.api.HTTPRoutes(p.home).Get(p.Context(), name, metav1.GetOptions{})
	harness.Must(p.T, err)
	return r
}

// conditions returns the current conditions of an object.
type conditions = func() []metav1.Condition

func (p *plane) ofGateway(name string) conditions {
	return func() []metav1.Condition { return p.read(name).Status.Conditions }
}

// ofRoute returns the conditions of an entry of our controller.
func (p *plane) ofRoute(name, parent string) conditions {
	return func() []metav1.Condition {
		for _, entry := range p.route(name).Status.Parents {
			if string(entry.ParentRef.Name) == parent && entry.ControllerName == reconcile.GatewayController {
				return entry.Conditions
			}
		}
		return nil
	}
}

// condition waits until a condition has a state "Status/Reason" and a message.
func (p *plane) condition(of conditions, kind, state, message string) {
	p.Helper()
	last := ""
	defer func() {
		if p.Failed() {
			p.Logf("condition %s: %s", kind, last)
		}
	}()
	p.until(fmt.Sprintf("%s is %s %q", kind, state, message), func() bool {
		c := meta.FindStatusCondition(of(), kind)
		last = fmt.Sprint(c)
		return c != nil && string(c.Status)+"/"+c.Reason == state && strings.Contains(c.Message, message)
	})
}
