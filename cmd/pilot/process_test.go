package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.opencensus.io/stats/view"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/pilot/bootstrap"
	"incumbent.dev/incumbent/pilot/bootstrap/manifests"
	"incumbent.dev/incumbent/pkg/kube"
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

// admin is a client that may do everything.
func admin(t *testing.T) kubernetes.Interface {
	t.Helper()
	client, err := kube.NewClient(cluster.Shared(t).Admin(), kube.WithRateLimit(-1, 0), kube.WithOwnConnections())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kube.CloseIdleConnections(client) })
	return client.Kube()
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
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Unix(1<<32, 0), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
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

func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for !holds() {
		select {
		case <-ctx.Done():
			t.Fatalf("not within %v: %s", patience, what)
		case <-ticker.C:
		}
	}
}

// process is pilot, as a process of its own.
type process struct {
	name        string
	cmd         *exec.Cmd
	began       time.Time
	out, errors text
	logFile     string // where it logs, if not to its standard output
	ended       chan struct{}
}

// text is what a process writes.
type text struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *text) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *text) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// launch starts pilot with arguments and with an environment that is all it has. It is
// killed at the test's end if it is still there.
func launch(t *testing.T, name string, env []string, args ...string) *process {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{name: name, cmd: exec.Command(program, args...), ended: make(chan struct{})}
	p.cmd.Env = append(append([]string{asProgram + "=1", "HOME=" + t.TempDir()}, mutants()...), env...)
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.errors
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p.began = time.Now()
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait() // what it ended with is in ProcessState
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.ended
		if t.Failed() {
			t.Logf("%s wrote:\n%s%s", p.name, p.log(), &p.errors)
		}
	})
	return p
}

// mutants are the variables of tests/mutants, by which the process has the fault that is tried.
func mutants() (all []string) {
	for _, entry := range os.Environ() {
		if strings.HasPrefix(entry, "INCUMBENT_MUTANT") {
			all = append(all, entry)
		}
	}
	return all
}

// log is what it has logged so far.
func (p *process) log() string {
	if p.logFile == "" {
		return p.out.String()
	}
	content, err := os.ReadFile(p.logFile)
	if err != nil {
		return ""
	}
	return string(content)
}

// exit waits for its end, and returns how it ended: an exit code, or minus a signal.
func (p *process) exit(t *testing.T) int {
	t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		t.Fatalf("%s has not ended within %v", p.name, patience)
	}
	status, _ := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		return -int(status.Signal())
	}
	return status.ExitStatus()
}

func (p *process) signal(t *testing.T, s os.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

var addressField = regexp.MustCompile(`"?address"?[=:]"?([0-9.]+:[0-9]+)`)

// address is where it serves, "" until it does.
func (p *process) address() string {
	if found := addressField.FindStringSubmatch(p.log()); found != nil {
		return found[1]
	}
	return ""
}

// page is what it answers; 0 while it does not.
func (p *process) page(t *testing.T, path string) (int, string) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+p.address()+path, nil)
	if err != nil {
		return 0, ""
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, ""
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
	return response.StatusCode, string(content)
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
	await(t, p.name+" leads", func() bool { return p.election(t).Leading })
}

// metric is the value of the first sample that begins so, "" when there is none.
func (p *process) metric(t *testing.T, sample string) string {
	t.Helper()
	_, page := p.page(t, "/metrics")
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, sample) {
			return strings.TrimSpace(line[strings.LastIndexByte(line, ' '):])
		}
	}
	return ""
}

func adminConfig(t *testing.T) *rest.Config {
	t.Helper()
	return cluster.Shared(t).Admin()
}
