package bootstrap

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/controllers/namespace"
	"incumbent.dev/incumbent/pilot/leaderelection/fence"
	"incumbent.dev/incumbent/pkg/kube"
	"incumbent.dev/incumbent/tests/cluster"
)

// effects are Config's fields, each with what it does to a server on a real API server. A
// field that is not here fails the test.
var effects = map[string]func(t *testing.T, e *environment){
	"Kubernetes":               kubernetesHasItsEffect,
	"RESTConfig":               restConfigHasItsEffect,
	"RemoteKubeconfig":         remoteHasItsEffect,
	"remote":                   remoteHasItsEffect,
	"QPS":                      limitHasItsEffect,
	"Burst":                    limitHasItsEffect,
	"Namespace":                lockSaysWhoAndWhere,
	"Identity":                 lockSaysWhoAndWhere,
	"Revision":                 lockSaysWhoAndWhere,
	"ClusterID":                clusterIDHasItsEffect,
	"Address":                  addressHasItsEffect,
	"DebugAddress":             debugAddressHasItsEffect,
	"CABundle":                 bundleHasItsEffect,
	"ExcludedNamespaces":       bundleHasItsEffect,
	"IngressMode":              ingressHasItsEffect,
	"IngressClass":             ingressHasItsEffect,
	"IngressService":           ingressHasItsEffect,
	"DisableGatewayAPI":        gatewaysHaveTheirEffect,
	"DisableGatewayStatus":     gatewaysHaveTheirEffect,
	"DisableGatewayDeployment": gatewaysHaveTheirEffect,
	"DisableGatewayClass":      gatewaysHaveTheirEffect,
	"Lock":                     lockHasItsEffect,
	"LeaseDuration":            timingHasItsEffect,
	"RenewDeadline":            timingHasItsEffect,
	"RetryPeriod":              timingHasItsEffect,
	"DisableElections":         disableElectionsHasItsEffect,
	"DisableGate":              gateHasItsEffect,
	"Fence":                    fenceHasItsEffect,
	"PodUID":                   memberHasItsEffect,
	"DisableMember":            memberHasItsEffect,
	"Coordinator":              coordinatorHasItsEffect,
	"ElectionStrategy":         coordinatorHasItsEffect,
	"OldestEmulation":          emulationHasItsEffect,
	"EmulationVersion":         emulationHasItsEffect,
	"ShutdownTimeout":          stuckControllerIsNotWaitedFor,
	"ExitOnStuckDrain":         exitIsTheElections,
	"Profiling":                profilingHasItsEffect,
	"Logger":                   loggerHasItsEffect,
	"healthTolerance":          healthFollowsStuckWork,
	"fenceEvery":               fenceFallsAndIsNoticed,
}

func TestEveryFieldOfConfigHasItsEffect(t *testing.T) {
	ran := map[uintptr]bool{}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[Config]()) {
		effect := effects[field.Name]
		if effect == nil {
			t.Errorf("nobody tries what Config.%s does: give it an entry in effects", field.Name)
			continue
		}
		if at := reflect.ValueOf(effect).Pointer(); ran[at] {
			continue
		} else {
			ran[at] = true
		}
		t.Run(field.Name, func(t *testing.T) {
			t.Parallel()
			effect(t, newEnvironment(t))
		})
	}
	for name := range effects {
		if _, ok := reflect.TypeFor[Config]().FieldByName(name); !ok {
			t.Errorf("effects has %s, which Config has not", name)
		}
	}
}

func kubernetesHasItsEffect(t *testing.T, e *environment) {
	config := e.config(t, "a")
	right, both, none := filepath.Join(t.TempDir(), "right"), filepath.Join(t.TempDir(), "both"), filepath.Join(t.TempDir(), "none")
	if err := cluster.WriteKubeconfig(right, config.RESTConfig, ""); err != nil {
		t.Fatal(err)
	}
	file, err := clientcmd.LoadFromFile(right)
	if err != nil {
		t.Fatal(err)
	}
	file.Contexts["the-right-one"] = file.Contexts[file.CurrentContext]
	file.Clusters["dead"] = &api.Cluster{Server: "http://127.0.0.1:1"}
	file.Contexts["dead"] = &api.Context{Cluster: "dead"}
	file.CurrentContext = "dead"
	if err := clientcmd.WriteToFile(*file, both); err != nil {
		t.Fatal(err)
	}
	config.RESTConfig = nil
	for _, source := range []kube.Source{
		{Path: right, List: none}, {Path: both, Context: "the-right-one"}, {List: none + ":" + right},
	} {
		config.Kubernetes = source
		r := start(t, config, newController().rows())
		r.leads(t)
		if err := r.end(); err != nil {
			t.Errorf("%+v: %v", source, err)
		}
	}
}

func restConfigHasItsEffect(t *testing.T, e *environment) {
	config := e.config(t, "a")
	config.Kubernetes = kube.Source{Path: "/no/such/file"}
	start(t, config, newController().rows()).leads(t)
}

// limitHasItsEffect: the work's requests take as long as the limit says, and the election's
// do not wait for it.
func limitHasItsEffect(t *testing.T, e *environment) {
	config := e.config(t, "a")
	var sent requests
	sent.through(config.RESTConfig)
	config.QPS, config.Burst = 0.01, 1
	slow := start(t, config, newController().rows())
	slow.leads(t)
	// One request in 100 s is the work's; what keeps the process informed does not count.
	await(t, "what is not work is not limited", func() bool {
		events, err := e.admin.Kube().CoreV1().Events(e.home).List(t.Context(), metav1.ListOptions{})
		code, _ := slow.page(t, "/readyz")
		return err == nil && len(events.Items) > 0 && code == http.StatusOK
	})
	if err := slow.end(); err != nil {
		t.Error(err)
	}
	const writes, qps, burst = 7, 2, 3
	config.QPS, config.Burst = qps, burst
	c := newController()
	r := start(t, config, c.rows())
	r.leads(t)
	began := time.Now()
	for n := range writes {
		if err := c.write(t.Context(), e.home, fmt.Sprint("written-", n)); err != nil {
			t.Fatal(err)
		}
	}
	// More than that it may take, on a slow machine; less it cannot.
	if took, least := time.Since(began), (writes-burst)*time.Second/qps; took < least {
		t.Errorf("%d writes took %v, less than %v", writes, took, least)
	}
	for _, r := range sent.that(func(*http.Request) bool { return true }) {
		if agent := r.Header.Get("User-Agent"); agent != userAgent {
			t.Errorf("%s %s was sent by %q", r.Method, r.URL.Path, agent)
			break
		}
	}
}

func lockSaysWhoAndWhere(t *testing.T, e *environment) {
	config := e.config(t, "a-replica")
	config.Revision = "a-revision"
	start(t, config, newController().rows()).leads(t)
	record, _ := e.configMapRecord(t)
	if record.HolderIdentity != "a-replica" || record.HolderKey != "a-revision" {
		t.Errorf("the lock names %+v", record)
	}
	all, err := e.admin.Kube().CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + electionID})
	if err != nil {
		t.Fatal(err)
	}
	here := 0
	for _, lock := range all.Items {
		if strings.Contains(fmt.Sprint(lock.Annotations), `"a-replica"`) {
			here++
			if lock.Namespace != e.home {
				t.Errorf("the lock lies in %s", lock.Namespace)
			}
		}
	}
	if here != 1 {
		t.Errorf("%d locks name it", here)
	}
}

func clusterIDHasItsEffect(t *testing.T, e *environment) {
	config := e.config(t, "a")
	config.ClusterID = "the-cluster"
	if r := start(t, config, newController().rows()); r.lines.Count("msg=server ", "cluster=the-cluster") != 1 {
		t.Error("the log does not name the cluster")
	}
}

func addressHasItsEffect(t *testing.T, e *environment) {
	config := e.config(t, "a")
	config.Address = "127.0.0.3:0"
	r := start(t, config, newController().rows())
	if code, _ := r.page(t, "/healthz"); code != http.StatusOK || !strings.HasPrefix(r.Address(), "127.0.0.3:") {
		t.Errorf("%s answers %d", r.Address(), code)
	}
}

// bundleHasItsEffect runs the server's own table.
func bundleHasItsEffect(t *testing.T, e *environment) {
	config := e.config(t, "a")
	config.CABundle = "testdata/ca.pem"
	without, err := e.cluster.NewNamespace(t.Context(), "without")
	if err != nil {
		t.Fatal(err)
	}
	config.ExcludedNamespaces = []string{without}
	start(t, config, table[:1]).leads(t)
	content := readFile(t, config.CABundle)
	for range 3 { // whose turn comes after the one's without
		with, err := e.cluster.NewNamespace(t.Context(), "with")
		if err != nil {
			t.Fatal(err)
		}
		await(t, "the bundle is there", func() bool {
			cm, err := e.admin.Kube().CoreV1().ConfigMaps(with).Get(t.Context(), namespace.ConfigMapName, metav1.GetOptions{})
			return err == nil && cm.Data[namespace.BundleKey] == content
		})
	}
	if _, err := e.admin.Kube().CoreV1().ConfigMaps(without).Get(t.Context(), namespace.ConfigMapName, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the bundle of an excluded namespace: %v", err)
	}
}

func lockHasItsEffect(t *testing.T, e *environment) {
	for lock, want := range map[string][2]bool{"": {true, false}, "configmap": {true, false}, "lease": {false, true}, "multi": {true, true}} {
		at := newEnvironment(t)
		config := at.config(t, "a")
		config.Lock = lock
		start(t, config, newController().rows()).leads(t)
		_, noConfigMap := at.admin.Kube().CoreV1().ConfigMaps(at.home).Get(t.Context(), electionID, metav1.GetOptions{})
		_, noLease := at.admin.Kube().CoordinationV1().Leases(at.home).Get(t.Context(), electionID, metav1.GetOptions{})
		if got := [2]bool{noConfigMap == nil, noLease == nil}; got != want {
			t.Errorf("Lock %q: there is a ConfigMap, a Lease: %v", lock, got)
		}
	}
}

func timingHasItsEffect(t *testing.T, e *environment) {
	config := e.config(t, "a")
	config.LeaseDuration, config.RenewDeadline, config.RetryPeriod = 50*time.Second, 35*time.Second, time.Second
	r := start(t, config, newController().rows())
	r.leads(t)
	record, _ := e.configMapRecord(t)
	if record.LeaseDurationSeconds != 50 {
		t.Errorf("the lease is of %d s", record.LeaseDurationSeconds)
	}
	// It is what is left of RenewDeadline since the last renewal, each second anew: more than
	// any other duration could give.
	sample := fmt.Sprintf("incumbent_election_cover_left_seconds{name=%q}", electionID)
	await(t, "the cover is RenewDeadline", func() bool {
		left, err := strconv.ParseFloat(r.metric(t, sample), 64)
		return err == nil && left > 30 && left <= 35
	})
	// By default it would be renewed each 7.5 s. The first time may come at once.
	before, brisk := record.RenewTime, 0
	await(t, "it renews each RetryPeriod", func() bool {
		record, _ := e.configMapRecord(t)
		if apart := record.RenewTime.Sub(before.Time); apart > 0 && apart < 6*time.Second {
			brisk++
		}
		before = record.RenewTime
		return brisk == 4
	})
}

func disableElectionsHasItsEffect(t *testing.T, e *environment) {
	config := e.config(t, "a")
	var sent requests
	sent.through(config.RESTConfig)
	config.DisableElections = true
	for range 2 { // both work, beside each other
		c := newController()
		r := start(t, config, c.rows())
		<-c.began
		if err := c.write(t.Context(), "default", "x"); err != nil && !apierrors.IsForbidden(err) && !apierrors.IsAlreadyExists(err) {
			t.Errorf("what works cannot write: %v", err)
		}
		if now := r.election(t); !now.Leading || now.Phase != "disabled" {
			t.Errorf("it says %+v", now)
		}
	}
	if locks := sent.that(func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/"+electionID) }); len(locks) > 0 {
		t.Errorf("%d requests for the lock", len(locks))
	}
}

// gateHasItsEffect: what a controller writes passes the gate of its election, and without
// the gate does not.
func gateHasItsEffect(t *testing.T, e *environment) {
	leading := newController()
	a := start(t, e.config(t, "a"), leading.rows())
	a.leads(t)
	admitted := fmt.Sprintf("incumbent_election_admitted_writes_total{name=%q}", electionID)
	none := a.metric(t, admitted)
	if err := leading.write(t.Context(), e.home, "by-a"); err != nil {
		t.Errorf("the leader: %v", err)
	}
	if one := a.metric(t, admitted); none != "0" || one != "1" {
		t.Errorf("admitted by the gate: %s, then %s", none, one)
	}
	var sent requests
	config := e.config(t, "b")
	sent.through(config.RESTConfig)
	following := newController()
	b := start(t, config, following.rows())
	await(t, "b follows", func() bool { return b.election(t).LeaderIdentity == "a" })
	refused := fmt.Sprintf("incumbent_election_refused_writes_total{by=\"gate\",name=%q}", electionID)
	before := b.metric(t, refused)
	if err := following.write(t.Context(), e.home, "by-b"); !errors.Is(err, fence.ErrNotLeader) {
		t.Errorf("the follower: %v", err)
	}
	if n := sent.that(func(r *http.Request) bool {
		return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/configmaps")
	}); len(n) > 0 {
		t.Errorf("%d of a follower's writes were sent", len(n))
	}
	if after := b.metric(t, refused); before != "0" || after != "1" {
		t.Errorf("refused by the gate: %s, then %s", before, after)
	}
	if err := a.end(); err != nil {
		t.Error(err)
	}
	if err := leading.write(t.Context(), e.home, "later"); !errors.Is(err, fence.ErrNotLeader) {
		t.Errorf("one that has ended: %v", err)
	}
	b.leads(t)
	open := newController()
	config = e.config(t, "c")
	config.DisableGate = true
	c := start(t, config, open.rows())
	await(t, "c follows", func() bool { return c.election(t).LeaderIdentity == "b" })
	if err := open.write(t.Context(), e.home, "by-c"); err != nil {
		t.Errorf("a follower without a gate: %v", err)
	}
}

func profilingHasItsEffect(t *testing.T, e *environment) {
	for _, on := range []bool{false, true} {
		config := e.config(t, fmt.Sprint("profiling-", on))
		config.Profiling = on
		r := start(t, config, newController().rows())
		want := map[bool]int{false: http.StatusNotFound, true: http.StatusOK}[on]
		for _, path := range []string{"", "cmdline", "goroutine?debug=1", "symbol", "trace?seconds=0.01", "profile?seconds=1"} {
			if code, _ := r.page(t, "/debug/pprof/"+path); code != want {
				t.Errorf("profiling %v: %s answers %d", on, path, code)
			}
		}
		if _, text := r.page(t, "/"); strings.Contains(text, "/debug/pprof/") != on {
			t.Errorf("profiling %v, and the index says\n%s", on, text)
		}
	}
}

func loggerHasItsEffect(t *testing.T, e *environment) {
	config := e.config(t, "a")
	text := &harness.Log{}
	config.Logger = slog.New(slog.NewTextHandler(text, nil))
	r := start(t, config, newController().rows())
	r.leads(t)
	if err := r.end(); err != nil {
		t.Error(err)
	}
	for _, words := range [][]string{{"run function started", "election=" + electionID}, {"run function ended"}, {"election phase changed"}, {"server has ended"}} {
		if text.Count(words...) == 0 {
			t.Errorf("no line of %q in\n%s", words, text)
		}
	}
}
