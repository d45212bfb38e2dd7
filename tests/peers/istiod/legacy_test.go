package istiod

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"istio.io/istio/pilot/pkg/leaderelection"
	istiokube "istio.io/istio/pkg/kube"

	"incumbent.dev/incumbent/tests/upgrade/rollout"
)

// legacyLock is the shared lock of istiods without a status election per revision.
const legacyLock = `
apiVersion: v1
kind: ConfigMap
metadata:
  name: istio-gateway-status-leader
  namespace: istio-system
  annotations: {control-plane.alpha.kubernetes.io/leader: '%s'}
`

// With each content of the legacy lock, a revision writes the status of its Gateways as soon as no older istiod can.
func TestLegacyLock(t *testing.T) {
	r := &report{lab: start(t, map[string]string{"istiod": program(t, "ISTIOD")}, nil)}
	for _, revision := range []string{stable, canary} {
		r.kubectl(fmt.Sprintf(gateways, revision), "apply", "-f", "-")
	}
	for name, record := range map[string]string{
		"unreadable":                 "{",
		"a holder that is not alive": `{"holderIdentity":"istiod-old","holderKey":"default","leaseDurationSeconds":30,"acquireTime":"2026-01-02T03:04:05Z","renewTime":"2026-01-02T03:04:05Z","leaderTransitions":3}`,
	} {
		r.kubectl(fmt.Sprintf(legacyLock, record), "apply", "-f", "-")
		began := time.Now()
		r.incumbent(1)
		r.editGateways([]string{stable})
		t.Logf("%s: status written after %v", name, time.Since(began).Round(time.Second))
		r.must(r.Uninstall(t.Context(), stable))
		r.kubectl("", "-n", home, "delete", "configmap", leaderelection.GatewayStatusController)
	}

	client, err := istiokube.NewClient(istiokube.NewClientConfigForRestConfig(r.Cluster.Admin()), "older")
	r.must(err)
	stop, leads := make(chan struct{}), make(chan struct{})
	ended := make(chan struct{})
	older := leaderelection.NewLeaderElection(home, "istiod-older", leaderelection.GatewayStatusController, "older", client)
	begun := sync.OnceFunc(func() { close(leads) }) // it may lose its lease on a busy machine
	older.AddRunFunction(func(<-chan struct{}) { begun() })
	client.RunAndWait(stop)
	go func() {
		defer close(ended)
		older.Run(stop)
	}()
	<-leads
	since := r.version()
	r.must(r.Apply(t.Context(), rollout.Release{Revision: stable, Replicas: 1}))
	r.must(r.AwaitReady(t.Context(), stable, 1))
	r.install(canary, "istiod", 1)
	r.kubectl("", "-n", stable+"-gateways", "annotate", "gateways.gateway.networking.k8s.io", "web", "edited=yes")
	r.await("the server waits for the legacy lock", func() string {
		for _, p := range r.pods(stable) {
			if text, err := os.ReadFile(p.Log); err == nil && strings.Contains(string(text), "waiting for the predecessor's lock") {
				return ""
			}
		}
		return "no log line"
	})
	if writers := r.writers(stable+"-gateways", since); len(writers) > 0 {
		t.Errorf("%v wrote the status while an older istiod leads", writers)
	}
	close(stop)
	<-ended
	r.editGateways([]string{stable, canary})
}
