package leaderelection

import (
	"cmp"
	"errors"
	"log/slog"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/environment"
	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/leaderelection/gate"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pkg/kube"
)

// unreachable returns a client that reaches no API server.
func unreachable(t *testing.T) kube.Client {
	t.Helper()
	client, err := kube.NewClient(&rest.Config{Host: "http://127.0.0.1:1"})
	harness.Must(t, err)
	return client
}

// withDefaults keeps the values that are set.
func TestConfigDefaults(t *testing.T) {
	l, err := New(unreachable(t), Config{Namespace: "istio-system", ElectionID: "new"})
	harness.Must(t, err)
	want := Config{
		Namespace: "istio-system", ElectionID: "new", Identity: l.cfg.Identity, Revision: "default", Lock: LockTypeLease,
		LeaseDuration: 30 * time.Second, RenewDeadline: 15 * time.Second, RetryPeriod: 7500 * time.Millisecond,
		HealthTolerance: 20 * time.Second, Logger: slog.Default(),
	}
	if !sameConfig(l.cfg, want) {
		t.Errorf("%+v", l.cfg)
	}
	given := Config{
		Namespace: "istio-system", ElectionID: "new", Identity: "a", Revision: "canary", Lock: LockTypeConfigMap,
		LeaseDuration: 20 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
		HealthTolerance: time.Second, Logger: slog.New(slog.DiscardHandler),
	}
	if l, err = New(unreachable(t), given); err != nil || !sameConfig(l.cfg, given) {
		t.Errorf("%v, %+v", err, l.cfg)
	}
}

// Without a name, New gives each process its own identity. The constructors as in istiod use the identity that istiod uses.
func TestConfigIdentity_Default(t *testing.T) {
	host, err := os.Hostname()
	harness.Must(t, err)
	seen := map[string]bool{}
	for range 2 {
		l, err := New(unreachable(t), Config{Namespace: "istio-system", ElectionID: "new"})
		harness.Must(t, err)
		if !strings.HasPrefix(l.cfg.Identity, host+"-") || record.ValidateIdentity(l.cfg.Identity) != nil || seen[l.cfg.Identity] {
			t.Errorf("identity %q", l.cfg.Identity)
		}
		seen[l.cfg.Identity] = true
	}
	if l := NewLeaderElection("istio-system", "", "new", "stable", unreachable(t)); l.cfg.Identity != "unknown-"+host {
		t.Errorf("identity %q of a constructor as in istiod", l.cfg.Identity)
	}
}

// sameConfig compares all fields of two Configs except the functions.
func sameConfig(a, b Config) bool {
	a.OnStuckDrain = nil
	b.OnStuckDrain = nil
	return a.Logger == b.Logger && reflect.DeepEqual(a, b)
}

func TestConfigDerivedValues(t *testing.T) {
	const lease = 8 * time.Second
	for name, x := range map[string]struct {
		cfg       Config
		lock, key string
		wait      time.Duration
	}{
		"plain":                  {Config{}, "new", "canary", 0},
		"per revision":           {Config{PerRevision: true, DefaultWatcher: watcher("?")}, "new-canary", "canary", 0},
		"remote":                 {Config{Remote: true}, "new", "^canary", 0},
		"watched":                {Config{DefaultWatcher: watcher("?")}, "new", "canary", lease / 4},
		"watched, a long lease":  {Config{DefaultWatcher: watcher("?"), LeaseDuration: time.Minute}, "new", "canary", 3 * time.Second},
		"watched, at the bounds": {Config{DefaultWatcher: watcher("?"), LeaseDuration: 12 * time.Second}, "new", "canary", 3 * time.Second},
	} {
		c := x.cfg
		c.ElectionID, c.Revision = "new", "canary"
		c.LeaseDuration = cmp.Or(c.LeaseDuration, lease)
		if c.lockName() != x.lock || c.key() != x.key || c.syncWait() != x.wait {
			t.Errorf("%s: lock %q, key %q, waits %v", name, c.lockName(), c.key(), c.syncWait())
		}
	}
}

// The error lists everything that is invalid. Constructors without an error result keep it for RunContext.
func TestConfigValidate(t *testing.T) {
	for name, x := range map[string]struct {
		change func(*Config)
		want   []string // empty: the Config is valid
		not    string
	}{
		"good":              {change: func(*Config) {}},
		"a ConfigMap":       {change: func(c *Config) { c.Lock = LockTypeConfigMap }},
		"no election":       {change: func(c *Config) { c.ElectionID = "" }, want: []string{"no ElectionID: name the election, e.g. " + NamespaceController}, not: "no Namespace"},
		"no namespace":      {change: func(c *Config) { c.Namespace = "" }, want: []string{"no Namespace: name the namespace"}, not: "no ElectionID"},
		"no such revision":  {change: func(c *Config) { c.Revision = "A b" }, want: []string{`the Revision "A b"`}},
		"no such lock":      {change: func(c *Config) { c.Lock = "x" }, want: []string{`the Lock "x" is neither LockTypeConfigMap nor LockTypeLease`}},
		"its own lock":      {change: func(c *Config) { c.Predecessor = &Predecessor{Name: "new"} }, want: []string{"the Predecessor new is the election's own lock"}},
		"a lease too short": {change: func(c *Config) { c.LeaseDuration = time.Second }, want: []string{"LeaseDuration 1s must be greater than RenewDeadline"}},
		"lock labels":       {change: func(c *Config) { c.LockLabels = map[string]string{"app.kubernetes.io/name": "x"} }},
		"bad lock labels": {change: func(c *Config) { c.LockLabels = map[string]string{"a b": "", "c": "d e"} }, want: []string{
			`LockLabels: Invalid value: "a b": name part must consist of`, `LockLabels: Invalid value: "d e": a valid label must`,
		}},
		"no owner": {change: func(c *Config) { c.LockOwners = []metav1.OwnerReference{{Kind: "Deployment", Name: "x"}} }, want: []string{
			`LockOwners.apiVersion: Invalid value: "": version must not be empty`, `LockOwners.uid: Invalid value: "": must not be empty`,
		}},
		"half a Pod": {change: func(c *Config) { c.LabelPod.Name = "x" }, want: []string{`the LabelPod "/x": set the namespace and the name`}},
		"long label": {change: func(c *Config) {
			c.LabelPod, c.ElectionID = types.NamespacedName{Namespace: "n", Name: "x"}, strings.Repeat("x", 64)
		}, want: []string{"the label incumbent.dev/leader cannot have the value"}},
		"all": {change: func(c *Config) { c.ElectionID, c.Namespace, c.Lock = "", "", "x" }, want: []string{"no ElectionID", "no Namespace", `the Lock "x"`}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := Config{Namespace: "istio-system", ElectionID: "new", Identity: "a", Revision: "canary"}
			x.change(&cfg)
			l, err := New(unreachable(t), cfg)
			ended := newElection(unreachable(t), cfg)
			if len(x.want) == 0 {
				if err != nil || l == nil || ended.invalid != nil {
					t.Errorf("rejected: %v, %v", err, ended.invalid)
				}
				return
			}
			if err == nil || l != nil {
				t.Fatalf("accepted: %v, %v", l, err)
			}
			if x.not != "" && strings.Contains(err.Error(), x.not) {
				t.Errorf("the error is %v", err)
			}
			_, orders := ended.Operator("me")
			for what, err := range map[string]error{"New": err, "RunContext": ended.RunContext(t.Context()), "Operator": orders} {
				for _, want := range append(x.want, `election "`, `in namespace "`) {
					if err == nil || !strings.Contains(err.Error(), want) {
						t.Errorf("%s: the error is %v and lacks %s", what, err, want)
					}
				}
			}
		})
	}
	if l, err := New(nil, Config{}); l != nil || err == nil || err.Error() != "election: no client was given" {
		t.Errorf("without a client: %v, %v", l, err)
	}
}

func TestConstructors(t *testing.T) {
	client := unreachable(t)
	base := Config{Namespace: "istio-system", Identity: "a", ElectionID: "new", Revision: "canary"}
	with := func(change func(*Config)) Config { c := base; change(&c); return c.withDefaults() }
	for name, x := range map[string]struct {
		made    *LeaderElection
		want    Config
		sharing bool
	}{
		"ConfigMap":    {NewLeaderElection("istio-system", "a", "new", "canary", client), with(func(c *Config) { c.Lock = LockTypeConfigMap }), true},
		"Lease":        {NewLeaseLeaderElection("istio-system", "a", "new", "canary", client), with(func(c *Config) { c.Lock = LockTypeLease }), true},
		"per revision": {NewPerRevisionLeaderElection("istio-system", "a", "new", "canary", client), with(func(c *Config) { c.Lock, c.PerRevision = LockTypeLease, true }), false},
		"remote":       {NewLeaderElectionMulticluster("istio-system", "a", "new", "canary", true, client), with(func(c *Config) { c.Lock, c.Remote = LockTypeConfigMap, true }), true},
		"local":        {NewLeaderElectionMulticluster("istio-system", "a", "new", "canary", false, client), with(func(c *Config) { c.Lock = LockTypeConfigMap }), true},
	} {
		if !sameConfig(x.made.cfg, x.want) || x.made.sharing != x.sharing || x.made.client != client || x.made.invalid != nil {
			t.Errorf("%s: sharing %v, invalid %v, %+v", name, x.made.sharing, x.made.invalid, x.made.cfg)
		}
	}
	t.Setenv(environment.LeaseDuration, "soon")
	l := NewLeaderElection("istio-system", "a", "", "canary", client)
	if err := l.RunContext(t.Context()); err == nil || !strings.Contains(err.Error(), `election "" in namespace "istio-system": environment variable LEADER_ELECTION_LEASE_DURATION="soon"`) {
		t.Errorf("invalid environment variable: %v", err)
	}
}

func TestConfigFromEnvironment(t *testing.T) {
	type variables map[string]string
	for name, x := range map[string]struct {
		given variables
		want  Config
		err   []string
	}{
		"none":         {variables{}, Config{RetryPeriod: 1}, nil},
		"on":           {variables{environment.EnableLeaderElection: "true"}, Config{RetryPeriod: 1}, nil},
		"off":          {variables{environment.EnableLeaderElection: "false"}, Config{RetryPeriod: 1, Disabled: true}, nil},
		"off, as 0":    {variables{environment.EnableLeaderElection: "0"}, Config{RetryPeriod: 1, Disabled: true}, nil},
		"lease":        {variables{environment.LeaseDuration: "40s"}, Config{RetryPeriod: 1, LeaseDuration: 40 * time.Second}, nil},
		"deadline":     {variables{environment.RenewDeadline: "20s"}, Config{RetryPeriod: 1, RenewDeadline: 20 * time.Second}, nil},
		"retry":        {variables{environment.RetryPeriod: "1ns"}, Config{RetryPeriod: 1}, nil},
		"longer retry": {variables{environment.RetryPeriod: "5s"}, Config{RetryPeriod: 5 * time.Second}, nil},
		"perhaps":      {variables{environment.EnableLeaderElection: "maybe"}, Config{RetryPeriod: 1}, []string{environment.EnableLeaderElection + `="maybe": give true or false`}},
		"no time":      {variables{environment.LeaseDuration: "0s"}, Config{RetryPeriod: 1}, []string{environment.LeaseDuration + `="0s": give a positive duration`}},
		"less time":    {variables{environment.RetryPeriod: "-1ns"}, Config{RetryPeriod: 1}, []string{environment.RetryPeriod + `="-1ns": give a positive duration`}},
		"all wrong": {
			variables{environment.EnableLeaderElection: "maybe", environment.LeaseDuration: "30", environment.RenewDeadline: "x", environment.RetryPeriod: "0"},
			Config{RetryPeriod: 1}, []string{environment.EnableLeaderElection, environment.LeaseDuration, environment.RenewDeadline, environment.RetryPeriod},
		},
		"one wrong": {variables{environment.LeaseDuration: "30", environment.RetryPeriod: "2s"}, Config{RetryPeriod: 2 * time.Second}, []string{environment.LeaseDuration}},
	} {
		// Values that are set are kept, except Disabled: without the variable elections are enabled.
		for _, name := range []string{environment.EnableLeaderElection, environment.LeaseDuration, environment.RenewDeadline, environment.RetryPeriod} {
			t.Setenv(name, x.given[name])
		}
		got, err := Config{RetryPeriod: 1, Disabled: true}.fromEnvironment()
		if !sameConfig(got, x.want) {
			t.Errorf("%s: %+v", name, got)
		}
		if (err != nil) != (len(x.err) > 0) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, want := range x.err {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v lacks %s", name, err, want)
			}
		}
	}
}

// An election that does not run ranks by the last known default revision.
func TestLocationPrioritizedComparison(t *testing.T) {
	l := electionFor(t, Config{Revision: "canary", DefaultWatcher: watcher("canary")})
	if !LocationPrioritizedComparison("stable", l) || LocationPrioritizedComparison("canary", l) {
		t.Error("the default revision does not outrank another")
	}
	if l := electionFor(t, Config{Revision: "canary", DefaultWatcher: watcher("stable")}); LocationPrioritizedComparison("stable", l) || LocationPrioritizedComparison("other", l) {
		t.Error("a revision outranks another although neither is the default")
	}
	if !LocationPrioritizedComparison("^canary", electionFor(t, Config{Revision: "canary"})) {
		t.Error("a local candidate does not outrank a remote one")
	}
	if LocationPrioritizedComparison("^canary", electionFor(t, Config{Revision: "canary", PerRevision: true})) {
		t.Error("a per-revision election has ranks")
	}
	// If the watcher has not synced, there is no default revision before the first run.
	for name, change := range map[string]func(*LeaderElection){
		"not synced": func(l *LeaderElection) { l.cfg.DefaultWatcher = watcher("?") },
		"shared":     func(l *LeaderElection) { l.sharing = true },
	} {
		l := electionFor(t, Config{Revision: "canary", DefaultWatcher: watcher("stable")})
		change(l)
		if got := l.currentDefault(); got != (k8sleaderelection.DefaultRevision{}) || LocationPrioritizedComparison("stable", l) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	refused := newElection(unreachable(t), Config{})
	if refused.currentDefault() != (k8sleaderelection.DefaultRevision{}) {
		t.Error("an invalid election has a default revision")
	}
	// An invalid election does not lead, has no leader, and ignores a step-down.
	if identity, key := refused.Leader(); identity != "" || key != "" || refused.IsLeader() {
		t.Errorf("led by %q of %q", identity, key)
	}
	refused.StepDown()
	if s := refused.Status(); s.Phase != "" || s.LockType != "lease" || s.Leading {
		t.Errorf("%+v", s)
	}
}

// Client never returns an ungated client for an election that has a gate.
func TestClient(t *testing.T) {
	client := unreachable(t)
	l, err := New(client, Config{Namespace: "istio-system", ElectionID: "new", Disabled: true})
	if err != nil || l.Client() != client {
		t.Errorf("without an election the client is another one: %v", err)
	}
	if l, err = New(client, Config{Namespace: "istio-system", ElectionID: "new"}); err != nil {
		t.Fatal(err)
	}
	gated := l.Client()
	if gated == client || gated != l.Client() {
		t.Error("Client returns an ungated client, or another client on each call")
	}
	err = gated.Kube().CoreV1().RESTClient().Delete().AbsPath("/api/v1/namespaces/a").Do(t.Context()).Error()
	if err == nil || !strings.Contains(err.Error(), "not lead") && !strings.Contains(err.Error(), "not the leader") {
		t.Errorf("a write outside the term: %v", err)
	}
	broken := errors.New("no such transport")
	l, err = New(undivided{Client: client, err: broken}, Config{Namespace: "istio-system", ElectionID: "new"})
	harness.Must(t, err)
	for what, kubeErr := range map[string]error{
		"typed": l.Client().Kube().CoreV1().RESTClient().Get().AbsPath("/api").Do(t.Context()).Error(),
		"dynamic": func() error {
			_, err := l.Client().Dynamic().Resource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}).Get(t.Context(), "a", metav1.GetOptions{})
			return err
		}(),
	} {
		if kubeErr == nil || !strings.Contains(kubeErr.Error(), broken.Error()) || !strings.Contains(kubeErr.Error(), "istio-system.invalid") {
			t.Errorf("%s: %v", what, kubeErr)
		}
	}
	if err := l.Client().Kube().CoreV1().RESTClient().Delete().AbsPath("/api").Do(t.Context()).Error(); !errors.Is(err, gate.ErrNotLeader) {
		t.Errorf("a write: %v", err)
	}
	// Without a client, requests fail, and nothing panics.
	err = NewLeaderElection("istio-system", "a", "new", "canary", nil).Client().Kube().CoreV1().RESTClient().Get().AbsPath("/api").Do(t.Context()).Error()
	if err == nil || !strings.Contains(err.Error(), "derive client: no client") {
		t.Errorf("without a client: %v", err)
	}
}

// undivided is a client from which no other can be derived.
type undivided struct {
	kube.Client
	err error
}

func (u undivided) RESTConfig() *rest.Config {
	c := u.Client.RESTConfig()
	c.CAFile = u.err.Error()
	return c
}
