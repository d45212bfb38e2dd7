package page

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/bootstrap"
	"incumbent.dev/incumbent/pkg/kube"
	"incumbent.dev/incumbent/tests/cluster"
)

const (
	// patience bounds every wait. Tests need much less time.
	patience = harness.Patience
	// defaultTag is the webhook that names the default revision.
	defaultTag = "istio-revision-tag-default"
	// watched is the election that the tests look at.
	watched = "istio-namespace-controller-election"
)

// revisions are the revisions of the control plane. Each has one replica.
var revisions = []string{"stable", "canary"}

// plane is a control plane with two revisions on the shared cluster.
type plane struct {
	kube kubernetes.Interface
	home string
	// pages are the addresses of the elections pages, by revision.
	pages map[string]string
}

func newPlane(t testing.TB) *plane {
	t.Helper()
	p := emptyPlane(t)
	for _, revision := range revisions {
		p.pages[revision] = serve(t, configOf(t, p.home, revision))
		p.leads(t, watched, "pilot-stable")
	}
	return p
}

// emptyPlane returns a control plane without replicas. The default revision is stable.
func emptyPlane(t testing.TB) *plane {
	t.Helper()
	shared := cluster.Shared(t)
	client := shared.Client(t).Kube()
	p := &plane{kube: client, home: shared.Namespace(t), pages: map[string]string{}}
	hook := &admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: defaultTag, Labels: map[string]string{"istio.io/rev": "stable"}}}
	hooks := client.AdmissionregistrationV1().MutatingWebhookConfigurations()
	if _, err := hooks.Create(t.Context(), hook, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
		defer cancel()
		if err := hooks.Delete(ctx, defaultTag, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	return p
}

// configOf returns the configuration of a replica. Its lease is long, so that no lease expires within a test.
func configOf(t testing.TB, home, revision string) bootstrap.Config {
	t.Helper()
	bundle := filepath.Join(t.TempDir(), "root-cert.pem")
	if err := os.WriteFile(bundle, harness.CA(t), 0o600); err != nil {
		t.Fatal(err)
	}
	return bootstrap.Config{
		Kubernetes: kube.Source{Path: cluster.Shared(t).Kubeconfig()}, Namespace: home, Identity: "pilot-" + revision, Revision: revision,
		Address: "127.0.0.1:0", DebugAddress: "127.0.0.1:0", CABundle: bundle, Lock: "lease", DisableGatewayAPI: true,
		LeaseDuration: 60 * time.Second, RenewDeadline: 40 * time.Second, RetryPeriod: 2 * time.Second,
	}
}

var pageField = regexp.MustCompile(`http://[0-9.:]+/debug/elections`)

// serve runs a replica until the test ends, and returns the address of its page.
func serve(t testing.TB, config bootstrap.Config) string {
	t.Helper()
	var lines harness.Log
	config.Logger = slog.New(slog.NewTextHandler(&lines, nil))
	server, err := bootstrap.New(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("%s logged:\n%s", config.Identity, lines.String())
		}
	})
	harness.Until(t, config.Identity+" serves its page", func() bool { return pageField.MatchString(lines.String()) })
	return pageField.FindString(lines.String())
}

// serverVariable is the environment variable that makes the test binary a server. Other variables configure it.
const serverVariable = "PAGE_TEST_SERVER"

// serveAsProcess runs such a server until SIGTERM.
func serveAsProcess() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	server, err := bootstrap.New(bootstrap.Config{
		Kubernetes: kube.Source{Path: os.Getenv("KUBECONFIG")}, Namespace: os.Getenv("POD_NAMESPACE"), Identity: "pilot-stable", Revision: "stable",
		Address: "127.0.0.1:0", DebugAddress: "127.0.0.1:0", CABundle: os.Getenv("CA_BUNDLE"), Lock: "lease", DisableGatewayAPI: true,
	})
	if err == nil {
		err = server.Run(ctx)
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		slog.Error("server", "err", err)
		os.Exit(1)
	}
}

// startServer starts such a server, and returns the address of its page.
func startServer(t testing.TB, home string) (server *harness.Process, page string) {
	t.Helper()
	bundle := filepath.Join(t.TempDir(), "root-cert.pem")
	if err := os.WriteFile(bundle, harness.CA(t), 0o600); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	server = harness.Start(t, "server", []string{
		serverVariable + "=true", "KUBECONFIG=" + cluster.Shared(t).Kubeconfig(), "POD_NAMESPACE=" + home, "CA_BUNDLE=" + bundle,
	}, self)
	harness.Until(t, "the server serves its page", func() bool { return pageField.MatchString(server.Out.String()) })
	return server, pageField.FindString(server.Out.String())
}

// flip changes the default revision.
func (p *plane) flip(t testing.TB, revision string) {
	t.Helper()
	patch := []byte(`{"metadata":{"labels":{"istio.io/rev":"` + revision + `"}}}`)
	_, err := p.kube.AdmissionregistrationV1().MutatingWebhookConfigurations().Patch(t.Context(), defaultTag, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// holds reports whether a candidate holds a Lease.
func holds(object runtime.Object, identity string) bool {
	lease, ok := object.(*coordinationv1.Lease)
	return ok && lease.Spec.HolderIdentity != nil && *lease.Spec.HolderIdentity == identity
}

// leads waits until a replica holds the lock of an election.
func (p *plane) leads(t testing.TB, election, identity string) {
	t.Helper()
	harness.Until(t, identity+" holds "+election, func() bool {
		lease, err := p.kube.CoordinationV1().Leases(p.home).Get(t.Context(), election, metav1.GetOptions{})
		return err == nil && holds(lease, identity)
	})
}
