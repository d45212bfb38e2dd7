package gateway

import (
	"bytes"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"incumbent.dev/incumbent/internal/fence/install"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/bootstrap"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pkg/kube"
	"incumbent.dev/incumbent/tests/cluster"
)

// After a handover the API server rejects writes of the former leader to managed objects, sent with its token
// and past its gate. It accepts writes to other objects and writes of other users. The status is not
// fenced by default.
func TestFence_DeploymentAfterHandover(t *testing.T) {
	p := newPlane(t)
	p.config.Fence = true
	former, next := p.identity("a"), p.identity("b")
	config := install.Config{
		RESTConfig: p.cluster.Admin(), Namespace: p.home, Revisions: []string{p.home}, Wait: harness.Patience, Verbose: true, Elections: bootstrap.FencedElections(bootstrap.Config{}),
	}
	other := metav1.ObjectMeta{Name: "of-another-revision", Labels: map[string]string{"gateway.istio.io/managed": "istio.io-gateway-controller", "incumbent.dev/revision": "other"}}
	_, err := p.admin.Kube().CoreV1().ServiceAccounts(p.home).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: other}, metav1.CreateOptions{})
	harness.Must(p.T, err)
	var output bytes.Buffer
	if err := config.Install(t.Context(), &output); err != nil {
		t.Fatalf("%v\n%s", err, &output)
	}
	defer func() { harness.Must(p.T, config.Remove(t.Context(), &output)) }()
	for _, want := range []string{"apps", "deployments", "services", "serviceaccounts"} {
		if !strings.Contains(output.String(), want) {
			t.Errorf("%s is missing in\n%s", want, &output)
		}
	}
	a := p.serve("a", former)
	p.gateway(p.home, "first")
	p.served(p.home, "first")
	p.until("fence in effect", func() bool {
		return a.Log.Count("fence is in effect", "election="+leaderelection.GatewayDeploymentController+"-"+p.home, "leading=true") > 0
	})
	write := func(c kube.Client, name string) error {
		_, err := c.Kube().AppsV1().Deployments(p.home).Patch(t.Context(), name, types.MergePatchType, []byte(`{"metadata":{"annotations":{"written":"`+name+`"}}}`), metav1.PatchOptions{})
		return err
	}
	stale := cluster.ClientFor(t, former)
	if err := write(stale, "first-istio"); err != nil {
		t.Errorf("the leader: %v", err)
	}

	b := p.serve("b", next)
	a.End()
	p.leads(b, leaderelection.GatewayDeploymentController)
	p.gateway(p.home, "second")
	p.served(p.home, "second")
	if err := write(cluster.ClientFor(t, next), "first-istio"); err != nil {
		t.Errorf("the new leader: %v", err)
	}
	rejected := func(err error) bool {
		return err != nil && strings.Contains(err.Error(), "pod a is not the leader: lease "+p.home+"/"+leaderelection.GatewayDeploymentController+"-"+p.home)
	}
	if err := write(stale, "first-istio"); !rejected(err) {
		t.Errorf("the former leader: %v", err)
	}
	accounts := stale.Kube().CoreV1().ServiceAccounts(p.home)
	managed := metav1.ObjectMeta{Name: "made-by-a", Labels: map[string]string{"gateway.istio.io/managed": "istio.io-gateway-controller"}}
	if _, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: managed}, metav1.CreateOptions{}); !rejected(err) {
		t.Errorf("the former leader creates: %v", err)
	}
	if _, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "plain"}}, metav1.CreateOptions{}); err != nil {
		t.Errorf("a ServiceAccount without the label: %v", err)
	}
	_, err = stale.Dynamic().Resource(gatewaysResource).Namespace(p.home).Patch(t.Context(), "first", types.MergePatchType, []byte(`{"status":{}}`), metav1.PatchOptions{}, "status")
	if err != nil {
		t.Errorf("the status: %v", err)
	}
}
