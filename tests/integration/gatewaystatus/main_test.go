package gatewaystatus

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
	versioned "sigs.k8s.io/gateway-api/pkg/client/clientset/versioned/typed/apis/v1"

	"incumbent.dev/incumbent/internal/testutil/certs"
	"incumbent.dev/incumbent/internal/testutil/logs"
	"incumbent.dev/incumbent/internal/testutil/waits"
	"incumbent.dev/incumbent/pilot/controllers/gatewaystatus"
	"incumbent.dev/incumbent/pkg/kube"
	"incumbent.dev/incumbent/pkg/revisions"
	"incumbent.dev/incumbent/tests/cluster"
)

// Deployments and Services have the status that the tests give them: there are no controllers.
func TestMain(m *testing.M) { cluster.Main(m, cluster.Options{WithoutControllers: true}) }

// cell is a namespace with a controller for the objects in it: each test's is of a revision of its own.
type cell struct {
	t         *testing.T
	c         *cluster.Cluster
	namespace string
	admin     kube.Client
	api       versioned.GatewayV1Interface
	writes    *writes
	log       *logs.Buffer
	events    *events
	role      string
	identity  *rest.Config
	end       func()
}

// writes counts the requests that a controller writes with, by method, path and answer.
type writes struct {
	mu  sync.Mutex
	all []string
}

func (w *writes) wrap(next http.RoundTripper) http.RoundTripper { return counted{next, w} }

type counted struct {
	next http.RoundTripper
	w    *writes
}

func (c counted) RoundTrip(req *http.Request) (*http.Response, error) {
	response, err := c.next.RoundTrip(req)
	if req.Method != http.MethodGet {
		what := req.Method + " " + req.URL.Path
		if err == nil {
			what += " " + response.Status
		}
		c.w.mu.Lock()
		defer c.w.mu.Unlock()
		c.w.all = append(c.w.all, what)
	}
	return response, err
}

// count is how many writes there were of which the description has all words.
func (w *writes) count(words ...string) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, what := range w.all {
		n++
		for _, word := range words {
			if !strings.Contains(what, word) {
				n--
				break
			}
		}
	}
	return n
}

// events are those that a controller reports.
type events struct {
	mu  sync.Mutex
	all []string
}

func (e *events) note(object runtime.Object, kind, reason, message string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	about, _ := object.(*corev1.ObjectReference)
	e.all = append(e.all, fmt.Sprintf("%s %s %s %s %v: ", about.Kind, about.Name, kind, reason, about.UID != "")+fmt.Sprintf(message, args...))
}

// of are those that begin with some words.
func (e *events) of(words string) (all []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, one := range e.all {
		if strings.HasPrefix(one, words) {
			all = append(all, one)
		}
	}
	return all
}

// newCell starts a controller of a fresh namespace, whose label gives it a revision of its own.
func newCell(t *testing.T) *cell {
	t.Helper()
	shared := cluster.Shared(t)
	if err := shared.LoadGatewayAPI(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := &cell{t: t, c: shared, namespace: shared.Namespace(t), writes: &writes{}, log: &logs.Buffer{}, events: &events{}}
	c.admin = c.client(shared.Admin())
	c.role = c.namespace + ":pilot"
	var err error
	if c.api, err = versioned.NewForConfig(c.admin.RESTConfig()); err != nil {
		t.Fatal(err)
	}
	c.label(c.namespace, c.namespace)
	return c
}

// label gives a namespace a revision.
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

// start runs the controller, until the test ends or end is called.
func (c *cell) start() {
	c.t.Helper()
	if c.identity == nil {
		c.identity = c.c.Identity(c.t, cluster.IdentityOptions{Namespace: c.namespace, PodName: "pilot", ClusterRules: gatewaystatus.ClusterRules(true)})
	}
	client := c.client(c.identity, kube.WithWrapTransport(c.writes.wrap))
	log := slog.New(slog.NewTextHandler(c.log, nil))
	tags := revisions.NewTags(c.admin, revisions.Config{Revision: c.namespace, Namespace: c.namespace, Logger: log})
	controller, err := gatewaystatus.New(client, gatewaystatus.Config{Tags: tags, Event: c.events.note, Logger: log})
	c.must(err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(c.t.Context()))
	var ended sync.WaitGroup
	ended.Go(func() { tags.Run(ctx.Done()) })
	ended.Go(func() {
		if err := controller.Run(ctx); err != nil {
			c.t.Error(err)
		}
	})
	c.end = sync.OnceFunc(func() {
		cancel()
		ended.Wait()
	})
	c.t.Cleanup(func() {
		c.end()
		if c.t.Failed() {
			c.t.Logf("logged:\n%s", c.log)
		}
	})
}

// grant replaces the controller's rights.
func (c *cell) grant(rules ...rbacv1.PolicyRule) {
	c.t.Helper()
	wanted := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: c.role}, Rules: rules}
	_, err := c.admin.Kube().RbacV1().ClusterRoles().Update(c.t.Context(), wanted, metav1.UpdateOptions{})
	c.must(err)
}

// put makes an object of its JSON or YAML.
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

// stored is an object as the API server sends it.
func (c *cell) stored(resource, name string) map[string]any {
	c.t.Helper()
	content, err := c.api.RESTClient().Get().Namespace(c.namespace).Resource(resource).Name(name).
		SetHeader("Accept", "application/json").Do(c.t.Context()).Raw()
	c.must(err)
	var o map[string]any
	c.must(json.Unmarshal(content, &o))
	return o
}

// await waits until something holds.
func (c *cell) await(what string, holds func() bool) {
	c.t.Helper()
	waits.Until(c.t, what, holds)
}

// says waits until a condition has a status and reason.
func (c *cell) says(what string, conditions func() []metav1.Condition, kind, want string) {
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

// ofGateway and ofListener are the conditions of a Gateway and of its first listener, ofRoute those of our
// entry for a parent.
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

// certificate is a patch that gives a Secret a key pair.
func certificate(t *testing.T) []byte {
	t.Helper()
	public, private := certs.KeyPair(t)
	patch, err := json.Marshal(map[string]any{"data": map[string][]byte{
		"tls.crt": public, "tls.key": private,
	}})
	if err != nil {
		t.Fatal(err)
	}
	return patch
}
