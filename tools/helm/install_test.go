package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/testutil/harness"
)

// The API server accepts the rendered objects of all trials and prunes no field.
func TestChart_AcceptedByAPIServer(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	for _, name := range []string{"istio-system", "istio-ingress"} {
		if _, err := p.kube.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	var all strings.Builder
	seen := map[string]bool{} // most documents repeat
	for name, c := range trials {
		text := c.text(t)
		if !strings.Contains(text, "kind: Deployment") {
			t.Errorf("%s: no Deployment", name)
		}
		for _, document := range strings.Split("\n"+text, "\n---\n") {
			if !seen[document] {
				seen[document] = true
				all.WriteString("\n---\n" + document)
			}
		}
	}
	p.dryRun(t, all.String())
	p.dryRun(t, mustTemplate(t, "tags", "tags", "--set", "default=a,tags.prod=b"))
}

// dryRun applies objects with kubectl --dry-run.
func (p place) dryRun(t *testing.T, objects string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, p.Kubectl(), "--kubeconfig", p.Kubeconfig(), "apply", "--dry-run=server", "--validate=strict", "-f", "-")
	command.Stdin = strings.NewReader(objects)
	var out bytes.Buffer
	command.Stdout, command.Stderr = &out, &out
	if err := command.Run(); err != nil {
		t.Errorf("kubectl apply --dry-run=server: %v\n%s", err, out.String())
	}
}

// Two revisions run as processes with the permissions of their charts. Both fences are in effect. The tags release
// moves the elections, and uninstalling one revision does not affect the other.
func TestInstall_BothRevisions(t *testing.T) {
	p := newPlace(t)
	program := filepath.Join(t.TempDir(), "pilot")
	build(t, ".", "./cmd/pilot", program)
	p.runPods(t, program)
	bundle := filepath.Join(t.TempDir(), "root-cert.pem")
	harness.Must(t, os.WriteFile(bundle, p.Admin().CAData, 0o600))
	quick := []string{
		"--set", "caBundle.file=" + bundle, "--set", "address=$(POD_IP):15014", "--set", "gatewayAPI.enabled=false",
		"--set", "elections.leaseDuration=15s", "--set", "elections.renewDeadline=10s", "--set", "elections.retryPeriod=2s", "--wait",
	}
	leads := func(revision string) {
		t.Helper()
		harness.Until(t, revision+" leads", func() bool {
			lock, err := p.kube.CoreV1().ConfigMaps(p.namespace).Get(t.Context(), "istio-namespace-controller-election", metav1.GetOptions{})
			return err == nil && strings.Contains(lock.Annotations["control-plane.alpha.kubernetes.io/leader"], fmt.Sprintf(`"holderKey":%q`, revision))
		})
	}
	notes := p.mustHelm(t, pilot("install", "stable", quick...)...)
	leads("stable")
	newCLI(t, p).runAll(notes, 3) // installs the chart tags
	p.mustHelm(t, pilot("install", "canary", quick...)...)
	for _, revision := range []string{"stable", "canary"} {
		p.waitForFence(t, program, revision)
	}
	p.verifyBothFences(t, program)
	p.checkFlowSchema(t, "pilot-stable")
	p.mustHelm(t, tags("upgrade", "tags", "--set", "default=canary")...)
	leads("canary")
	p.mustHelm(t, "rollback", "tags", "1")
	leads("stable")
	p.mustHelm(t, "uninstall", "canary", "--wait")
	p.waitForFence(t, program, "stable")
	p.mustHelm(t, "uninstall", "tags")
	p.mustHelm(t, "uninstall", "stable", "--wait")
	harness.Until(t, "all Pods have ended", func() bool {
		pods, err := p.kube.CoreV1().Pods(p.namespace).List(t.Context(), metav1.ListOptions{})
		return err == nil && len(pods.Items) == 0
	})
	// Otherwise electionctl knows members, and in other tests rejects revisions that do not run.
	harness.Must(t, p.kube.CoordinationV1().Leases(p.namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
}

// verifyFence runs `pilot fence verify`.
func (p place) verifyFence(t *testing.T, program string, args ...string) (string, error) {
	t.Helper()
	args = append([]string{"fence", "verify", "--kubeconfig", p.Kubeconfig(), "--namespace", p.namespace, "--allow-unclear", "-v"}, args...)
	command := exec.CommandContext(t.Context(), program, args...)
	command.Env = append(os.Environ(), "PILOT_ENABLE_GATEWAY_API=false")
	out, err := command.CombinedOutput()
	return string(out), err
}

// waitForFence waits until the fence of a revision is in effect. API servers load policies with a delay.
func (p place) waitForFence(t *testing.T, program, revision string) {
	t.Helper()
	var out string
	defer func() {
		if t.Failed() {
			t.Log(out)
		}
	}()
	harness.Until(t, "fence of "+revision, func() bool {
		var err error
		out, err = p.verifyFence(t, program, "--set", p.namespace+"-pilot-"+revision, "--revisions", revision, "--other-service-account", "pilot-*")
		return err == nil
	})
}

// verifyBothFences checks that `pilot fence verify` without a set finds the sets of both revisions.
func (p place) verifyBothFences(t *testing.T, program string) {
	t.Helper()
	out, err := p.verifyFence(t, program)
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	for _, revision := range []string{"stable", "canary"} {
		if !strings.Contains(out, "holds    policy incumbent-fence."+p.namespace+"-pilot-"+revision+".") {
			t.Errorf("no policy of revision %s in\n%s", revision, out)
		}
	}
}

// checkFlowSchema checks that only requests for locks match the flow schema of the chart.
func (p place) checkFlowSchema(t *testing.T, account string) {
	t.Helper()
	schema, err := p.kube.FlowcontrolV1().FlowSchemas().Get(t.Context(), account+"."+p.namespace, metav1.GetOptions{})
	harness.Must(t, err)
	pods, err := p.kube.CoreV1().Pods(p.namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "istio.io/rev=stable"})
	if err != nil || len(pods.Items) == 0 {
		t.Fatalf("%d Pods (%v)", len(pods.Items), err)
	}
	token, err := p.kube.CoreV1().ServiceAccounts(p.namespace).CreateToken(t.Context(), account, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pods.Items[0].Name, UID: pods.Items[0].UID}},
	}, metav1.CreateOptions{})
	harness.Must(t, err)
	config := rest.AnonymousClientConfig(p.Admin())
	config.BearerToken = token.Status.Token
	client, err := rest.HTTPClientFor(config)
	harness.Must(t, err)
	defer client.CloseIdleConnections()
	locks := "/api/v1/namespaces/" + p.namespace + "/configmaps/istio-namespace-controller-election"
	for _, request := range []struct {
		method, path string
		first        bool
	}{
		{http.MethodGet, locks, true},
		{http.MethodPut, locks, true},
		{http.MethodPatch, locks, true},
		{http.MethodGet, "/api/v1/namespaces/" + p.namespace + "/configmaps?watch=true&timeoutSeconds=1&fieldSelector=metadata.name%3Distio-namespace-controller-election", true},
		{http.MethodGet, "/apis/coordination.k8s.io/v1/namespaces/" + p.namespace + "/leases/istio-leader", true},
		{http.MethodGet, "/api/v1/namespaces/" + corev1.NamespaceDefault + "/configmaps/x", false},
		{http.MethodGet, "/api/v1/nodes", false},
	} {
		r, err := http.NewRequestWithContext(t.Context(), request.method, p.URL()+request.path, strings.NewReader("{}"))
		harness.Must(t, err)
		answer, err := client.Do(r)
		harness.Must(t, err)
		answer.Body.Close()
		if by := answer.Header.Get("X-Kubernetes-PF-FlowSchema-UID"); (by == string(schema.UID)) != request.first {
			t.Errorf("%s %s (%s): flow schema %s, the chart has %s", request.method, request.path, answer.Status, by, schema.UID)
		}
	}
}
