package tags

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
	gatewayclient "sigs.k8s.io/gateway-api/pkg/client/clientset/versioned/typed/apis/v1"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/internal/testutil/logs"
	"incumbent.dev/incumbent/internal/testutil/waits"
	"incumbent.dev/incumbent/pilot/bootstrap"
	"incumbent.dev/incumbent/pilot/bootstrap/manifests"
	"incumbent.dev/incumbent/pkg/kube"
	"incumbent.dev/incumbent/pkg/revisions"
	"incumbent.dev/incumbent/tests/cluster"
)

func TestMain(m *testing.M) { cluster.Main(m, cluster.Options{WithoutControllers: true}) }

// world has the servers of a test.
type world struct {
	*testing.T
	cluster  *cluster.Cluster
	admin    kube.Client
	gateways gatewayclient.GatewayV1Interface
}

// server is a running server.
type server struct {
	*bootstrap.Server
	log *logs.Buffer
}

func newWorld(t *testing.T) *world {
	t.Helper()
	c := cluster.Shared(t)
	w := &world{T: t, cluster: c, admin: c.Client(t)}
	w.must(c.LoadGatewayAPI(t.Context()))
	var err error
	w.gateways, err = gatewayclient.NewForConfig(w.admin.RESTConfig())
	w.must(err)
	return w
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// serve runs a server of a revision until the test ends.
func (w *world) serve(namespace, revision string) *server {
	w.Helper()
	s := &server{log: &logs.Buffer{}}
	config := bootstrap.Config{
		Namespace: namespace, Revision: revision, Address: "127.0.0.1:0", CABundle: "../../../../pilot/bootstrap/testdata/ca.pem", IngressMode: "OFF",
		LeaseDuration: 60 * time.Second, RenewDeadline: 40 * time.Second, RetryPeriod: time.Second,
		Identity: "pod-of-" + revision, Logger: slog.New(slog.NewTextHandler(s.log, nil)),
	}
	rights := bootstrap.Rights(config)
	config.RESTConfig = w.cluster.Identity(w.T, cluster.IdentityOptions{
		Namespace: namespace, PodName: config.Identity, ServiceAccount: "pilot-" + revision,
		Rules: manifests.NamespaceRules(rights), ClusterRules: manifests.ClusterRules(rights),
	})
	var err error
	s.Server, err = bootstrap.New(config)
	w.must(err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.Context()))
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	w.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			w.Error(err)
		}
		if w.Failed() {
			w.Logf("%s logged:\n%s", revision, s.log.String())
		}
	})
	waits.Until(w.T, revision+" listens", func() bool { return s.Address() != "" })
	return s
}

// claim creates a webhook of the tag default, and returns a function that deletes it.
func (w *world) claim(name, revision string) (remove func()) {
	w.Helper()
	hooks := w.admin.Kube().AdmissionregistrationV1().MutatingWebhookConfigurations()
	_, err := hooks.Create(w.Context(), &admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{"app": "sidecar-injector", "istio.io/rev": revision, "istio.io/tag": "default"},
	}}, metav1.CreateOptions{})
	w.must(err)
	remove = sync.OnceFunc(func() {
		if err := hooks.Delete(context.WithoutCancel(w.Context()), name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			w.Error(err)
		}
	})
	w.Cleanup(remove)
	return remove
}

// gateway creates a Gateway without a revision label.
func (w *world) gateway(namespace string) {
	w.Helper()
	_, err := w.gateways.Gateways(namespace).Create(w.Context(), &gateway.Gateway{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       gateway.GatewaySpec{GatewayClassName: "istio", Listeners: []gateway.Listener{{Name: "http", Port: 80, Protocol: gateway.HTTPProtocolType}}},
	}, metav1.CreateOptions{})
	w.must(err)
}

// revisionOf returns the revision that deployed the Gateway of a namespace, or "".
func (w *world) revisionOf(namespace string) string {
	d, err := w.admin.Kube().AppsV1().Deployments(namespace).Get(w.Context(), "web-istio", metav1.GetOptions{})
	if err != nil {
		return ""
	}
	return d.Spec.Template.Annotations["istio.io/rev"]
}

// leads waits until a server leads the election of the namespace controller.
func (w *world) leads(s *server, revision string) {
	w.Helper()
	waits.Until(w.T, revision+" leads", func() bool {
		return harness.Metric(w.T, s.Address(), `leader_election_master_status{name="istio-namespace-controller-election"}`) == "1"
	})
}

// watch records the revisions and generations of the Deployments of a namespace until the test ends.
func (w *world) watch(namespace string) (seen func() []string) {
	w.Helper()
	changes, err := w.admin.Kube().AppsV1().Deployments(namespace).Watch(w.Context(), metav1.ListOptions{})
	w.must(err)
	var mu sync.Mutex
	var all []string
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for event := range changes.ResultChan() {
			if d, ok := event.Object.(*appsv1.Deployment); ok {
				mu.Lock()
				all = append(all, fmt.Sprintf("%s %d", d.Spec.Template.Annotations["istio.io/rev"], d.Generation))
				mu.Unlock()
			}
		}
	}()
	w.Cleanup(func() { changes.Stop(); <-ended })
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}
}

// conflicts returns the Events TagConflict.
func (w *world) conflicts(name string) (messages []string) {
	all, err := w.admin.Kube().CoreV1().Events("default").List(w.Context(), metav1.ListOptions{FieldSelector: "reason=TagConflict,involvedObject.name=" + name})
	w.must(err)
	for _, e := range all.Items {
		messages = append(messages, e.Message)
	}
	return messages
}

// Two webhooks give the tag default to two revisions. Both servers use the webhook that elections read. The conflict is reported
// once, and causes no write of the other revision.
func TestTags_TwoDefaultTags(t *testing.T) {
	w := newWorld(t)
	system, home := w.cluster.Namespace(t), w.cluster.Namespace(t)
	stable, canary, other := system+"-a", system+"-b", "team-b-"+system
	w.claim(revisions.DefaultTagWebhook(""), stable)
	servers := map[string]*server{stable: w.serve(system, stable), canary: w.serve(system, canary)}
	w.leads(servers[stable], stable)
	w.gateway(home)
	waits.Until(t, "stable deploys the Gateway", func() bool { return w.revisionOf(home) == stable })
	seen := w.watch(home)

	remove := w.claim(other, canary)
	for name, s := range servers {
		waits.Until(t, name+" reports the conflict", func() bool {
			return s.log.Count("several revisions claim a tag", "tag=default") == 1 && harness.Metric(t, s.Address(), "incumbent_tag_conflicts") == "1"
		})
	}
	waits.Until(t, "an Event reports the conflict", func() bool { return len(w.conflicts(other)) > 0 })
	if got := w.conflicts(other); len(got) != 1 || !strings.Contains(got[0], "kubectl delete mutatingwebhookconfiguration "+other) {
		t.Errorf("Events: %q", got)
	}
	// A change of the Gateway is written by stable only, while canary sees it too.
	patch := []byte(`{"spec":{"infrastructure":{"labels":{"round":"two"}}}}`)
	_, err := w.gateways.Gateways(home).Patch(t.Context(), "web", types.MergePatchType, patch, metav1.PatchOptions{})
	w.must(err)
	waits.Until(t, "stable deploys the change", func() bool { return len(seen()) > 1 })
	for _, change := range seen() {
		if !strings.HasPrefix(change, stable+" ") {
			t.Errorf("Deployment: %q", seen())
		}
	}
	w.leads(servers[stable], stable)

	remove()
	for name, s := range servers {
		waits.Until(t, name+" reports the end", func() bool {
			return s.log.Count("only one revision claims the tag now") == 1 && harness.Metric(t, s.Address(), "incumbent_tag_conflicts") == "0"
		})
	}
}

// Elections and Gateway controllers of an installation follow the webhook that is named for its namespace. Another installation
// follows its own webhook.
func TestTags_OfNamespaces(t *testing.T) {
	w := newWorld(t)
	w.claim(revisions.DefaultTagWebhook(""), "of-istio-system")
	for range 2 {
		system := w.cluster.Namespace(t)
		east, west := system+"-east", system+"-west"
		servers := map[string]*server{west: w.serve(system, west)}
		w.leads(servers[west], west)
		servers[east] = w.serve(system, east)
		label := []byte(`{"metadata":{"labels":{"istio.io/rev":"` + west + `"}}}`)
		_, err := w.admin.Kube().CoreV1().Namespaces().Patch(t.Context(), system, types.MergePatchType, label, metav1.PatchOptions{})
		w.must(err)
		w.gateway(system)
		waits.Until(t, "west deploys a labelled Gateway", func() bool { return w.revisionOf(system) == west })
		remove := w.claim(revisions.DefaultTagWebhook(system), east)
		w.leads(servers[east], east)
		home := w.cluster.Namespace(t)
		w.gateway(home)
		waits.Until(t, "east deploys an unlabelled Gateway", func() bool { return w.revisionOf(home) == east })
		remove() // unlabelled Gateways of the next installation belong to it alone
		for name, s := range servers {
			if n := harness.Metric(t, s.Address(), "incumbent_tag_conflicts"); n != "0" {
				t.Errorf("%s: %s conflicts", name, n)
			}
		}
	}
}
