package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"go.opencensus.io/stats/view"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/inspect"
	"incumbent.dev/incumbent/internal/testutil/access"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/bootstrap"
	"incumbent.dev/incumbent/tests/cluster"
)

// asProgram makes the test binary run main, or a server that does not end.
const asProgram = "RUN_AS_PILOT"

var await = harness.Until

func TestMain(m *testing.M) {
	switch os.Getenv(asProgram) {
	case "1":
		main()
		return
	case "stuck":
		os.Exit(run(programs{serve: stuck}))
	}
	view.Stop() // istio.io/pkg/log starts OpenCensus' worker when it is imported
	cluster.Main(m, cluster.Options{WithoutControllers: true})
}

// identity returns the client configuration of a Pod with the permissions of the chart.
func identity(t *testing.T, home, pod string) *rest.Config {
	t.Helper()
	rules := access.Of(t, "defaults", home, "default")
	return cluster.Shared(t).Identity(t, cluster.IdentityOptions{
		Namespace: home, PodName: pod, ServiceAccount: "pilot-default", Rules: rules.Namespace, ClusterRules: rules.Cluster,
	})
}

func kubeconfig(t *testing.T, config *rest.Config) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	harness.Must(t, cluster.WriteKubeconfig(path, config, ""))
	return path
}

// emptyBundle is the flag for an empty file, with which a server leads and writes nothing.
func emptyBundle(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "root-cert.pem")
	harness.Must(t, os.WriteFile(file, nil, 0o600))
	return "--ca-bundle=" + file
}

// process is a running pilot.
type process struct{ *harness.Process }

// launch starts pilot with the given environment only.
func launch(t *testing.T, name string, env []string, args ...string) *process {
	t.Helper()
	path, err := os.Executable()
	harness.Must(t, err)
	return &process{harness.Start(t, name, append([]string{asProgram + "=1"}, env...), path, args...)}
}

// launchServer starts a server whose lease does not expire within a test.
func launchServer(t *testing.T, config *rest.Config, home string, args ...string) *process {
	t.Helper()
	env := []string{"POD_NAME=a", "POD_NAMESPACE=" + home, "KUBECONFIG=" + kubeconfig(t, config)}
	return launch(t, t.Name(), env, append([]string{
		"server", "--address=127.0.0.1:0", "--debug-address=", "--lease-duration=10m", "--renew-deadline=5m", "--retry-period=1s",
	}, args...)...)
}

var addressField = regexp.MustCompile(`address[=:]"?([0-9.]+:[0-9]+)|"address":"([0-9.]+:[0-9]+)"`)

func (p *process) page(t *testing.T, path string) (int, string) {
	t.Helper()
	found := addressField.FindStringSubmatch(p.Out.String())
	if found == nil {
		return 0, ""
	}
	return harness.Page(t, found[1]+found[2], path)
}

// leads waits until a run function of the first election runs.
func (p *process) leads(t *testing.T) {
	t.Helper()
	await(t, p.Name+" leads", func() bool {
		var all []inspect.Election
		_, page := p.page(t, "/debug/elections")
		return json.Unmarshal([]byte(page), &all) == nil && len(all) > 0 && all[0].Process.Leading &&
			p.Out.Count("run function started", firstElection()) > 0
	})
}

// firstElection returns the name of the first election of a server.
func firstElection() string {
	names, _ := bootstrap.Elections(bootstrap.Config{})
	return names[0]
}

// lock is a ConfigMap lock in wire format.
type lock struct {
	HolderIdentity                          string
	LeaseDurationSeconds, LeaderTransitions int
	marker                                  string
}

func readLock(t *testing.T, home string) (l lock) {
	t.Helper()
	object, err := cluster.Shared(t).Client(t).Kube().CoreV1().ConfigMaps(home).Get(t.Context(), firstElection(), metav1.GetOptions{})
	harness.Must(t, err)
	harness.Must(t, json.Unmarshal([]byte(object.Annotations["control-plane.alpha.kubernetes.io/leader"]), &l))
	l.marker = object.Annotations["incumbent.dev/leader"]
	return l
}

func TestSignal_ReleasesLock(t *testing.T) {
	t.Parallel()
	for name, signal := range map[string]os.Signal{"SIGTERM": syscall.SIGTERM, "SIGINT": os.Interrupt} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			home := cluster.Shared(t).Namespace(t)
			p := launchServer(t, identity(t, home, "a"), home, emptyBundle(t))
			p.leads(t)
			before := readLock(t, home)
			if before.HolderIdentity != "a" || !strings.HasPrefix(before.marker, "v1 a ") {
				t.Fatalf("the lock is %+v", before)
			}
			p.Signal(t, signal)
			if code := p.Exit(t); code != 0 {
				t.Errorf("exit code %d", code)
			}
			if after := readLock(t, home); after != (lock{LeaseDurationSeconds: 1, LeaderTransitions: before.LeaderTransitions}) {
				t.Errorf("the lock was not released: %+v", after)
			}
			inOrder(t, p.Out.String(), "run function started", "stopping", "run function ended", "server stopped")
			if p.Errors.String() != "" {
				t.Errorf("stderr:\n%s", &p.Errors)
			}
		})
	}
}

// The command is the parent of the server. It releases the lock of a server that was killed, and ends like the server.
func TestWitness_ReleasesAfterKill(t *testing.T) {
	t.Parallel()
	home := cluster.Shared(t).Namespace(t)
	p := launchServer(t, identity(t, home, "a"), home, emptyBundle(t))
	p.leads(t)
	before := readLock(t, home)
	children, err := harness.Children(p.PID())
	harness.Must(t, err)
	for _, child := range children {
		harness.Must(t, syscall.Kill(child, syscall.SIGKILL))
	}
	if code := p.Exit(t); code != -int(syscall.SIGKILL) {
		t.Errorf("the parent ended with %d", code)
	}
	if after := readLock(t, home); after != (lock{LeaseDurationSeconds: 1, LeaderTransitions: before.LeaderTransitions}) {
		t.Errorf("the lock was not released: %+v", after)
	}
	inOrder(t, p.Out.String(), "run function started", "released the lock of a process that has ended", "holder-died")
}

func inOrder(t *testing.T, log string, words ...string) {
	t.Helper()
	for _, word := range words {
		_, after, found := strings.Cut(log, word)
		if !found {
			t.Errorf("%q is missing or not in the order of %q", word, words)
			return
		}
		log = after
	}
}

// stuck is a server with a witness that does not end.
func stuck(ctx context.Context, config bootstrap.Config) error {
	if err := bootstrap.Supervise(config); err != nil {
		return err
	}
	fmt.Println("running")
	<-ctx.Done()
	fmt.Println("stopping")
	select {}
}

func TestSecondSignalKills(t *testing.T) {
	t.Parallel()
	p := launch(t, "stuck", []string{asProgram + "=stuck"}, "server", "--identity=a", "--ca-bundle=x")
	await(t, "it runs", func() bool { return strings.Contains(p.Out.String(), "running") })
	if children, err := harness.Children(p.PID()); err != nil || len(children) != 1 {
		t.Fatalf("the witness has the children %v (%v)", children, err)
	}
	p.Signal(t, syscall.SIGTERM)
	await(t, "it stops", func() bool { return strings.Contains(p.Out.String(), "stopping") })
	await(t, "it is killed", func() bool {
		_ = p.Send(syscall.SIGTERM) // repeatedly, because the handler of the first signal is removed a moment later
		select {
		case <-p.Ended():
			return true
		default:
			return false
		}
	})
	if code := p.Exit(t); code != -int(syscall.SIGTERM) {
		t.Errorf("exit code %d", code)
	}
}

func TestStartError_ExitsWith1(t *testing.T) {
	t.Parallel()
	p := launch(t, "error", nil, "serve")
	code := p.Exit(t)
	if text := p.Errors.String(); code != 1 || !strings.HasPrefix(text, `pilot: unknown command "serve"`) || strings.Count(text, "pilot: ") != 1 || strings.Contains(text, "Usage:") {
		t.Errorf("exit code %d:\n%s", code, text)
	}
	if p := launch(t, "version", nil, "version"); p.Exit(t) != 0 || !strings.HasPrefix(p.Out.String(), "pilot ") {
		t.Errorf("pilot version: %s", &p.Out)
	}
}
