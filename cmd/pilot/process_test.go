package main

import (
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.opencensus.io/stats/view"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/bootstrap"
	"incumbent.dev/incumbent/pilot/bootstrap/manifests"
	"incumbent.dev/incumbent/tests/cluster"
)

const (
	// asProgram makes the test binary run main.
	asProgram = "RUN_AS_PILOT"
	// patience bounds every wait. It is far below the lease: a process that ends within it did not wait for an expiry.
	patience = harness.Patience
)

var await = harness.Until

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	view.Stop() // istio.io/pkg/log starts OpenCensus' worker when it is imported
	cluster.Main(m, cluster.Options{WithoutControllers: true})
}

// identity returns the client configuration of a Pod with the rights of the manifests.
func identity(t *testing.T, home, pod string) *rest.Config {
	t.Helper()
	rights := bootstrap.Rights(bootstrap.Config{})
	return cluster.Shared(t).Identity(t, cluster.IdentityOptions{
		Namespace: home, PodName: pod, ServiceAccount: "pilot-default", Rules: manifests.NamespaceRules(rights), ClusterRules: manifests.ClusterRules(rights),
	})
}

func kubeconfig(t *testing.T, config *rest.Config) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := cluster.WriteKubeconfig(path, config, ""); err != nil {
		t.Fatal(err)
	}
	return path
}

// bundle writes a file for --ca-bundle. With an empty file a server leads and writes nothing.
func bundle(t *testing.T, content []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "root-cert.pem")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return "--ca-bundle=" + file
}

// process is a running pilot.
type process struct{ *harness.Process }

// launch starts pilot with the given environment only.
func launch(t *testing.T, name string, env []string, args ...string) *process {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
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
		var all []struct{ Leading bool }
		_, page := p.page(t, "/debug/elections")
		return json.Unmarshal([]byte(page), &all) == nil && len(all) > 0 && all[0].Leading &&
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
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(object.Annotations["control-plane.alpha.kubernetes.io/leader"]), &l); err != nil {
		t.Fatal(err)
	}
	l.marker = object.Annotations["incumbent.dev/leader"]
	return l
}

func TestSignal_ReleasesLock(t *testing.T) {
	t.Parallel()
	for name, signal := range map[string]os.Signal{"SIGTERM": syscall.SIGTERM, "SIGINT": os.Interrupt} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			home := cluster.Shared(t).Namespace(t)
			p := launchServer(t, identity(t, home, "a"), home, bundle(t, nil))
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
	config, file := identity(t, home, "a"), bundle(t, nil)
	p := launchServer(t, config, home, file)
	p.leads(t)
	before := readLock(t, home)
	children, err := harness.Children(p.PID())
	if err != nil {
		t.Fatal(err)
	}
	for _, child := range children {
		if err := syscall.Kill(child, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	if code := p.Exit(t); code != -int(syscall.SIGKILL) {
		t.Errorf("the parent ended with %d", code)
	}
	if after := readLock(t, home); after != (lock{LeaseDurationSeconds: 1, LeaderTransitions: before.LeaderTransitions}) {
		t.Errorf("the lock was not released: %+v", after)
	}
	inOrder(t, p.Out.String(), "run function started", "released the lock of a process that has ended", "holder-died")
	// The next leader serves the metrics of the release.
	p = launchServer(t, config, home, file)
	p.leads(t)
	for _, metric := range []string{"witness_releases_total", "witness_release_seconds_count"} {
		metric = `incumbent_election_` + metric + `{name="` + firstElection() + `"} 1`
		await(t, metric, func() bool {
			_, page := p.page(t, "/metrics")
			return strings.Contains(page, metric)
		})
	}
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

// stuck starts a leader whose first write of the CA bundle gets no reply, so its controller does not end.
func stuck(t *testing.T, args ...string) *process {
	t.Helper()
	admin := cluster.Shared(t).Admin()
	target, err := url.Parse(admin.Host)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(rest.AnonymousClientConfig(admin))
	if err != nil {
		t.Fatal(err)
	}
	home := cluster.Shared(t).Namespace(t)
	config := identity(t, home, "a")
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Header.Set("Authorization", "Bearer "+config.BearerToken) // clients send no token without TLS
		},
		Transport: transport, FlushInterval: -1, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	held := make(chan struct{}, 1000)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/configmaps") {
			held <- struct{}{}
			_, _ = io.Copy(io.Discard, r.Body) // otherwise the end of the connection is not detected
			<-r.Context().Done()
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	front := rest.CopyConfig(config)
	front.Host = server.URL
	front.TLSClientConfig = rest.TLSClientConfig{}
	p := launchServer(t, front, home, append(args, "--lock=lease", bundle(t, harness.CA(t)))...)
	p.leads(t)
	select {
	case <-held:
	case <-time.After(patience):
		t.Fatal("no write was sent")
	}
	return p
}

// TestStuckController_ExitsWith3 shows that the process ends although its controller does not. Only the witness may release the lock.
func TestStuckController_ExitsWith3(t *testing.T) {
	t.Parallel()
	p := stuck(t, "--shutdown-timeout=1s")
	sent := time.Now()
	p.Signal(t, syscall.SIGTERM)
	if code := p.Exit(t); code != 3 {
		t.Errorf("exit code %d", code)
	}
	if took := time.Since(sent); took < time.Second {
		t.Errorf("it ended after %v", took)
	}
	if log := p.Out.String(); !strings.Contains(log, "within their limit") || strings.Contains(log, "server stopped") {
		t.Error("the log does not contain the cause")
	}
}

func TestSecondSignalKills(t *testing.T) {
	t.Parallel()
	p := stuck(t, "--shutdown-timeout=10m")
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

func TestStartErrors_ExitWith1(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	config := "--kubeconfig=" + kubeconfig(t, identity(t, cluster.Shared(t).Namespace(t), "a"))
	for want, args := range map[string][]string{
		"listen on " + taken.Addr().String():                {"server", config, "--identity=a", "--ca-bundle=x", "--address=" + taken.Addr().String()},
		`pilot: unknown command "serve"`:                    {"serve"},
		"pilot: environment variable ENABLE_WRITE_GATE=\"x": {"server", "--ca-bundle=x"},
	} {
		var env []string
		if strings.Contains(want, "environment") {
			env = []string{"ENABLE_WRITE_GATE=x", "POD_NAME=a"}
		}
		p := launch(t, want, env, args...)
		code := p.Exit(t)
		if text := p.Errors.String(); code != 1 || !strings.Contains(text, want) || strings.Count(text, "pilot: ") != 1 || strings.Contains(text, "Usage:") {
			t.Errorf("%v: exit code %d:\n%s", args, code, text)
		}
	}
	if p := launch(t, "version", nil, "version"); p.Exit(t) != 0 || !strings.HasPrefix(p.Out.String(), "pilot ") {
		t.Errorf("pilot version: %s", &p.Out)
	}
}
