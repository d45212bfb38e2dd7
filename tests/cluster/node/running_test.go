package node

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	"incumbent.dev/incumbent/tests/cluster/internal/process"
)

// answering is an API server without Pods at first, which shows those that it is given and takes what a node writes.
type answering struct {
	*httptest.Server
	pods chan metav1.WatchEvent

	mu         sync.Mutex
	registered *corev1.Node
}

func newAnswering(t *testing.T) *answering {
	t.Helper()
	a := &answering{pods: make(chan metav1.WatchEvent)}
	a.Server = httptest.NewServer(http.HandlerFunc(a.answer))
	t.Cleanup(a.Close)
	return a
}

func (a *answering) answer(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	var said any = podOf(nil)
	switch {
	case r.URL.Path == "/api/v1/nodes":
		a.mu.Lock()
		a.registered = &corev1.Node{}
		_ = json.NewDecoder(r.Body).Decode(a.registered)
		said = a.registered
		a.mu.Unlock()
	case strings.HasSuffix(r.URL.Path, "/token"):
		said = authenticationv1.TokenRequest{Status: authenticationv1.TokenRequestStatus{Token: "secret"}}
	case r.URL.Query().Get("sendInitialEvents") != "":
		w.WriteHeader(http.StatusUnprocessableEntity)
		said = metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Reason: metav1.StatusReasonInvalid, Code: http.StatusUnprocessableEntity}
	case r.URL.Query().Get("watch") != "":
		_ = http.NewResponseController(w).Flush() // fails when the node has stopped
		for {
			select {
			case <-r.Context().Done():
				return
			case event := <-a.pods:
				_ = json.NewEncoder(w).Encode(event)
				_ = http.NewResponseController(w).Flush()
			}
		}
	case r.URL.Path == "/api/v1/pods":
		said = corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
	}
	_ = json.NewEncoder(w).Encode(said)
}

// A node runs once: it registers, runs the Pods that a watch shows, ends those that go, serves at its address as long as it
// runs, and returns when all has ended.
func TestTheLifeOfANode(t *testing.T) {
	api := newAnswering(t)
	n, err := New(Options{Config: &rest.Config{Host: api.URL, ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON}}, Dir: filepath.Join(t.TempDir(), "a", "b"), Name: "here", Images: map[string]string{"sh": "/bin/sh"}, StopGrace: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	returned := make(chan error, 1)
	go func() { returned <- n.Run(ctx) }()
	show := func(kind, uid string) {
		t.Helper()
		pod := podOf(func(p *corev1.Pod) {
			p.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
			p.UID, p.Name, p.ResourceVersion = types.UID(uid), uid, "2"
			p.Spec.NodeName, p.Spec.RestartPolicy = "here", corev1.RestartPolicyAlways
			p.Spec.Containers[0].Args = []string{"-c", "exec sleep 60"}
		})
		select {
		case api.pods <- metav1.WatchEvent{Type: kind, Object: runtime.RawExtension{Object: pod}}:
		case err := <-returned:
			t.Fatalf("it has ended: %v", err)
		case <-time.After(time.Minute):
			t.Fatal("nobody watches Pods")
		}
	}
	pid := func(name string) int { view, _ := n.Pod("apps", name); return view.PID }
	show("ADDED", "one")
	show("ADDED", "two")
	seen(t, "both run", func() bool { return pid("one") != 0 && pid("two") != 0 })
	one, two := pid("one"), pid("two")
	api.mu.Lock()
	if api.registered == nil || api.registered.Name != "here" || api.registered.Status.Addresses[0].Address != n.address {
		t.Errorf("registered is %+v", api.registered)
	}
	api.mu.Unlock()
	show("DELETED", "one")
	seen(t, "the first has ended", func() bool { return ended(one) })
	if ended(two) || len(n.Pods()) != 1 {
		t.Errorf("of two there are %+v", n.Pods())
	}
	at := net.JoinHostPort(n.address, fmt.Sprint(kubeletPort))
	if connection, err := net.Dial("tcp", at); err != nil || connection.Close() != nil {
		t.Errorf("it does not serve: %v", err)
	}
	if err := n.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "has run before") {
		t.Errorf("run twice: %v", err)
	}
	cancel()
	if err := <-returned; err != nil || !ended(two) {
		t.Errorf("%v; it has returned, and the second is gone: %v", err, ended(two))
	}
	if _, err := net.Dial("tcp", at); err == nil {
		t.Error("it has returned, and serves")
	}
	if n.addresses.Release() == nil {
		t.Error("it has returned, and has its addresses")
	}
}

// ended reports whether there is no process of that number.
func ended(pid int) bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

// What a node cannot do is said, and nothing of it goes on.
func TestTheLifeOfANodeThatCannotRun(t *testing.T) {
	if _, err := New(Options{Config: &rest.Config{QPS: 1}, Dir: t.TempDir()}); err == nil || !strings.Contains(err.Error(), "making the node's client: ") {
		t.Errorf("a limit of requests without a burst: %v", err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	n := nodeOf(t, nil)
	n.options.Dir = filepath.Join(file, "x")
	if err := n.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "making the node's folder: ") {
		t.Errorf("where no folder can be: %v", err)
	}
	n = nodeOf(t, nil)
	n.options.Config.CAData = []byte("none")
	if err := n.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "the cluster's TLS configuration") {
		t.Errorf("without an authority: %v", err)
	}
	if n.addresses.Release() == nil {
		t.Error("it has returned, and has its addresses")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := nodeOf(t, nil).Run(ctx); err != nil { // it was never registered
		t.Error(err)
	}
}

// What a node serves is there once, at its address, for those who may.
func TestTheLifeOfAnEndpoint(t *testing.T) {
	client := fake.NewClientset()
	client.PrependReactor("create", "subjectaccessreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &authorizationv1.SubjectAccessReview{Status: authorizationv1.SubjectAccessReviewStatus{Allowed: true}}, nil
	})
	n := nodeOf(t, client)
	e, err := n.serve(t.Context(), "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.serve(t.Context(), "127.0.0.1"); err == nil || !strings.Contains(err.Error(), "serving logs: ") {
		t.Errorf("served twice: %v", err)
	}
	for path, want := range map[string]string{
		"/containerLogs/apps/one/replica": "this node runs no such Pod", "/containerLogs/apps/one": "a process node serves logs, and nothing at /containerLogs/apps/one", "/exec": "nothing at /exec",
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{Subject: pkix.Name{CommonName: "api"}}}}
		out := httptest.NewRecorder()
		e.server.Handler.ServeHTTP(out, r)
		if out.Code != http.StatusNotFound || !strings.Contains(out.Body.String(), want) {
			t.Errorf("%s: %d %s", path, out.Code, out.Body)
		}
	}
	if e.server.ReadHeaderTimeout != 10*time.Second {
		t.Errorf("who says nothing is listened to for %v", e.server.ReadHeaderTimeout)
	}
	if err := e.close(); err != nil {
		t.Error(err)
	}
	// Whoever asks the cluster without knowing its authority trusts no client: the system's authorities are not the cluster's.
	n.options.Config.Host, n.options.Config.Insecure = "https://127.0.0.1:1", true
	if config, err := n.servingConfig("127.0.0.1"); err != nil || config.ClientCAs == nil || !config.ClientCAs.Equal(x509.NewCertPool()) {
		t.Errorf("without an authority: %v, %+v", err, config)
	}
}

// refusing takes no output.
type refusing struct{ *httptest.ResponseRecorder }

var errRefused = errors.New("refused")

func (refusing) Write([]byte) (int, error) { return 0, errRefused }

// A log is followed as long as its process lives, and no longer.
func TestWhichLogsAreFollowed(t *testing.T) {
	w := workerOf(t, nil)
	if err := os.MkdirAll(w.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := w.mark(); err != nil {
		t.Fatal(err)
	}
	going := filepath.Join(w.dir, "going")
	p, err := process.Start(process.Spec{
		Name: "the script", Path: "/bin/sh", Log: w.view.Log, Env: []string{"PATH=" + os.Getenv("PATH")},
		Args: []string{"-c", "echo one; until [ -e " + going + " ]; do sleep 0.01; done; echo two"},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.publish(p)
	read, write := io.Pipe()
	sent := make(chan error, 1)
	go func() {
		err := w.sendLog(t.Context(), piped{httptest.NewRecorder(), write}, 0, logRequest{tail: -1, limit: -1, follow: true})
		sent <- errors.Join(err, write.Close())
	}()
	var first [4]byte
	if _, err := io.ReadFull(read, first[:]); err != nil || string(first[:]) != "one\n" || !w.writes(0) {
		t.Errorf("%v, %q; it lives: %v", err, first, w.writes(0))
	}
	if err := os.WriteFile(going, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(read)
	if err := errors.Join(err, <-sent); err != nil || string(rest) != "two\n" || w.writes(0) {
		t.Errorf("%v, and then %q; it lives: %v", err, rest, w.writes(0))
	}
	<-p.Done()
	if err := w.signal(syscall.SIGINT); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("a signal to one that has ended: %v", err)
	}
	if err := w.sendLog(t.Context(), refusing{httptest.NewRecorder()}, 0, logRequest{tail: -1, limit: -1}); !errors.Is(err, errRefused) {
		t.Errorf("to whom nothing can be said: %v", err)
	}
}

// piped is an answer that is read while it is written.
type piped struct {
	*httptest.ResponseRecorder
	to io.Writer
}

func (p piped) Write(text []byte) (int, error) { return p.to.Write(text) }

// A Pod's files are made until all are there, or it is not wanted any more.
func TestTheLifeOfAPodsFiles(t *testing.T) {
	for _, name := range []string{tokenFile, kubeconfigFile} {
		client := fake.NewClientset(podOf(nil))
		client.PrependReactor("create", "serviceaccounts", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, &authenticationv1.TokenRequest{Status: authenticationv1.TokenRequestStatus{Token: "secret"}}, nil
		})
		w := nodeOf(t, client).newWorker(t.Context(), podOf(nil))
		if err := os.MkdirAll(filepath.Join(w.dir, name, "in the way"), 0o700); err != nil {
			t.Fatal(err)
		}
		made := make(chan bool, 1)
		go func() { made <- w.setUp() }()
		seen(t, "its status says why it waits", func() bool {
			s, _ := patched(t, w)
			waiting := s.ContainerStatuses[0].State.Waiting
			return len(made) > 0 || waiting != nil && waiting.Reason == "CreateContainerConfigError" && strings.Contains(waiting.Message, name)
		})
		w.unwanted()
		if <-made {
			t.Errorf("without %s all is there", name)
		}
		w.gone()
	}
}

// What went elsewhere is not deleted here, and what could not be deleted is tried again.
func TestTheObjectOfAPod(t *testing.T) {
	there := podOf(func(p *corev1.Pod) { p.Spec.NodeName = "there" })
	client := fake.NewClientset(there)
	client.PrependReactor("create", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, "one", errors.New("bound"))
	})
	var tries atomic.Int32
	client.PrependReactor("delete", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		if tries.Add(1) == 1 {
			return true, nil, errors.New("busy")
		}
		return true, nil, nil
	})
	n := nodeOf(t, client)
	n.newWorker(t.Context(), podOf(nil)).run()
	if tries.Load() != 0 {
		t.Error("what went elsewhere was deleted")
	}
	w := n.newWorker(t.Context(), podOf(nil))
	defer w.gone()
	if w.deleteObject(); tries.Load() != 2 {
		t.Errorf("it was deleted after %d tries", tries.Load())
	}
}

// A condition has been as it is since it changed, and a process that wrote nothing has no output of the next one.
func TestTheStatusIsAsOld(t *testing.T) {
	w := workerOf(t, nil)
	w.status.placed("127.0.0.9")
	long := metav1.NewTime(time.Now().Add(-time.Hour))
	for i := range w.status.status.Conditions {
		w.status.status.Conditions[i].LastTransitionTime = long
	}
	w.setReady(true, "")
	s, _ := patched(t, w)
	if changed, same := ready(s, corev1.PodReady), ready(s, corev1.PodInitialized); changed.LastTransitionTime.Time.Before(long.Add(time.Minute)) || same.LastTransitionTime.Unix() != long.Unix() {
		t.Errorf("%+v", s.Conditions)
	}
	if err := os.MkdirAll(w.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := w.mark(); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(w.view.Log, []byte("second"), 0o600); err != nil {
		t.Fatal(err)
	}
	for run, want := range []string{"", "second"} {
		out := httptest.NewRecorder()
		if err := w.sendLog(t.Context(), out, run, logRequest{tail: -1, limit: -1}); err != nil || out.Body.String() != want {
			t.Errorf("process %d: %v, %q", run, err, out.Body)
		}
	}
}
