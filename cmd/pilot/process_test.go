package main

import (
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"go.opencensus.io/stats/view"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/bootstrap"
	"incumbent.dev/incumbent/pilot/bootstrap/manifests"
	"incumbent.dev/incumbent/tests/cluster"
)

const (
	// asProgram has the test's binary be pilot: what runs then is main.
	asProgram = "RUN_AS_PILOT"
	// bundleName and bundleKey are where Pods look for the bundle.
	bundleName, bundleKey = "istio-ca-root-cert", "root-cert.pem"
	// patience bounds every wait; none is expected to come near.
	patience = time.Minute
	// longLease is that of tests in which no lease runs out: whoever gets a lock was let to.
	longLease = 10 * time.Minute
)

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	// istio.io/pkg/log starts OpenCensus' worker when it is imported.
	view.Stop()
	cluster.Main(m, cluster.Options{WithoutControllers: true})
}

// identity is a Pod's, with the manifests' rights.
func identity(t *testing.T, home, pod string) *rest.Config {
	t.Helper()
	return identityFor(t, bootstrap.Config{}, home, pod)
}

// identityFor has the rights that a configuration needs.
func identityFor(t *testing.T, config bootstrap.Config, home, pod string) *rest.Config {
	t.Helper()
	rights := bootstrap.Rights(config)
	return cluster.Shared(t).Identity(t, cluster.IdentityOptions{
		Namespace: home, PodName: pod, ServiceAccount: "pilot-" + cmp.Or(config.Revision, "default"), Rules: manifests.NamespaceRules(rights), ClusterRules: manifests.ClusterRules(rights),
	})
}

// kubeconfig writes one, and returns its path.
func kubeconfig(t *testing.T, config *rest.Config) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := cluster.WriteKubeconfig(path, config, ""); err != nil {
		t.Fatal(err)
	}
	return path
}

// newNamespaces makes some.
func newNamespaces(t *testing.T, prefix string, n int) []string {
	t.Helper()
	var names []string
	for range n {
		name, err := cluster.Shared(t).NewNamespace(t.Context(), prefix)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	return names
}

// bundle is a file with a CA's certificate, and what is in it.
func bundle(t *testing.T) (file, content string) {
	t.Helper()
	text := harness.CA(t)
	file = filepath.Join(t.TempDir(), bundleKey)
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file, string(text)
}

// carries reports whether a namespace has the bundle.
func carries(t *testing.T, client kubernetes.Interface, name, content string) bool {
	t.Helper()
	cm, err := client.CoreV1().ConfigMaps(name).Get(t.Context(), bundleName, metav1.GetOptions{})
	return err == nil && cm.Data[bundleKey] == content
}

// await looks again and again until something holds.
var await = harness.Until

// process is pilot, as a process of its own.
type process struct {
	*harness.Process
	began   time.Time
	logFile string // where it logs, if not to its standard output
}

// launch starts pilot with arguments and with an environment that is all it has.
func launch(t *testing.T, name string, env []string, args ...string) *process {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	return &process{began: began, Process: harness.Start(t, name, append([]string{asProgram + "=1"}, env...), path, args...)}
}

// log is what it has logged so far.
func (p *process) log() string {
	if p.logFile == "" {
		return p.Out.String()
	}
	content, err := os.ReadFile(p.logFile)
	if err != nil {
		return ""
	}
	return string(content)
}

var addressField = regexp.MustCompile(`"?address"?[=:]"?([0-9.]+:[0-9]+)`)

// address is where it serves, "" until it does.
func (p *process) address() string {
	if found := addressField.FindStringSubmatch(p.log()); found != nil {
		return found[1]
	}
	return ""
}

// page is what it answers, 0 while it does not, and metric a sample.
func (p *process) page(t *testing.T, path string) (int, string) {
	t.Helper()
	return harness.Page(t, p.address(), path)
}

func (p *process) metric(t *testing.T, sample string) string {
	t.Helper()
	return harness.Metric(t, p.address(), sample)
}

// election is one that it takes part in.
type election struct {
	Phase, LockType, Identity, Key, Cluster string
	Leading                                 bool
}

// elections are all that it takes part in, none while it does not answer.
func (p *process) elections(t *testing.T) (all []election) {
	t.Helper()
	if _, page := p.page(t, "/debug/elections"); json.Unmarshal([]byte(page), &all) != nil {
		return nil
	}
	return all
}

// election is the first of them.
func (p *process) election(t *testing.T) (e election) {
	t.Helper()
	if all := p.elections(t); len(all) > 0 {
		return all[0]
	}
	return e
}

func (p *process) leads(t *testing.T) {
	t.Helper()
	await(t, p.Name+" leads", func() bool { return p.election(t).Leading })
}

func adminConfig(t *testing.T) *rest.Config {
	t.Helper()
	return cluster.Shared(t).Admin()
}
