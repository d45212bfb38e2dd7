package leaderelection

import (
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/atomic"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/testutil/apiserver"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pkg/kube"
)

// newEmptyServer returns a client of an API server without objects, its configuration and the number of its connections.
func newEmptyServer(t *testing.T) (server *apiserver.Server, config *rest.Config, client kube.Client, open *atomic.Int32) {
	t.Helper()
	server = apiserver.New()
	url, open := server.Listen(t)
	config = &rest.Config{Host: url}
	client, err := kube.NewClient(config)
	harness.Must(t, err)
	return server, config, client, open
}

// newOn returns an election with the rest of its configuration in cfg.
func newOn(t *testing.T, client kube.Client, cfg Config) *LeaderElection {
	t.Helper()
	cfg.Namespace = "istio-system"
	cfg.ElectionID = "new"
	l, err := New(client, cfg)
	harness.Must(t, err)
	return l
}

// prepared prepares an election and returns the function that releases it.
func prepared(t *testing.T, l *LeaderElection) (release func()) {
	t.Helper()
	release, err := l.prepare(t.Context())
	harness.Must(t, err)
	return release
}

// given is a client type of a caller. Some of its values cannot be map keys.
type given struct {
	kube.Client
	kube   kubernetes.Interface
	config *rest.Config
}

func (g given) Kube() kubernetes.Interface { return g.kube }
func (g given) RESTConfig() *rest.Config   { return g.config }

// serverless has no REST client, as client-go's fake clientsets have none.
type serverless struct{ kubernetes.Interface }

type serverlessCore struct{ corev1client.CoreV1Interface }

func (serverless) CoreV1() corev1client.CoreV1Interface { return serverlessCore{} }
func (serverlessCore) RESTClient() rest.Interface       { return (*rest.RESTClient)(nil) }

type unlike struct {
	given
	_ map[string]string
}

// Running elections of one client share the client for locks. Elections of another client do not, nor do
// elections of a client that cannot be a map key.
func TestRegistry(t *testing.T) {
	server, config, client, open := newEmptyServer(t)
	r := &registry{}
	acquire := func(c kube.Client) *shared {
		t.Helper()
		got, err := r.acquire(c)
		harness.Must(t, err)
		return got
	}
	first, other := acquire(client), acquire(given{config: config, kube: client.Kube()})
	if acquire(client) != first || other == first || first.client == client || first.locks.Client == nil || first.locks.MaxConcurrentCalls == 0 {
		t.Errorf("%+v, %+v", first, other)
	}
	if w := first.defaultWatcher(); w == nil || w != first.defaultWatcher() || w == other.defaultWatcher() {
		t.Error("the elections of a client do not share a watcher, or share it with others")
	}
	harness.Until(t, "the watcher reads webhooks", func() bool {
		return slices.ContainsFunc(server.Requests(), func(r apiserver.Request) bool { return r.Resource == "mutatingwebhookconfigurations" })
	})
	other.release()
	first.release()
	if acquire(client) != first {
		t.Error("a client in use was released")
	}
	first.release()
	first.release()
	harness.Until(t, "the connections are closed", func() bool { return open.Load() == 0 })
	if again := acquire(client); again == first {
		t.Error("an unused client was not released")
	} else {
		again.release()
	}
	plain := unlike{given: given{config: config, kube: client.Kube()}}
	a, b := acquire(plain), acquire(plain)
	if a == b || len(r.clients) != 0 {
		t.Errorf("clients that cannot be compared: the same %v, %d known", a == b, len(r.clients))
	}
	a.release()
	b.release()
	// A new client could not reach the store of such a client.
	memory := given{kube: serverless{}}
	if c := acquire(memory); c.client != kube.Client(memory) || c.locks.Client != nil || c.locks.MaxConcurrentCalls == 0 {
		t.Errorf("%+v", c)
	} else {
		c.release()
	}
	for what, x := range map[string]struct {
		client kube.Client
		want   string
	}{
		"without a configuration": {given{kube: client.Kube()}, "create client for locks: client has no RESTConfig: create it with kube.NewClient, or set LockClient"},
		"with a wrong one":        {given{kube: client.Kube(), config: &rest.Config{Host: "http://a b"}}, "create client for locks: make client for http://a b"},
	} {
		if c, err := r.acquire(x.client); c != nil || err == nil || !strings.HasPrefix(err.Error(), x.want) {
			t.Errorf("%s: %v, %v", what, c, err)
		}
	}
	if len(r.clients) != 0 {
		t.Errorf("%d clients are left", len(r.clients))
	}
}

// Elections with the same client share, also those of istiod's constructors and of a Set.
func TestPrepare_Shares(t *testing.T) {
	_, _, client, _ := newEmptyServer(t)
	_, _, another, _ := newEmptyServer(t)
	a := newOn(t, client, Config{})
	b := newOn(t, client, Config{})
	other := newOn(t, another, Config{})
	istio := NewLeaseLeaderElection("istio-system", "a", "new", "canary", client)
	NewSet().Add(b)
	for _, l := range []*LeaderElection{a, b, other, istio} {
		defer prepared(t, l)()
	}
	if a.shared != b.shared || a.shared == other.shared || a.shared != istio.shared {
		t.Errorf("of one client: %p and %p, of another: %p, of Istio's style: %p", a.shared, b.shared, other.shared, istio.shared)
	}
}

// prepare acquires what the elections of a client share. It releases everything if it fails.
func TestPrepare(t *testing.T) {
	_, _, client, _ := newEmptyServer(t)
	l := NewLeaseLeaderElection("istio-system", "a", "new", "canary", client)
	began := l.elector.Load()
	release := prepared(t, l)
	c := global.clients[client]
	if c == nil || c.users != 1 || l.shared != c.locks || l.cfg.DefaultWatcher != c.watcher || l.elector.Load() == began {
		t.Errorf("%+v", c)
	}
	own := newOn(t, client, Config{DefaultWatcher: watcher("canary")})
	second := prepared(t, own)
	if c.users != 2 || own.cfg.DefaultWatcher != watcher("canary") {
		t.Errorf("election with its own watcher: %d users, %v", c.users, own.cfg.DefaultWatcher)
	}
	second()
	release()
	if len(global.clients) != 0 {
		t.Error("not released")
	}
	before := l.cfg.DefaultWatcher
	release = prepared(t, l)
	if l.cfg.DefaultWatcher == before {
		t.Error("the next run follows the watcher of the previous one")
	}
	release()
	l.cfg.LeaseDuration = time.Second
	if _, err := l.prepare(t.Context()); err == nil || len(global.clients) != 0 {
		t.Errorf("invalid lease: %v, %d clients left", err, len(global.clients))
	}
	if err := l.RunContext(t.Context()); err == nil || !strings.HasPrefix(err.Error(), `election "new": `) {
		t.Errorf("invalid lease: %v", err)
	}
	// An election with a LockClient shares nothing.
	apart := newOn(t, client, Config{LockClient: client.Kube()})
	release = prepared(t, apart)
	if len(global.clients) != 0 || apart.shared != nil {
		t.Errorf("election with its own client: %d clients", len(global.clients))
	}
	release()
	broken := newOn(t, given{kube: client.Kube()}, Config{})
	if _, err := broken.prepare(t.Context()); err == nil || !strings.Contains(err.Error(), "no RESTConfig") {
		t.Errorf("client without a configuration: %v", err)
	}
}
