package main

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"incumbent.dev/incumbent/pilot/bootstrap"
	"incumbent.dev/incumbent/pkg/features"
	"incumbent.dev/incumbent/tests/cluster"
)

// world is two servers on a real API server. All that can be said to one by a flag was said
// to byFlag, while its environment says something else; byEnv was told by its environment.
type world struct {
	admin         kubernetes.Interface
	byFlag, byEnv *process
	front         *front
	flags, env    map[string]string
	content       string
	// limited are namespaces that byFlag alone has to write into, so that it takes its
	// time; ours is byEnv's; none of them writes into spared.
	limited      []string
	ours, spared string
}

const (
	limitQPS, limitBurst = 1, 2
	limitedNamespaces    = 8
)

func newWorld(t *testing.T) *world {
	w := &world{admin: cluster.Shared(t).Client(t).Kube(), front: newFront(t, nil), limited: newNamespaces(t, "limited", limitedNamespaces)}
	w.ours, w.spared = newNamespaces(t, "ours", 1)[0], newNamespaces(t, "spared", 1)[0]
	file, content := bundle(t)
	w.content = content
	home, other := newNamespaces(t, "by-flag", 1)[0], newNamespaces(t, "by-env", 1)[0]
	w.flags = map[string]string{
		"kubeconfig": filepath.Join(t.TempDir(), "two-contexts"), "context": "the-right-one",
		"kube-qps": fmt.Sprint(limitQPS), "kube-burst": fmt.Sprint(limitBurst),
		"remote-kubeconfig": kubeconfig(t, &rest.Config{Host: newRemote(t)}),
		"namespace":         home, "identity": "flag-pod", "revision": "flag-revision", "cluster-id": "flag-cluster",
		"address": "127.0.0.5:0", "debug-address": "127.0.0.6:0", "pprof": "true", "ca-bundle": file, "excluded-namespaces": w.ours + "," + w.spared,
		"ingress-controller-mode": "default", "ingress-class": "flag-class", "ingress-service": "flag-gateway",
		"lock": "lease", "lease-duration": "50s", "renew-deadline": "35s", "retry-period": "1s", "shutdown-timeout": "30s",
		"log-level": "info,pilot:debug", "log-as-json": "true", "log-target": filepath.Join(t.TempDir(), "log"),
	}
	w.env = map[string]string{
		"POD_NAMESPACE": other, "POD_NAME": "env-pod", "REVISION": "env-revision", "CLUSTER_ID": "env-cluster",
		"KUBECONFIG":           kubeconfig(t, identityFor(t, bootstrap.Config{Revision: "env-revision"}, other, "env-pod")),
		"LEADER_ELECTION_LOCK": "multi", "LEADER_ELECTION_LEASE_DURATION": "70s", "LEADER_ELECTION_RENEW_DEADLINE": "55s", "LEADER_ELECTION_RETRY_PERIOD": "2s",
		"ENABLE_WRITE_GATE": "false", "ENABLE_WRITE_FENCE": "true", "ENABLE_LEADER_ELECTION": "true",
		"PILOT_ENABLE_GATEWAY_API": "false", // others try what it does
	}
	w.twoContexts(t, home)
	decoys := maps.Clone(w.env)
	delete(decoys, "ENABLE_WRITE_GATE") // which no flag takes back
	w.byFlag = launch(t, "by flags", pairs("", decoys), append([]string{"server"}, pairs("--", w.flags)...)...)
	w.byFlag.logFile = w.flags["log-target"]
	w.byEnv = launch(t, "by environment", pairs("", w.env), "server", "--address=127.0.0.1:0", "--debug-address=", "--ca-bundle="+file,
		"--excluded-namespaces="+strings.Join(append(w.limited, w.spared), ","))
	return w
}

// twoContexts writes byFlag's kubeconfig, whose own context leads nowhere.
func (w *world) twoContexts(t *testing.T, home string) {
	t.Helper()
	rights := bootstrap.Config{IngressService: w.flags["ingress-service"], Revision: w.flags["revision"]}
	right := kubeconfig(t, w.front.before(identityFor(t, rights, home, w.flags["identity"])))
	file, err := clientcmd.LoadFromFile(right)
	if err != nil {
		t.Fatal(err)
	}
	file.Contexts[w.flags["context"]] = file.Contexts[file.CurrentContext]
	file.Clusters["dead"], file.Contexts["dead"] = &api.Cluster{Server: "http://127.0.0.1:1"}, &api.Context{Cluster: "dead"}
	file.CurrentContext = "dead"
	if err := clientcmd.WriteToFile(*file, w.flags["kubeconfig"]); err != nil {
		t.Fatal(err)
	}
}

func pairs(prefix string, values map[string]string) (all []string) {
	for name, value := range values {
		all = append(all, prefix+name+"="+value)
	}
	return all
}

// namespaceElection is the name of the election whose controller spreads the bundle.
func namespaceElection(t *testing.T) string {
	t.Helper()
	shared, _ := bootstrap.Elections(bootstrap.Config{})
	return shared[0]
}

// lease is the lock of one that elects by Lease.
func (w *world) lease(t *testing.T, home string) *coordinationv1.Lease {
	t.Helper()
	locks, _ := bootstrap.Elections(bootstrap.Config{})
	lease, err := w.admin.CoordinationV1().Leases(home).Get(t.Context(), locks[0], metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

func (w *world) flagLease(t *testing.T) *coordinationv1.Lease {
	return w.lease(t, w.flags["namespace"])
}

func (w *world) envLease(t *testing.T) *coordinationv1.Lease {
	return w.lease(t, w.env["POD_NAMESPACE"])
}

// leads: that it does is the effect of how it finds the API server.
func leads(p func(*world) *process) func(*testing.T, *world) {
	return func(t *testing.T, w *world) { p(w).leads(t) }
}

func byFlag(w *world) *process { return w.byFlag }
func byEnv(w *world) *process  { return w.byEnv }

// logged: the server's first line says it.
func logged(p func(*world) *process, word string) func(*testing.T, *world) {
	return func(t *testing.T, w *world) {
		for line := range strings.Lines(p(w).log()) {
			if strings.Contains(line, "server") && strings.Contains(line, word) {
				return
			}
		}
		t.Errorf("no line of the log says %s", word)
	}
}

// covered: what is left of the cover right after a renewal is more than any other duration.
func covered(p func(*world) *process, least, most float64) func(*testing.T, *world) {
	return func(t *testing.T, w *world) {
		await(t, "the cover is as long as the renew deadline", func() bool {
			left, err := strconv.ParseFloat(p(w).metric(t, "incumbent_election_cover_left_seconds"), 64)
			return err == nil && left > least && left <= most
		})
	}
}

// renewed: several times in a row sooner than by default.
func renewed(lease func(*world, *testing.T) *coordinationv1.Lease, sooner time.Duration) func(*testing.T, *world) {
	return func(t *testing.T, w *world) {
		before, brisk := lease(w, t).Spec.RenewTime.Time, 0
		await(t, "it is renewed again and again", func() bool {
			now := lease(w, t).Spec.RenewTime.Time
			if apart := now.Sub(before); apart > 0 && apart < sooner {
				brisk++
			}
			before = now
			return brisk == 3
		})
	}
}

// effects are what each flag and variable does. One that is not here fails the test.
var effects = map[string]func(t *testing.T, w *world){
	"server --kubeconfig": leads(byFlag),
	"server --context":    leads(byFlag),
	"server --kube-qps":   limited,
	"server --kube-burst": limited,
	"server --namespace":  func(t *testing.T, w *world) { w.flagLease(t) },
	"server --identity": func(t *testing.T, w *world) {
		if holder := *w.flagLease(t).Spec.HolderIdentity; holder != "flag-pod" {
			t.Errorf("the holder is %s", holder)
		}
	},
	"server --revision":                keyIs((*world).flagLease, "flag-revision"),
	"server --cluster-id":              logged(byFlag, "flag-cluster"),
	"server --remote-kubeconfig":       visits,
	"server --address":                 servesAt("127.0.0.5:"),
	"server --debug-address":           showsAt("127.0.0.6:"),
	"server --pprof":                   profiles,
	"server --ca-bundle":               spreads,
	"server --excluded-namespaces":     spreads,
	"server --ingress-controller-mode": ingresses,
	"server --ingress-class":           ingresses,
	"server --ingress-service":         ingresses,
	"server --lock":                    lockKind(byFlag, "lease", false),
	"server --election-strategy":       coordinates(true),
	"ELECTION_STRATEGY":                coordinatesByVariables,
	"ENABLE_COORDINATOR":               coordinatesByVariables,
	"ENABLE_OLDEST_EMULATION_VERSION":  coordinatesByVariables,
	"EMULATION_VERSION":                coordinatesByVariables,
	"POD_UID":                          coordinatesByVariables,
	"ENABLE_MEMBER_LEASE":              publishesNothing,
	"server --lease-duration":          leaseOf((*world).flagLease, 50),
	"server --renew-deadline":          covered(byFlag, 30, 35),
	"server --retry-period":            renewed((*world).flagLease, 1900*time.Millisecond),
	"server --shutdown-timeout":        stuckProcessEnds,
	"server --log-level": func(t *testing.T, w *world) {
		if !strings.Contains(w.byFlag.log(), `"level":"debug"`) || strings.Contains(w.byEnv.log(), "\tdebug\t") {
			t.Error("lines of debug are to be in the one log, and not in the other")
		}
	},
	"server --log-as-json": func(t *testing.T, w *world) {
		if log := w.byFlag.log(); !strings.HasPrefix(log, `{"level":`) {
			t.Errorf("the log is\n%s", log)
		}
	},
	"server --log-target": func(t *testing.T, w *world) {
		if out := w.byFlag.Out.String(); out != "" {
			t.Errorf("it logs to its standard output:\n%s", out)
		}
		if len(w.byFlag.log()) == 0 {
			t.Error("it does not log to its file")
		}
	},
	"version --output": func(t *testing.T, _ *world) { TestVersionIsTold(t) },

	"POD_NAMESPACE": func(t *testing.T, w *world) { w.envLease(t) },
	"POD_NAME": func(t *testing.T, w *world) {
		if holder := *w.envLease(t).Spec.HolderIdentity; holder != "env-pod" {
			t.Errorf("the holder is %s", holder)
		}
	},
	"REVISION":                       keyIs((*world).envLease, "env-revision"),
	"CLUSTER_ID":                     logged(byEnv, "env-cluster"),
	"KUBECONFIG":                     leads(byEnv),
	"LEADER_ELECTION_LOCK":           lockKind(byEnv, "multi", true),
	"LEADER_ELECTION_LEASE_DURATION": leaseOf((*world).envLease, 70),
	"LEADER_ELECTION_RENEW_DEADLINE": covered(byEnv, 51, 55),
	"LEADER_ELECTION_RETRY_PERIOD":   renewed((*world).envLease, 5*time.Second),
	"ENABLE_WRITE_GATE":              gate,
	"ENABLE_WRITE_FENCE": func(t *testing.T, w *world) {
		await(t, "the fence is tried", func() bool { return w.byEnv.metric(t, "incumbent_fence_checks_total") != "" })
	},
	"ENABLE_LEADER_ELECTION":                           withoutElections,
	"PILOT_ENABLE_GATEWAY_API":                         gatewayAPI,
	"PILOT_ENABLE_GATEWAY_API_STATUS":                  gatewaysWithout("STATUS"),
	"PILOT_ENABLE_GATEWAY_API_DEPLOYMENT_CONTROLLER":   gatewaysWithout("DEPLOYMENT_CONTROLLER"),
	"PILOT_ENABLE_GATEWAY_API_GATEWAYCLASS_CONTROLLER": gatewayClass,
}

func keyIs(lease func(*world, *testing.T) *coordinationv1.Lease, want string) func(*testing.T, *world) {
	return func(t *testing.T, w *world) {
		if key := lease(w, t).Annotations["leader.istio.io/holder-key"]; key != want {
			t.Errorf("the holder's key is %q", key)
		}
	}
}

func leaseOf(lease func(*world, *testing.T) *coordinationv1.Lease, want int32) func(*testing.T, *world) {
	return func(t *testing.T, w *world) {
		if seconds := *lease(w, t).Spec.LeaseDurationSeconds; seconds != want {
			t.Errorf("the lease is of %d s", seconds)
		}
	}
}

func lockKind(p func(*world) *process, kind string, configMap bool) func(*testing.T, *world) {
	return func(t *testing.T, w *world) {
		home := w.flags["namespace"]
		if p(w) == w.byEnv {
			home = w.env["POD_NAMESPACE"]
		}
		w.lease(t, home)
		locks, _ := bootstrap.Elections(bootstrap.Config{})
		_, err := w.admin.CoreV1().ConfigMaps(home).Get(t.Context(), locks[0], metav1.GetOptions{})
		if now := p(w).election(t); (err == nil) != configMap || now.LockType != kind {
			t.Errorf("it says %q, and the ConfigMap: %v", now.LockType, err)
		}
	}
}

func servesAt(host string) func(*testing.T, *world) {
	return func(t *testing.T, w *world) {
		if code, _ := w.byFlag.page(t, "/readyz"); !strings.HasPrefix(w.byFlag.address(), host) || code != http.StatusOK {
			t.Errorf("%s answers %d", w.byFlag.address(), code)
		}
	}
}

func profiles(t *testing.T, w *world) {
	with, _ := w.byFlag.page(t, "/debug/pprof/goroutine")
	without, _ := w.byEnv.page(t, "/debug/pprof/goroutine")
	if with != http.StatusOK || without != http.StatusNotFound {
		t.Errorf("with --pprof %d, without %d", with, without)
	}
}

// limited: what the controller asks for takes at least as long as the limit says. On a slow
// machine it takes longer.
func limited(t *testing.T, w *world) {
	done := 0
	for _, name := range w.limited {
		await(t, "the bundle is there", func() bool { return carries(t, w.admin, name, w.content) })
		done++
	}
	asked := w.front.work(w.flags["namespace"])
	least := time.Duration(len(asked)-limitBurst) * time.Second / limitQPS
	if took := asked[len(asked)-1].at.Sub(w.byFlag.began); took < least || len(asked) < done {
		t.Errorf("%d requests after %v, not before %v", len(asked), took, least)
	}
}

func spreads(t *testing.T, w *world) {
	for _, name := range append([]string{w.ours}, w.limited...) {
		await(t, "the bundle is there", func() bool { return carries(t, w.admin, name, w.content) })
	}
	if carries(t, w.admin, w.spared, w.content) {
		t.Error("an excluded namespace has the bundle")
	}
}

// gate: what is written without it does not pass it.
func gate(t *testing.T, w *world) {
	await(t, "both have written", func() bool {
		return carries(t, w.admin, w.ours, w.content) && carries(t, w.admin, w.limited[0], w.content)
	})
	admitted := fmt.Sprintf("incumbent_election_admitted_writes_total{name=%q}", namespaceElection(t))
	if with, without := w.byFlag.metric(t, admitted), w.byEnv.metric(t, admitted); with == "0" || with == "" || without != "0" {
		t.Errorf("with a gate it has admitted %q writes, without %q", with, without)
	}
}

// withoutElections has a server of its own.
func withoutElections(t *testing.T, w *world) {
	home := newNamespaces(t, "without", 1)[0]
	file := filepath.Join(t.TempDir(), "no-bundle")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p := launch(t, "without elections", []string{"ENABLE_LEADER_ELECTION=false", "POD_NAME=a"},
		"server", "--kubeconfig="+kubeconfig(t, identity(t, home, "a")), "--namespace="+home, "--address=127.0.0.1:0", "--ca-bundle="+file)
	await(t, "it works at once", func() bool { now := p.election(t); return now.Leading && now.Phase == "disabled" })
	locks, _ := bootstrap.Elections(bootstrap.Config{})
	if _, err := w.admin.CoreV1().ConfigMaps(home).Get(t.Context(), locks[0], metav1.GetOptions{}); err == nil {
		t.Error("there is a lock")
	}
}

func TestEveryFlagAndVariableHasItsEffect(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	for _, variable := range features.List() {
		known[variable.Name] = true
	}
	for _, command := range command(programs{}).Commands() {
		if command.Name() == "fence" {
			continue // TestEveryFlagOfTheFenceHasItsEffect
		}
		each(command, func(f *pflag.Flag) { known[command.Name()+" --"+f.Name] = true })
	}
	for name := range known {
		if effects[name] == nil {
			t.Errorf("nobody tries what %s does: give it an entry in effects", name)
		}
	}
	for name := range effects {
		if !known[name] {
			t.Errorf("effects has %s, which pilot has not", name)
		}
	}
	cluster.Shared(t)
	w := newWorld(t)
	w.byEnv.leads(t)
	w.byFlag.leads(t)
	t.Run("each", func(t *testing.T) {
		for name, effect := range effects {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				effect(t, w)
			})
		}
	})
}

// each goes through a command's flags, cobra's own aside.
func each(command *cobra.Command, do func(*pflag.Flag)) {
	command.InitDefaultHelpFlag()
	command.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Name != "help" {
			do(f)
		}
	})
	command.PersistentFlags().VisitAll(do)
}
