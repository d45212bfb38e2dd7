package bootstrap

import (
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
	gatewayclient "sigs.k8s.io/gateway-api/pkg/client/clientset/versioned/typed/apis/v1"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/controllers/ingress"
	"incumbent.dev/incumbent/pilot/controllers/namespace"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/gate"
	"incumbent.dev/incumbent/pkg/kube"
)

func TestElectionConfig(t *testing.T) {
	config := goodConfig()
	config.Namespace, config.Identity, config.Revision, config.LockType = "a-namespace", "an-identity", "a-revision", "lease"
	config.LeaseDuration, config.RenewDeadline, config.RetryPeriod, config.StopLimit = 41*time.Second, 23*time.Second, 5*time.Second, 7*time.Second
	config.HealthTolerance, config.Disabled, config.ExitOnStuckDrain = 3*time.Second, true, true
	s := mustNew(t, config, newController().rows())
	got := s.electionConfig(election{id: "an-election", perRevision: true})
	want := leaderelection.Config{
		Namespace: "a-namespace", Identity: "an-identity", Revision: "a-revision", ElectionID: "an-election", PerRevision: true,
		Lock: leaderelection.LockTypeLease, LeaseDuration: 41 * time.Second, RenewDeadline: 23 * time.Second, RetryPeriod: 5 * time.Second,
		StopLimit: 7 * time.Second, HealthTolerance: 3 * time.Second, Disabled: true, ExitOnStuckDrain: true,
		DefaultWatcher: s.watcher, EventRecorder: s.events, Observer: s.metrics, Logger: s.log,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	s.site.config.Remote = true
	if !s.electionConfig(election{}).Remote || got.Remote {
		t.Error("only candidates of the remote cluster are remote")
	}
	s.config.LockType = "configmap"
	before := &leaderelection.Predecessor{Name: "an-election"}
	if got := s.electionConfig(election{lease: true, predecessor: before}); got.Lock != leaderelection.LockTypeLease || got.Predecessor != before {
		t.Errorf("a row with its own lock type: %v, %v", got.Lock, got.Predecessor)
	}
	if got := s.electionConfig(election{}); got.Lock != leaderelection.LockTypeConfigMap || got.Predecessor != nil {
		t.Errorf("a row without: %v, %v", got.Lock, got.Predecessor)
	}
	s.config.LockType = "multi"
	if got := s.electionConfig(election{lease: true, predecessor: before}); got.Lock != leaderelection.LockTypeLease || got.Predecessor != before {
		t.Errorf("multi, a row with its own lock type: %v, %v", got.Lock, got.Predecessor)
	}
	both := leaderelection.Predecessor{Name: "an-election", Lock: leaderelection.LockTypeConfigMap, Hold: true}
	if got := s.electionConfig(election{id: "an-election"}); got.Lock != leaderelection.LockTypeLease || *got.Predecessor != both {
		t.Errorf("multi, a row without: %v, %+v", got.Lock, got.Predecessor)
	}
	kinds := map[string]string{}
	for _, row := range table {
		for _, kind := range row.kinds {
			kinds[row.id] += kind.Group + "/" + kind.Version + " " + kind.Resource + "\n"
		}
	}
	const gateways = "gateway.networking.k8s.io/v1 gatewayclasses\ngateway.networking.k8s.io/v1 gateways\n"
	// Only the status needs ReferenceGrants, which older versions of the Gateway API do not have as v1.
	wantKinds := map[string]string{
		leaderelection.GatewayDeploymentController: gateways,
		leaderelection.GatewayStatusController:     gateways + "gateway.networking.k8s.io/v1 referencegrants\n",
	}
	if !reflect.DeepEqual(kinds, wantKinds) {
		t.Errorf("required kinds: %v", kinds)
	}
	// Older istiods have one status election for all revisions, with a ConfigMap.
	legacy := &leaderelection.Predecessor{Name: "istio-gateway-status-leader", Lock: leaderelection.LockTypeConfigMap}
	for _, row := range table {
		if row.id == leaderelection.GatewayStatusController && !reflect.DeepEqual(row.predecessor, legacy) {
			t.Errorf("predecessor of the status election: %+v", row.predecessor)
		}
	}
}

func TestElections_ByFlags(t *testing.T) {
	ns, ingresses := leaderelection.NamespaceController, leaderelection.IngressController
	status, deployment := leaderelection.GatewayStatusController, leaderelection.GatewayDeploymentController
	for name, test := range map[string]struct {
		config              Config
		shared, perRevision []string
	}{
		"defaults":      {Config{}, []string{ns, ingresses}, []string{status, deployment}},
		"no ingress":    {Config{IngressMode: "off"}, []string{ns}, []string{status, deployment}},
		"no gateways":   {Config{DisableGatewayAPI: true}, []string{ns, ingresses}, nil},
		"no status":     {Config{DisableGatewayStatus: true}, []string{ns, ingresses}, []string{deployment}},
		"no deployment": {Config{DisableGatewayDeployment: true}, []string{ns, ingresses}, []string{status}},
		"coordinator":   {Config{Coordinator: true, DisableGatewayAPI: true}, []string{ns, ingresses, leaderelection.Coordinator}, nil},
		"remote":        {Config{}.AtRemote(), []string{ns}, nil},
	} {
		shared, perRevision := Elections(test.config)
		if !slices.Equal(shared, test.shared) || !slices.Equal(perRevision, test.perRevision) {
			t.Errorf("%s: %q and %q", name, shared, perRevision)
		}
	}
	if shared, perRevision := Elections(Config{Config: leaderelection.Config{Disabled: true}}); shared != nil || perRevision != nil {
		t.Errorf("without elections: %q, %q", shared, perRevision)
	}
}

func TestNamespaceConfig(t *testing.T) {
	config := Config{CABundle: "a-file", ExcludedNamespaces: []string{"excluded"}, DiscoverySelectors: []string{"a=b"}}
	want := namespace.Config{BundleFile: "a-file", Excluded: []string{"excluded"}, DiscoverySelectors: []string{"a=b"}}
	if got := config.namespace(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

func TestIngressConfig(t *testing.T) {
	for _, c := range []struct {
		config Config
		want   types.NamespacedName
		pods   labels.Set
	}{
		{Config{}, types.NamespacedName{Namespace: "home", Name: "istio-ingressgateway"}, nil},
		{Config{IngressService: "a"}, types.NamespacedName{Namespace: "home", Name: "a"}, nil},
		{Config{IngressService: "there/a"}, types.NamespacedName{Namespace: "there", Name: "a"}, nil},
		{Config{IngressNamespace: "istio-ingress"}, types.NamespacedName{Namespace: "istio-ingress", Name: "istio-ingressgateway"}, nil},
		{Config{IngressNamespace: "istio-ingress", IngressService: "a"}, types.NamespacedName{Namespace: "istio-ingress", Name: "a"}, nil},
		{Config{IngressNamespace: "istio-ingress", IngressService: "there/a"}, types.NamespacedName{Namespace: "there", Name: "a"}, nil},
		{Config{IngressSelector: "front"}, types.NamespacedName{Namespace: "home"}, labels.Set{"istio": "front"}},
		{Config{IngressNamespace: "istio-ingress", IngressSelector: "front"}, types.NamespacedName{Namespace: "istio-ingress"}, labels.Set{"istio": "front"}},
	} {
		c.config.Namespace, c.config.IngressMode, c.config.IngressClass = "home", "default", "a-class"
		want := ingress.Config{Mode: ingress.Default, Class: "a-class", Service: c.want, Pods: c.pods}
		if got := c.config.withDefaults().ingress(); !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v\nwant %+v", got, want)
		}
	}
}

func TestElectionLogger_NamesTheLock(t *testing.T) {
	config := goodConfig()
	text := &harness.Log{}
	config.Logger = slog.New(slog.NewTextHandler(text, nil))
	rows := newController().rows()
	rows[0].perRevision = true
	rows[0].newJob = func(_ kube.Client, _ Config, tools tools) (job, error) {
		tools.log.Info("made")
		return newController(), nil
	}
	if mustNew(t, config, rows); text.Count("made", "election="+electionID+"-stable") != 1 {
		t.Errorf("the log is\n%s", text)
	}
	wrong := errors.New("no controller")
	rows[0].newJob = func(kube.Client, Config, tools) (job, error) { return nil, wrong }
	if _, err := newServer(config, rows); !errors.Is(err, wrong) {
		t.Errorf("a controller that cannot be created: %v", err)
	}
}

// TestLockTypeCheck tests the wiring of the check. Package internal/migration tests the check itself.
func TestLockTypeCheck(t *testing.T) {
	t.Parallel()
	e := newEnvironment(t)
	first := start(t, e.config(t, "first"), newController().rows())
	first.leads(t)
	config := e.config(t, "second")
	config.LockType = "lease"
	second := start(t, config, newController().rows())
	const text = "another installation uses a different lock type"
	await(t, "the first reports it", func() bool {
		return first.metric(t, fmt.Sprintf("incumbent_election_other_lock_held{name=%q}", electionID)) == "1" &&
			first.lines.Count("level=WARN", text, "holder=second") == 1 && slices.Contains(first.election(t).Problems, "second holds the lease")
	})
	second.leads(t)
	for lock, want := range map[string]bool{"configmap": true, "lease": true, "multi": false} {
		config := goodConfig()
		config.LockType = lock
		if s := mustNew(t, config, nil); (s.lockTypes != nil) != want {
			t.Errorf("--lock=%s has a check: %v", lock, !want)
		}
	}
}

// A leader whose caches the API server refuses hands over to a replica that may read. An API server that does not respond makes no
// replica unfit.
func TestRefusedCaches_HandOver(t *testing.T) {
	t.Parallel()
	if err := refused(errors.Join(errAway, errors.New("list pods: no response"))); err != nil {
		t.Errorf("without a response: %v", err)
	}
	e := newEnvironment(t)
	broken, healthy := newController(), newController()
	a := start(t, e.config(t, "a"), broken.rows())
	a.leads(t)
	b := start(t, e.config(t, "b"), healthy.rows())
	b.follows(t, "a")
	err := fmt.Errorf("list pods: %w", apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("no rule")))
	broken.problem.Store(&err)
	b.leads(t)
	a.follows(t, "b")
	if !strings.Contains(a.lines.String(), "caches are out of date: list pods") {
		t.Error("the reason was not logged")
	}
}

func TestGate(t *testing.T) {
	t.Parallel()
	e := newEnvironment(t)
	leading := newController()
	a := start(t, e.config(t, "a"), leading.rows())
	a.leads(t)
	if err := leading.write(t.Context(), e.home, "by-a"); err != nil {
		t.Errorf("the leader: %v", err)
	}
	if n := a.metric(t, fmt.Sprintf("incumbent_election_admitted_writes_total{name=%q}", electionID)); n != "1" {
		t.Errorf("admitted by the gate: %s", n)
	}
	following := newController()
	b := start(t, e.config(t, "b"), following.rows())
	b.follows(t, "a")
	of := func(r *replica, metric string) string {
		return r.metric(t, fmt.Sprintf("%s{name=%q}", metric, electionID))
	}
	if token, transitions := of(a, "incumbent_election_term_token"), of(a, "incumbent_election_term_transitions"); token == "" || transitions != "0" {
		t.Errorf("token %s, transitions %s", token, transitions)
	}
	if err := following.write(t.Context(), e.home, "by-b"); !errors.Is(err, gate.ErrNotLeader) {
		t.Errorf("the follower: %v", err)
	}
	if n := b.metric(t, fmt.Sprintf("incumbent_election_refused_writes_total{by=\"gate\",name=%q}", electionID)); n != "1" {
		t.Errorf("refused by the gate: %s", n)
	}
	open := newController()
	config := e.config(t, "c")
	config.DisableGate = true
	start(t, config, open.rows()).follows(t, "a")
	if err := open.write(t.Context(), e.home, "by-c"); err != nil {
		t.Errorf("a follower without a gate: %v", err)
	}
}

// gateways returns a client of the Gateway API. Gateways in the environment's namespace belong to the revision of its name.
func (e *environment) gateways(t *testing.T) gatewayclient.GatewayV1Interface {
	t.Helper()
	harness.Must(t, e.cluster.LoadGatewayAPI(t.Context()))
	label := fmt.Sprintf(`{"metadata":{"labels":{"istio.io/rev":%q}}}`, e.home)
	if _, err := e.admin.Kube().CoreV1().Namespaces().Patch(t.Context(), e.home, types.MergePatchType, []byte(label), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	client, err := gatewayclient.NewForConfig(e.admin.RESTConfig())
	harness.Must(t, err)
	return client
}

func newGateway(name string) *gateway.Gateway {
	return &gateway.Gateway{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: gateway.GatewaySpec{
		GatewayClassName: "istio", Listeners: []gateway.Listener{{Name: "http", Port: 8080, Protocol: gateway.HTTPProtocolType}},
	}}
}
