package fence

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/fence/install"
	"incumbent.dev/incumbent/internal/testutil/certs"
	"incumbent.dev/incumbent/pilot/bootstrap"
	"incumbent.dev/incumbent/pilot/bootstrap/manifests"
	"incumbent.dev/incumbent/pilot/controllers/namespace"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/fence"
	"incumbent.dev/incumbent/tests/cluster"
)

// bundle is a file with a CA's certificate.
func bundle(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), namespace.BundleKey)
	if err := os.WriteFile(name, certs.CA(t), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// serve runs a server under the manifests' rights, with a fence to test by itself.
func (s *stage) serve(t *testing.T, name, bundle string) (server *bootstrap.Server, end func()) {
	t.Helper()
	rights := bootstrap.Rights(bootstrap.Config{Revision: "stable"})
	config := s.cluster.Identity(t, cluster.IdentityOptions{
		Namespace: s.namespace, PodName: name, ServiceAccount: account,
		Rules: manifests.NamespaceRules(rights), ClusterRules: manifests.ClusterRules(rights),
	})
	server, err := bootstrap.New(bootstrap.Config{
		RESTConfig: config, Namespace: s.namespace, Identity: name, Revision: "stable", Address: "127.0.0.1:0", CABundle: bundle,
		LeaseDuration: 6 * time.Second, RenewDeadline: 4 * time.Second, RetryPeriod: time.Second, Fence: true,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	end = func() { cancel(); <-done }
	t.Cleanup(end)
	eventually(t, "the server listens", func() bool { return server.Address() != "" })
	return server, end
}

func page(t *testing.T, server *bootstrap.Server, path string) string {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: soon}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+server.Address()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// selfTest is what a server says of its fence.
type selfTest struct {
	Leading bool
	Fence   *struct {
		InEffect, Leading bool
		Answer, Detail  string
	}
}

func selfTestOf(t *testing.T, server *bootstrap.Server) selfTest {
	t.Helper()
	var all []selfTest
	text := page(t, server, "/debug/elections")
	if err := json.Unmarshal([]byte(text), &all); err != nil || len(all) == 0 {
		t.Fatalf("%v in %s", err, text)
	}
	return all[0]
}

func TestFenceIsTriedByTheServer(t *testing.T) {
	t.Parallel()
	s := newStage(t, fence.ConfigMap)
	config := install.Config{RESTConfig: s.cluster.Admin(), Namespace: s.namespace, Elections: bootstrap.FencedElections(bootstrap.Config{DisableGatewayAPI: true}), ServiceAccounts: []string{account}, Wait: soon}
	nobody := s.pod("nobody")
	if err := config.Install(t.Context(), io.Discard); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.quietly(config) })
	file := bundle(t)
	a, endA := s.serve(t, "a", file)
	found := func(server *bootstrap.Server, answer string, stands bool) func() bool {
		return func() bool {
			now := selfTestOf(t, server)
			return now.Fence != nil && now.Fence.Answer == answer && now.Fence.InEffect == stands && now.Fence.Leading == now.Leading
		}
	}
	metric := "incumbent_fence_in_effect{name=\"" + leaderelection.NamespaceController + "\"}"
	eventually(t, "a leads, and may write", found(a, "admitted", true))
	b, endB := s.serve(t, "b", file)
	eventually(t, "b follows, and may not", found(b, "refused", true))
	if detail := selfTestOf(t, b).Fence.Detail; !strings.Contains(detail, "pod b is not the leader") {
		t.Errorf("b heard %q", detail)
	}
	for _, server := range []*bootstrap.Server{a, b} {
		if text := page(t, server, "/metrics"); !strings.Contains(text, metric+" 1") {
			t.Errorf("no %s 1", metric)
		}
	}
	eventually(t, "the leader has worked", func() bool {
		_, err := s.admin.CoreV1().ConfigMaps(s.namespace).Get(t.Context(), namespace.ConfigMapName, metav1.GetOptions{})
		return err == nil
	})

	t.Log("the fence falls, and the next terms find out")
	if err := config.Remove(t.Context(), io.Discard); err != nil {
		t.Fatal(err)
	}
	declarations, err := config.Declarations()
	if err != nil {
		t.Fatal(err)
	}
	probe := fence.Probes(declarations...)[0].Object
	eventually(t, "the API server has noticed", func() bool {
		_, err := nobody.CoreV1().ConfigMaps(probe.GetNamespace()).Create(t.Context(),
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: probe.GetName()}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return exists(err) == nil
	})
	endA()
	eventually(t, "b leads", found(b, "admitted", true))
	c, _ := s.serve(t, "c", file)
	eventually(t, "c follows and sees that it may write", found(c, "admitted", false))
	if text := page(t, c, "/metrics"); !strings.Contains(text, metric+" 0") {
		t.Errorf("no %s 0", metric)
	}
	endB()
}
