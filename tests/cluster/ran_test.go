package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/testutil/certs"
	"incumbent.dev/incumbent/tests/cluster/internal/process"
)

// What a disaster did not meet, a restore does not begin: of the API servers those are started again
// that ran, paused ones among them, and neither those that were stopped nor those that never were.
func TestWhichServersRan(t *testing.T) {
	c := &Cluster{}
	server := func(name string) *APIServer {
		p, err := process.Start(process.Spec{
			Name: name, Path: "/bin/sleep", Args: []string{"60"}, Env: os.Environ(), Log: filepath.Join(t.TempDir(), "log"),
		})
		if err != nil {
			t.Fatal(err)
		}
		s := &APIServer{cluster: c, name: name, process: p}
		t.Cleanup(func() {
			if err := s.Kill(); err != nil {
				t.Error(err)
			}
		})
		return s
	}
	runs, stopped, killed, paused := server("runs"), server("stopped"), server("killed"), server("paused")
	for _, err := range []error{stopped.Stop(), killed.Kill(), paused.Pause()} {
		if err != nil {
			t.Fatal(err)
		}
	}
	c.api, c.further = stopped, []*APIServer{runs, killed, {cluster: c, name: "never started"}, paused}
	if got := c.runningServers(); !slices.Equal(got, []*APIServer{runs, paused}) {
		t.Errorf("ran have %d: %+v", len(got), got)
	}
	if err := paused.signal(syscall.SIGCONT); err != nil {
		t.Error(err)
	}
	c.api, c.further = runs, []*APIServer{stopped}
	if got := c.runningServers(); !slices.Equal(got, []*APIServer{runs}) {
		t.Errorf("of the first and another that was stopped, ran have %+v", got)
	}
}

// etcd's data is copied while no thread of it runs, and that is seen, not assumed.
func TestWhoStandsStill(t *testing.T) {
	p, err := process.Start(process.Spec{
		Name: "still", Path: "/bin/sleep", Args: []string{"60"}, Env: os.Environ(), Log: filepath.Join(t.TempDir(), "log"),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.Kill(); err != nil {
			t.Error(err)
		}
		if stopped(p.Pid()) {
			t.Error("a process that is gone stands still")
		}
	}()
	if stopped(p.Pid()) {
		t.Error("a process that runs stands still")
	}
	c := &Cluster{etcd: p, folder: &folder{path: t.TempDir()}}
	if err := os.MkdirAll(filepath.Join(c.dataDir(), "member"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(c.dataDir(), "member", "wal"), []byte("data"), 0o600); err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.copyStill(ended, t.TempDir()); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "etcd does not stand still") {
		t.Errorf("while it runs, the copy ends with %v", err)
	}
	backup, err := c.Backup(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if copied, err := os.ReadFile(filepath.Join(backup.path, "member", "wal")); err != nil || string(copied) != "data" {
		t.Errorf("the copy: %q, %v", copied, err)
	}
	if err := wait.PollUntilContextTimeout(t.Context(), pollInterval, time.Minute, true, func(context.Context) (bool, error) { return !stopped(p.Pid()), nil }); err != nil {
		t.Errorf("after the copy it does not go on: %v", err)
	}
}

// A cluster that was there has no servers of ours, and ours has no more than it has addresses.
func TestWhichServersThereCanBe(t *testing.T) {
	there := &Cluster{options: Options{External: "/k"}}
	if _, err := there.AddAPIServer(t.Context()); err == nil || !strings.Contains(err.Error(), "the cluster is an external one") {
		t.Errorf("adding one: %v", err)
	}
	if _, err := there.Backup(t.Context()); err == nil || !strings.Contains(err.Error(), "the cluster is an external one") {
		t.Errorf("backing up: %v", err)
	}
	if there.APIServer() != nil || there.AuditLog() != "" || there.Kubeconfig() != "/k" || !there.External() {
		t.Errorf("it is %+v", there)
	}
	ours := &Cluster{further: make([]*APIServer, maxAPIServers-1)}
	if _, err := ours.AddAPIServer(t.Context()); err == nil || !strings.Contains(err.Error(), "at most 4") || len(ours.further) != maxAPIServers-1 {
		t.Errorf("adding a fifth: %v", err)
	}
}

// A server of a cluster sees our environment, but not what would lead it to another cluster.
func TestTheEnvironmentOfAServer(t *testing.T) {
	t.Setenv("KUBECONFIG", "/elsewhere")
	t.Setenv("ETCD_DATA_DIR", "/elsewhere")
	t.Setenv("OUR_ETCD_KUBECONFIG", "kept")
	var kept bool
	for _, entry := range serverEnvironment() {
		if strings.HasSuffix(entry, "=/elsewhere") {
			t.Errorf("it sees %s", entry)
		}
		kept = kept || entry == "OUR_ETCD_KUBECONFIG=kept"
	}
	if !kept {
		t.Error("it does not see what is ours")
	}
}

// Certificates are for what they are for: who serves is no client, who asks is who the certificate says,
// and both are signed by the cluster's own authority and no other.
func TestWhatCertificatesAreFor(t *testing.T) {
	ours, err := newAuthority()
	if err != nil {
		t.Fatal(err)
	}
	others, err := newAuthority()
	if err != nil {
		t.Fatal(err)
	}
	server, err := ours.server([]string{"127.9.9.1", "127.9.9.2"})
	if err != nil {
		t.Fatal(err)
	}
	client, err := ours.client("somebody", "some", "groups")
	if err != nil {
		t.Fatal(err)
	}
	again, err := ours.client("somebody")
	if err != nil {
		t.Fatal(err)
	}
	read := func(p certs.Pair) *x509.Certificate {
		t.Helper()
		both, err := tls.X509KeyPair(p.Cert, p.Key) // the key is the certificate's
		if err != nil {
			t.Fatal(err)
		}
		return both.Leaf
	}
	verify := func(p certs.Pair, by authority, use x509.ExtKeyUsage, name string) error {
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(by.PEM) {
			t.Fatal("the authority's certificate is none")
		}
		_, err := read(p).Verify(x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{use}, DNSName: name})
		return err
	}
	for _, name := range []string{"127.9.9.1", "127.9.9.2", "localhost", "kubernetes.default.svc"} {
		if err := verify(server, ours, x509.ExtKeyUsageServerAuth, name); err != nil {
			t.Errorf("for %s: %v", name, err)
		}
	}
	if err := verify(client, ours, x509.ExtKeyUsageClientAuth, ""); err != nil {
		t.Error(err)
	}
	for what, err := range map[string]error{
		"elsewhere":             verify(server, ours, x509.ExtKeyUsageServerAuth, "127.9.9.3"),
		"a server that asks":    verify(server, ours, x509.ExtKeyUsageClientAuth, ""),
		"a client that serves":  verify(client, ours, x509.ExtKeyUsageServerAuth, ""),
		"another one's":         verify(client, others, x509.ExtKeyUsageClientAuth, ""),
		"another one's, server": verify(server, others, x509.ExtKeyUsageServerAuth, "localhost"),
	} {
		if err == nil {
			t.Errorf("a certificate is good for %s", what)
		}
	}
	if name := read(server).Subject.CommonName; name != "kube-apiserver" {
		t.Errorf("the server is %s", name)
	}
	who := read(client)
	if who.Subject.CommonName != "somebody" || !slices.Equal(who.Subject.Organization, []string{"some", "groups"}) {
		t.Errorf("the client is %v", who.Subject)
	}
	if who.SerialNumber.Cmp(read(again).SerialNumber) == 0 || who.SerialNumber.Cmp(read(server).SerialNumber) == 0 {
		t.Error("two certificates have one number")
	}
	if ours.Cert.Subject.CommonName != "incumbent test cluster" || !ours.Cert.IsCA {
		t.Errorf("the authority is %v", ours.Cert.Subject)
	}
	c := &Cluster{authority: ours}
	config, err := c.certified("https://h", "somebody", "some")
	if err != nil || config.Host != "https://h" || config.QPS != -1 || !slices.Equal(config.CAData, ours.PEM) {
		t.Errorf("%v, %+v", err, config)
	}
	if who := read(certs.Pair{Cert: config.CertData, Key: config.KeyData}); who.Subject.CommonName != "somebody" {
		t.Errorf("a configuration's is %v", who.Subject)
	}
}

// Each server finds the keys that its command line names, which only we can read.
func TestTheKeysOfACluster(t *testing.T) {
	a, err := newAuthority()
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	if err := a.writeKeys(folder, []string{"127.9.9.1"}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{caFile, servingCert, servingKey, tokenKey, kubeletCert, kubeletKey} {
		info, err := os.Stat(filepath.Join(folder, name))
		if err != nil || info.Mode().Perm() != 0o600 || info.Size() == 0 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	for cert, key := range map[string]string{servingCert: servingKey, kubeletCert: kubeletKey} {
		if _, err := tls.LoadX509KeyPair(filepath.Join(folder, cert), filepath.Join(folder, key)); err != nil {
			t.Errorf("%s: %v", cert, err)
		}
	}
	if err := a.writeKeys(filepath.Join(folder, "none"), nil); err == nil || !strings.Contains(err.Error(), "writing the cluster's keys") {
		t.Errorf("where nothing can be: %v", err)
	}
}

// What a cluster asks for itself leaves no connection open.
func TestWhatIsAskedLeavesNoConnection(t *testing.T) {
	var now, all atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"default"}}`)
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			now.Add(1)
			all.Add(1)
		case http.StateClosed:
			now.Add(-1)
		}
	}
	server.StartTLS()
	defer server.Close()
	c := &Cluster{admin: &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}}
	client, done, err := c.shortLived()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	if all.Load() == 0 || now.Load() == 0 {
		t.Fatalf("of %d connections %d are open, which shows nothing", all.Load(), now.Load())
	}
	done()
	if err := wait.PollUntilContextTimeout(t.Context(), pollInterval, time.Minute, true, func(context.Context) (bool, error) { return now.Load() == 0, nil }); err != nil {
		t.Errorf("%d connections stay open: %v", now.Load(), err)
	}
}
