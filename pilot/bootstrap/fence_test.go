package bootstrap

import (
	"fmt"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/fence"
	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/internal/testutil/fences"
)

// fenced is a table with one election. Its controller writes an object that no other test writes.
func (c *controller) fenced(e *environment) []election {
	rows := c.rows()
	rows[0].writes = []fence.Guard{{Resources: []string{"configmaps"}, Names: []string{e.guardedName()}, Namespaces: []string{e.home}}}
	return rows
}

func (e *environment) guardedName() string { return guarded + "-" + e.home }

// installFence installs a fence for such a table and returns a function that removes it.
func (e *environment) installFence(t *testing.T, rows []election) (remove func()) {
	t.Helper()
	_, remove = fences.Install(t, e.admin.Kube(), e.home, fence.Declaration{
		Election: electionID, Namespace: e.home, Lock: record.ConfigMap, ServiceAccounts: []string{e.home + "/pilot"}, Guards: rows[0].writes,
	})
	return remove
}

// TestFenceSelfTest tests the wiring of the self-test. Package internal/fence/install tests the self-test itself. The
// interval is an hour, so only a term or a change of the policies starts a test.
func TestFenceSelfTest(t *testing.T) {
	t.Parallel()
	e := newEnvironment(t)
	rows := newController().fenced(e)
	remove := e.installFence(t, rows)
	launch := func(pod, answer, role string) *replica {
		config := e.config(t, pod)
		config.Fence = true
		config.fenceEvery = time.Hour
		r := start(t, config, newController().fenced(e))
		await(t, pod+" has tested the fence", func() bool {
			return r.metric(t, fmt.Sprintf("incumbent_fence_checks_total{answer=%q,name=%q,role=%q}", answer, electionID, role)) != ""
		})
		return r
	}
	launch("a", "admitted", "leading")
	b := launch("b", "refused", "following")
	inEffect := func(want string) bool {
		now := b.election(t).Process.Fence
		return b.metric(t, fmt.Sprintf("incumbent_fence_in_effect{name=%q}", electionID)) == want && now != nil && now.InEffect == (want == "1")
	}
	await(t, "the fence is in effect", func() bool { return inEffect("1") })
	remove()
	await(t, "the fence is not in effect", func() bool { return inEffect("0") })
	if n := b.lines.Count("fence is not in effect"); n != 1 {
		t.Errorf("logged %d times", n)
	}
	if _, err := e.admin.Kube().CoreV1().ConfigMaps(e.home).Get(t.Context(), e.guardedName(), metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the object of the self-test exists: %v", err)
	}
}

// The fence guards the locks of all elections, and the writes of enabled controllers only.
func TestFencedElections(t *testing.T) {
	for name, test := range map[string]struct {
		config Config
		want   []string
	}{
		"default":     {Config{}, []string{"istio-namespace-controller-election 1", "istio-leader 0", "istio-gateway-status-leader 0", "istio-gateway-deployment 6", "incumbent-coordinator 0"}},
		"no gateways": {Config{DisableGatewayAPI: true}, []string{"istio-namespace-controller-election 1", "istio-leader 0", "istio-gateway-status-leader 0", "istio-gateway-deployment 0", "incumbent-coordinator 0"}},
	} {
		var got []string
		for _, e := range FencedElections(test.config) {
			got = append(got, fmt.Sprint(e.ID, " ", len(e.Guards)))
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %q", name, got)
		}
	}
}
