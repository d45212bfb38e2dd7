package node

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"incumbent.dev/incumbent/internal/testutil/certs"
)

// Where a probe asks, by number and by name.
func TestHowAProcessIsAsked(t *testing.T) {
	container := corev1.Container{Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 80}, {Name: "ready", ContainerPort: 15021}}}
	for want, get := range map[string]corev1.HTTPGetAction{
		"http://127.0.0.9:15021/healthz": {Path: "/healthz", Port: intstr.FromString("ready")},
		"http://127.0.0.9:80/":           {Port: intstr.FromString("http")},
		"http://127.0.0.9:nosuch/":       {Port: intstr.FromString("nosuch")},
		"https://[::1]:7/a":              {Path: "a", Port: intstr.FromInt32(7), Host: "::1", Scheme: corev1.URISchemeHTTPS},
	} {
		if got := probeURL(container, &get, "127.0.0.9"); got != want {
			t.Errorf("it asks %s, want %s", got, want)
		}
	}
}

// Each question is a connection of its own, within the probe's time; an answer from 200 to 399 is a good one.
func TestHowAProcessAnswers(t *testing.T) {
	var code, connections atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(int(code.Load())) }))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	server.StartTLS() // with a certificate that nobody knows
	defer server.Close()
	host, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	probe := corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.Parse(port), Scheme: corev1.URISchemeHTTPS}}}
	ask, done := asker(probe, corev1.Container{}, host)
	defer done()
	var asked int32
	for answer, good := range map[int32]bool{200: true, 204: true, 304: true, 400: false, 503: false} {
		code.Store(answer)
		if err := ask(t.Context()); (err == nil) != good {
			t.Errorf("%d: %v", answer, err)
		}
		if asked++; connections.Load() != asked {
			t.Errorf("%d questions took %d connections", asked, connections.Load())
		}
	}
	probe.ProbeHandler = corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.Parse(port)}}
	ask, done = asker(probe, corev1.Container{}, host)
	defer done()
	if err := ask(t.Context()); err != nil {
		t.Error(err)
	}
	server.Close()
	if err := ask(t.Context()); err == nil {
		t.Error("nobody listens, and it is alive")
	}
	probe.ProbeHandler = corev1.ProbeHandler{Exec: &corev1.ExecAction{}}
	ask, done = asker(probe, corev1.Container{}, host)
	defer done()
	if err := ask(t.Context()); !errors.Is(err, errHandler) {
		t.Errorf("a command: %v", err)
	}
	for given, want := range map[int32]time.Duration{-1: time.Second, 0: time.Second, 1: time.Second, 7: 7 * time.Second} {
		if got := seconds(given); got != want {
			t.Errorf("seconds(%d) is %v", given, got)
		}
	}
}

// A node serves with a certificate for its address, to those whom the cluster's authority has signed.
func TestWhatCertificatesANodeHas(t *testing.T) {
	n := nodeOf(t, nil)
	config, err := n.servingConfig("127.0.0.2")
	if err != nil {
		t.Fatal(err)
	}
	if config.MinVersion != tls.VersionTLS12 || config.ClientAuth != tls.RequireAndVerifyClientCert || !config.ClientCAs.Equal(x509.NewCertPool()) || len(config.Certificates) != 1 {
		t.Errorf("without an authority: %+v", config)
	}
	leaf, err := x509.ParseCertificate(config.Certificates[0].Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	if leaf.Subject.CommonName != "system:node:here" || leaf.KeyUsage != x509.KeyUsageDigitalSignature || len(leaf.ExtKeyUsage) != 1 || leaf.ExtKeyUsage[0] != x509.ExtKeyUsageServerAuth ||
		leaf.NotBefore.After(now) || leaf.NotBefore.Year() != 2020 || leaf.NotAfter.Before(now) || leaf.SerialNumber.Sign() <= 0 || leaf.VerifyHostname("127.0.0.2") != nil || leaf.VerifyHostname("127.0.0.3") == nil {
		t.Errorf("its certificate is %+v", leaf)
	}
	known := n.options.Config
	known.Host, known.CAData = "https://127.0.0.1:1", certs.CA(t)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(known.CAData)
	if config, err = n.servingConfig("127.0.0.2"); err != nil || !config.ClientCAs.Equal(pool) {
		t.Errorf("with an authority: %v, %+v", err, config)
	}
	known.CAData = []byte("none")
	if _, err = n.servingConfig("127.0.0.2"); err == nil || !strings.Contains(err.Error(), "the cluster's TLS configuration") {
		t.Errorf("with one that is none: %v", err)
	}
}

// Logs are for those who may get nodes/proxy; the API server is asked, and what it says holds.
func TestWhichLogsAreForWhom(t *testing.T) {
	client := fake.NewClientset()
	var answer error
	client.PrependReactor("create", "subjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		create, _ := action.(clienttesting.CreateActionImpl)
		review, _ := create.Object.(*authorizationv1.SubjectAccessReview)
		want := authorizationv1.ResourceAttributes{Verb: "get", Version: "v1", Resource: "nodes", Subresource: "proxy", Name: "here"}
		if a := review.Spec.ResourceAttributes; a == nil || a.Verb != want.Verb || a.Version != want.Version || a.Resource != want.Resource || a.Subresource != want.Subresource || a.Name != want.Name {
			t.Errorf("asked about %+v", a)
		}
		review.Status.Allowed = review.Spec.User == "api" && len(review.Spec.Groups) == 1 && review.Spec.Groups[0] == "system:masters"
		return true, review, answer
	})
	served := 0
	e := &endpoint{node: nodeOf(t, client)}
	handler := e.counted(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ }))
	ask := func(user string, groups ...string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{Subject: pkix.Name{CommonName: user, Organization: groups}}}}
		out := httptest.NewRecorder()
		handler.ServeHTTP(out, r)
		return out
	}
	if got := ask("api", "system:masters"); got.Code != http.StatusOK || served != 1 {
		t.Errorf("who may: %d %s, served %d", got.Code, got.Body, served)
	}
	if got := ask("other", "system:masters"); got.Code != http.StatusForbidden || !strings.Contains(got.Body.String(), "other may not get nodes/proxy") || served != 1 {
		t.Errorf("who may not: %d %s, served %d", got.Code, got.Body, served)
	}
	answer = errors.New("out of order")
	if got := ask("api", "system:masters"); got.Code != http.StatusForbidden || !strings.Contains(got.Body.String(), "asking whether api may: out of order") || served != 1 {
		t.Errorf("nobody knows: %d %s, served %d", got.Code, got.Body, served)
	}
	e.under.Wait() // nothing is under way
}

// What a node's options cannot be on the lower side, and may just be.
func TestWhichPartsOfItsOptionsANodeRefuses(t *testing.T) {
	good := nodeOf(t, nil).options
	for words, change := range map[string]func(*Options){
		"TokenRefresh -1ns":  func(o *Options) { o.TokenRefresh = -1 },
		"RestartDelay -1ns":  func(o *Options) { o.RestartDelay = -1 },
		"StopGrace -1ns":     func(o *Options) { o.StopGrace = -1 },
		"TokenLifetime is 9": func(o *Options) { o.TokenLifetime = minimalToken - 1 },
	} {
		options := good
		change(&options)
		if err := options.validate(); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("want %q, got %v", words, err)
		}
	}
	for name, change := range map[string]func(*Options){
		"a token that is renewed at its end":      func(o *Options) { o.TokenLifetime, o.TokenRefresh = minimalToken, minimalToken },
		"no pause between restarts":               func(o *Options) { o.RestartDelay, o.MaxRestartDelay = 0, 0 },
		"no grace":                                func(o *Options) { o.StopGrace = 0 },
		"a token that is renewed without a pause": func(o *Options) { o.TokenRefresh = 0 },
	} {
		options := good
		change(&options)
		if err := options.validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The last lines of what a process wrote: limits hold for what is sent, and one that cannot be read is said.
func TestWhichLogsCannotBeRead(t *testing.T) {
	w := workerOf(t, nil)
	if err := w.sendLog(context.Background(), httptest.NewRecorder(), 0, logRequest{tail: -1, limit: -1}); err == nil {
		t.Error("a log that is not there was sent")
	}
}
