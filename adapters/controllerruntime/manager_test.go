package controllerruntime

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/gate"
	testcluster "incumbent.dev/incumbent/tests/cluster"
)

// until polls until the condition holds.
var until = harness.Until

// idle is a reconciler that does nothing.
var idle = reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) { return reconcile.Result{}, nil })

// options are the options of a manager without servers.
func options() manager.Options {
	return manager.Options{Metrics: metricsserver.Options{BindAddress: "0"}}
}

const renewDeadline = 5 * time.Minute

// elected returns a manager in a new election. Its lease is too long to expire in a test, so there is no second term unless the test
// ends the first.
func elected(t *testing.T, change ...func(*leaderelection.Config)) *Manager {
	t.Helper()
	c := testcluster.Shared(t)
	config := leaderelection.Config{
		Namespace: c.Namespace(t), ElectionID: "operator", Identity: "a", LeaseDuration: 10 * time.Minute, RenewDeadline: renewDeadline,
	}
	for _, f := range change {
		f(&config)
	}
	m, err := NewManager(c.Admin(), config, options())
	harness.Must(t, err)
	return m
}

// slowStop is for tests that hold a run function. A slow machine does not exceed this limit.
func slowStop(c *leaderelection.Config) { c.StopLimit = time.Minute }

// start starts a manager. stop stops it and returns its error.
func start(t *testing.T, m *Manager) (stop func() error, ended <-chan error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- m.Start(ctx) }()
	stop = func() error {
		cancel()
		err := <-done
		done <- err
		return err
	}
	t.Cleanup(func() { _ = stop() })
	return stop, done
}

// watching adds a controller of ConfigMaps.
func watching(term manager.Manager, name string, r reconcile.Reconciler) error {
	return builder.ControllerManagedBy(term).Named(name).For(&corev1.ConfigMap{}).Complete(r)
}

func wants(t *testing.T, err error, text string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("the error is %v, want one with %q", err, text)
	}
}

func TestNewManager_Invalid(t *testing.T) {
	second := time.Second
	for want, change := range map[string]func(*manager.Options){
		"options.LeaderElection is set. The Manager has an election already":                   func(o *manager.Options) { o.LeaderElection = true },
		"options.LeaderElectionID is set. Set ElectionID":                                      func(o *manager.Options) { o.LeaderElectionID = "x" },
		"options.LeaderElectionNamespace is set. Set Namespace":                                func(o *manager.Options) { o.LeaderElectionNamespace = "x" },
		"options.LeaseDuration is set":                                                         func(o *manager.Options) { o.LeaseDuration = &second },
		"options.RenewDeadline is set":                                                         func(o *manager.Options) { o.RenewDeadline = &second },
		"options.RetryPeriod is set":                                                           func(o *manager.Options) { o.RetryPeriod = &second },
		"options.NewClient is set. Its client was created before the election and has no gate": func(o *manager.Options) { o.NewClient = client.New },
		"Use manager.New with ClientGoLock": func(o *manager.Options) {
			o.LeaderElectionResourceLockInterface = resourcelock.Interface(&resourcelock.LeaseLock{})
		},
	} {
		o := options()
		change(&o)
		_, err := NewManager(&rest.Config{Host: "http://127.0.0.1:1"}, leaderelection.Config{}, o)
		wants(t, err, want)
	}
	_, err := NewManager(nil, leaderelection.Config{}, options())
	wants(t, err, "config is nil")
	_, err = NewManager(&rest.Config{Host: "http://127.0.0.1:1"}, leaderelection.Config{Namespace: "x"}, options())
	wants(t, err, "no ElectionID")
}

func TestManager_AddNeedsElection(t *testing.T) {
	m := elected(t)
	for name, c := range map[string]struct {
		runnable manager.Runnable
		refused  bool
	}{
		"function":        {manager.RunnableFunc(func(context.Context) error { return nil }), true},
		"server":          {&manager.Server{Server: &http.Server{}}, false},
		"leader's server": {&manager.Server{Server: &http.Server{}, OnlyServeWhenLeader: true}, true},
		"everywhere":      {everywhere(func(context.Context) error { return nil }), false},
		"nil":             {nil, true},
	} {
		if err := m.Add(c.runnable); (err != nil) != c.refused {
			t.Errorf("%s: %v", name, err)
		}
	}
	wants(t, watching(m, "early", idle), "it needs leader election. Add it to the manager of a term")
	wants(t, m.Start(t.Context()), "it has no controllers. Add a function that creates them with InTerms")
}

// Each mistake in a setup ends Start with an error, and the lock is released.
func TestInTerms_BadSetup(t *testing.T) {
	index := func(client.Object) []string { return nil }
	for want, setup := range map[string]func(ctx context.Context, term manager.Manager) error{
		`index field "f" of *v1.ConfigMap: the index exists`: func(ctx context.Context, term manager.Manager) error {
			if err := term.GetFieldIndexer().IndexField(ctx, &corev1.ConfigMap{}, "f", index); err != nil {
				return err
			}
			return term.GetCache().IndexField(ctx, &corev1.ConfigMap{}, "f", index)
		},
		`add webhook "/validate" to a term: every replica serves it`: func(_ context.Context, term manager.Manager) error {
			term.GetWebhookServer().Register("/validate", http.NotFoundHandler())
			return nil
		},
		`add health check "h" to a term`:    func(_ context.Context, term manager.Manager) error { return term.AddHealthzCheck("h", nil) },
		`add readiness check "r" to a term`: func(_ context.Context, term manager.Manager) error { return term.AddReadyzCheck("r", nil) },
		`add metrics handler "/m" to a term`: func(_ context.Context, term manager.Manager) error {
			return term.AddMetricsServerExtraHandler("/m", nil)
		},
		"informer already started":     func(ctx context.Context, term manager.Manager) error { return term.GetCache().Start(ctx) },
		"start the manager of a term":  func(ctx context.Context, term manager.Manager) error { return term.Start(ctx) },
		"add a runnable: it is nil":    func(_ context.Context, term manager.Manager) error { return term.Add(nil) },
		"set up a term: no such thing": func(context.Context, manager.Manager) error { return errors.New("no such thing") },
		"run runnable manager.RunnableFunc": func(_ context.Context, term manager.Manager) error {
			return term.Add(manager.RunnableFunc(func(context.Context) error { return errors.New("broken") }))
		},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			m := elected(t)
			m.InTerms(setup)
			wants(t, m.Start(t.Context()), want)
			if holder, _ := m.Election().Leader(); holder != "" {
				t.Errorf("%q holds the lock after Start", holder)
			}
		})
	}
}

func TestManager_StartReportsMistakes(t *testing.T) {
	m := elected(t)
	m.InTerms(nil)
	m.InTerms(func(context.Context, manager.Manager) error { return nil })
	m.GetWebhookServer().Register("/validate", http.NotFoundHandler())
	m.GetWebhookServer().Register("/validate", http.NotFoundHandler())
	err := m.Start(t.Context())
	wants(t, err, "InTerms was called with nil")
	wants(t, err, `register webhook "/validate": the path is registered already`)
	wants(t, m.Start(t.Context()), "it was started before")

	m = elected(t)
	m.InTerms(func(context.Context, manager.Manager) error { return nil })
	m.Warm(&corev1.Pod{}, &unknownKind{})
	wants(t, m.Start(t.Context()), "fill the cache of *controllerruntime.unknownKind")

	m = elected(t)
	m.InTerms(func(context.Context, manager.Manager) error { return nil })
	harness.Must(t, m.Add(everywhere(func(context.Context) error { return errors.New("no port") })))
	wants(t, m.Start(t.Context()), "no port")
}

// unknownKind is in no scheme.
type unknownKind struct{ corev1.Pod }

// A controller and a manager of an earlier term are errors in the next term. An index is used again.
func TestInTerms_EarlierTerm(t *testing.T) {
	m := elected(t)
	var old controller.Controller
	var early manager.Manager
	m.InTerms(func(ctx context.Context, term manager.Manager) error {
		if err := term.GetFieldIndexer().IndexField(ctx, &corev1.ConfigMap{}, "f", func(client.Object) []string { return nil }); err != nil {
			return err
		}
		if old != nil {
			wants(t, early.Add(everywhere(nil)), "the term has ended")
			return term.Add(old)
		}
		early = term
		var err error
		if old, err = controller.New("old", term, controller.Options{Reconciler: idle}); err != nil {
			return err
		}
		return term.Add(manager.RunnableFunc(func(context.Context) error {
			m.Election().StepDown()
			return nil
		}))
	})
	wants(t, m.Start(t.Context()), "controller was started more than once")
}

// Writes of every client of the manager pass the gate. Reads, caches and Events do not.
func TestManager_Gates(t *testing.T) {
	m := elected(t)
	namespace := m.Election().Status().Namespace
	other, err := client.New(m.GetConfig(), client.Options{})
	harness.Must(t, err)
	third, err := client.New(testcluster.Shared(t).Admin(), client.Options{HTTPClient: m.GetHTTPClient()})
	harness.Must(t, err)
	clients := map[string]client.Client{"GetClient": m.GetClient(), "GetConfig": other, "GetHTTPClient": third}
	write := func(ctx context.Context, want error) {
		for name, c := range clients {
			err := c.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "x-", Namespace: namespace}})
			if !errors.Is(err, want) {
				t.Errorf("write of the client of %s: %v, want %v", name, err, want)
			}
		}
	}
	write(t.Context(), gate.ErrNotLeader)
	if err := m.GetAPIReader().List(t.Context(), &corev1.ConfigMapList{}, client.InNamespace(namespace)); err != nil {
		t.Errorf("read: %v", err)
	}
	electedBefore := m.Elected()
	leads := make(chan struct{})
	m.InTerms(func(ctx context.Context, term manager.Manager) error {
		write(ctx, nil)
		close(leads)
		return nil
	})
	stop, _ := start(t, m)
	<-leads
	<-electedBefore
	if err := stop(); err != nil {
		t.Error(err)
	}
	write(t.Context(), gate.ErrNotLeader)
	if lock := m.Election().Status().Lock; !strings.Contains(logged.String(), `msg="election phase changed" election=operator lock=`+namespace+"/"+lock) {
		t.Error("the election does not use the logger of controller-runtime")
	}
	select {
	case <-m.Elected():
		t.Error("Elected is closed after the term")
	default:
	}
}

// sample returns the value of a metric of an election in the registry of controller-runtime, or -1.
func sample(t *testing.T, metric, election, by string) float64 {
	t.Helper()
	families, err := metrics.Registry.Gather()
	harness.Must(t, err)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if family.GetName() == metric && labels["name"] == election && labels["by"] == by {
				return m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return -1
}

func TestManager_Metrics(t *testing.T) {
	m := elected(t)
	name := m.Election().Status().Lock
	leading := make(chan struct{})
	m.InTerms(func(ctx context.Context, term manager.Manager) error {
		defer close(leading)
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: m.Election().Status().Namespace}}
		return term.GetClient().Create(ctx, object)
	})
	if err := m.GetClient().Delete(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: "n"}}); !errors.Is(err, gate.ErrNotLeader) {
		t.Fatal(err)
	}
	stop, _ := start(t, m)
	<-leading
	if left := sample(t, "incumbent_election_validity_left_seconds", name, ""); left <= 0 || left > renewDeadline.Seconds() {
		t.Errorf("validity left %v", left)
	}
	for _, c := range []struct {
		metric, by  string
		during, end float64
	}{
		{"leader_election_master_status", "", 1, 0},
		{"incumbent_election_admitted_writes_total", "", 1, -1},
		{"incumbent_election_refused_writes_total", "gate", 1, -1},
		{"incumbent_election_refused_writes_total", "fence", 0, -1},
		{"incumbent_election_validity_left_seconds", "", -1, -1}, // checked above
	} {
		if got := sample(t, c.metric, name, c.by); got != c.during && c.during >= 0 {
			t.Errorf("%s of %q while leading: %v", c.metric, c.by, got)
		}
		defer func() {
			if got := sample(t, c.metric, name, c.by); got != c.end {
				t.Errorf("%s of %q after Start: %v", c.metric, c.by, got)
			}
		}()
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// A reconciler that ignores its context keeps the lock: neither Start nor the release happen while it runs.
func TestStart_ReturnsAfterReconcile(t *testing.T) {
	m := elected(t, slowStop)
	reconciling, finish := make(chan struct{}), make(chan struct{})
	m.InTerms(func(_ context.Context, term manager.Manager) error {
		return watching(term, "slow", reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
			select {
			case reconciling <- struct{}{}:
			case <-finish:
				return reconcile.Result{}, nil
			}
			<-finish
			return reconcile.Result{}, nil
		}))
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- m.Start(ctx) }()
	<-reconciling
	cancel()
	until(t, "the election drains", func() bool { return m.Election().Status().Phase == "draining" })
	select {
	case err := <-done:
		t.Fatalf("Start returned %v during a reconcile", err)
	default:
	}
	if holder, _ := m.Election().Leader(); holder != "a" {
		t.Errorf("%q holds the lock during the reconcile", holder)
	}
	close(finish)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if holder, _ := m.Election().Leader(); holder != "" {
		t.Errorf("%q holds the lock after Start", holder)
	}
}

// A cluster that a setup adds has filled its cache before the other runnables start.
func TestInTerms_AddsCluster(t *testing.T) {
	m := elected(t)
	synced := make(chan bool, 1)
	m.InTerms(func(ctx context.Context, term manager.Manager) error {
		remote, err := cluster.New(testcluster.Shared(t).Admin())
		if err != nil {
			return err
		}
		informer, err := remote.GetCache().GetInformer(ctx, &corev1.Namespace{})
		if err != nil {
			return err
		}
		return errors.Join(term.Add(manager.RunnableFunc(func(context.Context) error {
			synced <- informer.HasSynced()
			return nil
		})), term.Add(remote))
	})
	stop, _ := start(t, m)
	if !<-synced {
		t.Error("a runnable started before the cache of the cluster had synced")
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}
