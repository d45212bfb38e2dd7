package cluster

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// The command lines in full: an argument that is left out shows late, if at all, in what the servers do.
func TestTheCommandLines(t *testing.T) {
	c := &Cluster{
		address: "127.9.9.1", etcdURL: "http://127.9.9.1:2379", folder: &folder{path: "/f"},
		options: Options{Audit: true, APIServerArgs: []string{"--v=2"}, EtcdArgs: []string{"--quota-backend-bytes=1"}},
	}
	s := &APIServer{cluster: c, name: "kube-apiserver-2", address: "127.9.9.2", further: c.options.APIServerArgs}
	for name, x := range map[string]struct {
		got  []string
		want string
	}{
		"etcd": {c.etcdArguments("http://127.9.9.1:2379", "http://127.9.9.1:2380"), `
			--name=default --data-dir=/f/etcd
			--listen-client-urls=http://127.9.9.1:2379 --advertise-client-urls=http://127.9.9.1:2379
			--listen-peer-urls=http://127.9.9.1:2380 --initial-advertise-peer-urls=http://127.9.9.1:2380 --initial-cluster=default=http://127.9.9.1:2380
			--log-level=warn --heartbeat-interval=10 --election-timeout=50 --unsafe-no-fsync --quota-backend-bytes=1`},
		"controllers": {c.controllerArguments("/f/k"), `
			--kubeconfig=/f/k
			--controllers=clusterrole-aggregation-controller,deployment-controller,garbage-collector-controller,namespace-controller,replicaset-controller,root-ca-certificate-publisher-controller,serviceaccount-controller,validatingadmissionpolicy-status-controller
			--use-service-account-credentials=true --root-ca-file=/f/ca.crt --leader-elect=false --secure-port=0 --kube-api-qps=1000 --kube-api-burst=1000`},
		"API server": {s.arguments(), `
			--bind-address=127.9.9.2 --secure-port=6443 --advertise-address=127.9.9.2 --endpoint-reconciler-type=none --service-cluster-ip-range=10.96.0.0/24
			--etcd-servers=http://127.9.9.1:2379 --cert-dir=/f --tls-cert-file=/f/` + servingCert + ` --tls-private-key-file=/f/` + servingKey + ` --client-ca-file=/f/` + caFile + `
			--kubelet-client-certificate=/f/` + kubeletCert + ` --kubelet-client-key=/f/` + kubeletKey + ` --kubelet-preferred-address-types=InternalIP
			--authorization-mode=RBAC --service-account-issuer=` + serviceIssuer + ` --service-account-key-file=/f/` + tokenKey + ` --service-account-signing-key-file=/f/` + tokenKey + `
			--service-account-extend-token-expiration=false
			--audit-policy-file=/f/` + auditPolicy + ` --audit-log-path=/f/kube-apiserver-2-audit.log --audit-log-mode=blocking --audit-log-maxsize=0 --v=2`},
	} {
		if want := strings.Fields(x.want); !slices.Equal(x.got, want) {
			t.Errorf("%s: got\n%s\nwant\n%s", name, strings.Join(x.got, "\n"), strings.Join(want, "\n"))
		}
	}
	c.options.Audit = false
	if args := strings.Join(s.arguments(), " "); strings.Contains(args, "audit") || s.URL() != "https://127.9.9.2:6443" {
		t.Errorf("%s, %s", s.URL(), args)
	}
}

// A server is healthy that says 200, and no other.
func TestWhoIsHealthy(t *testing.T) {
	code := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" {
			t.Errorf("asked for %s", r.URL)
		}
		w.WriteHeader(code)
	}))
	defer server.Close()
	ask := healthy(server.Client(), server.URL+"/readyz")
	if err := ask(t.Context()); err != nil {
		t.Error(err)
	}
	for _, code = range []int{http.StatusInternalServerError, http.StatusForbidden, http.StatusNoContent} {
		if err := ask(t.Context()); err == nil || !strings.Contains(err.Error(), server.URL+"/readyz answers ") {
			t.Errorf("%d: %v", code, err)
		}
	}
	server.Close()
	if ask(t.Context()) == nil || healthy(server.Client(), "http://a b")(t.Context()) == nil {
		t.Error("nobody answers, and is healthy")
	}
}

// A kubeconfig is as good as the configuration that it was written of.
func TestAKubeconfigSaysAll(t *testing.T) {
	config := &rest.Config{
		Host: "https://127.9.9.1:6443", Username: "u", Password: "p", BearerTokenFile: "/token",
		TLSClientConfig: rest.TLSClientConfig{ServerName: "s", Insecure: true, CertFile: "/cert", KeyFile: "/key"},
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := WriteKubeconfig(path, config, "ns"); err != nil {
		t.Fatal(err)
	}
	file, err := clientcmd.LoadFromFile(path)
	if err != nil {
		t.Fatal(err)
	}
	at := file.Contexts[file.CurrentContext]
	server, user := file.Clusters[at.Cluster], file.AuthInfos[at.AuthInfo]
	if at.Namespace != "ns" || server.Server != config.Host || server.TLSServerName != "s" || !server.InsecureSkipTLSVerify ||
		user.Username != "u" || user.Password != "p" || user.TokenFile != "/token" || user.ClientCertificate != "/cert" || user.ClientKey != "/key" {
		t.Errorf("%+v, %+v, %+v", at, server, user)
	}
	config = &rest.Config{Host: "https://h", BearerToken: "t", TLSClientConfig: rest.TLSClientConfig{CAData: []byte("a"), CertData: []byte("c"), KeyData: []byte("k")}}
	if err := WriteKubeconfig(path, config, ""); err != nil {
		t.Fatal(err)
	}
	got, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil || got.Host != "https://h" || got.BearerToken != "t" || !reflect.DeepEqual(got.TLSClientConfig, config.TLSClientConfig) {
		t.Errorf("%v, %+v", err, got)
	}
	config.TLSClientConfig = rest.TLSClientConfig{CAFile: "/ca"}
	if err := WriteKubeconfig(path, config, ""); err != nil {
		t.Fatal(err)
	}
	if file, err := clientcmd.LoadFromFile(path); err != nil || file.Clusters["incumbent"].CertificateAuthority != "/ca" || file.Clusters["incumbent"].InsecureSkipTLSVerify {
		t.Errorf("%v, %+v", err, file)
	}
	if err := WriteKubeconfig(filepath.Join(path, "x"), config, ""); err == nil || !strings.Contains(err.Error(), "writing the kubeconfig "+path) {
		t.Errorf("where nothing can be: %v", err)
	}
}

// A cluster's folder is its own, locked as long as its starter lives, and goes with all in it.
func TestTheFolderOfACluster(t *testing.T) {
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	f, err := newFolder()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(f.file("x"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	other, err := newFolder() // whose sweep leaves the first one alone
	if err != nil || other.path == f.path || filepath.Dir(f.file("x")) != f.path || filepath.Dir(f.path) != temporary {
		t.Errorf("%v, %s and %s", err, f.path, other.path)
	}
	if _, err := os.Stat(f.file("x")); err != nil {
		t.Errorf("a folder in use was swept: %v", err)
	}
	for _, one := range []*folder{f, other} {
		if err := one.remove(); err != nil {
			t.Error(err)
		}
		if err := one.remove(); err == nil || !strings.Contains(err.Error(), "removing the cluster's folder") {
			t.Errorf("removed twice: %v", err)
		}
	}
	if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
		t.Errorf("%v, left %v", err, left)
	}
	t.Setenv("TMPDIR", filepath.Join(temporary, "none"))
	if _, err := newFolder(); err == nil || !strings.Contains(err.Error(), "making the cluster's folder") {
		t.Errorf("where nothing can be: %v", err)
	}
	if _, err := lockFolder(filepath.Join(temporary, "none")); err == nil {
		t.Error("a folder that is not there was locked")
	}
}

// What is not given has its default.
func TestDefaultsOfACluster(t *testing.T) {
	if o := (Options{}).withDefaults(); o.StartTimeout != time.Minute || o.AuditPolicy != metadataPolicy || o.validate() != nil || (Options{}).validate() != nil {
		t.Errorf("%+v", o)
	}
	if o := (Options{StartTimeout: 1, AuditPolicy: "p"}).withDefaults(); o.StartTimeout != 1 || o.AuditPolicy != "p" || o.validate() != nil {
		t.Errorf("%+v", o)
	}
	if err := (Options{StartTimeout: -1}).validate(); err == nil || !strings.Contains(err.Error(), "StartTimeout -1ns is negative") {
		t.Errorf("%v", err)
	}
}
