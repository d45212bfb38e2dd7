package bootstrap

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/members"
	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/internal/testutil/access"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/coordination"
	"incumbent.dev/incumbent/tests/cluster"
)

// coordinatedConfig is the configuration of a server that can be the coordinator and has a coordinated election.
func (e *environment) coordinatedConfig(t *testing.T, pod string) Config {
	t.Helper()
	c := Config{
		Config: leaderelection.Config{
			Namespace: e.home, Identity: pod, Revision: "stable", LeaseDuration: 60 * time.Second, RenewDeadline: 40 * time.Second, RetryPeriod: time.Second,
		},
		Address: "127.0.0.1:0", CABundle: "/no/such/file", LockType: "lease", Coordinator: true, ElectionStrategy: coordination.DefaultRevision,
	}
	rules := access.Of(t, "coordinated", e.home, "stable", electionID)
	c.RESTConfig = e.cluster.Identity(t, cluster.IdentityOptions{
		Namespace: e.home, PodName: pod, ServiceAccount: "pilot", Rules: rules.Namespace, ClusterRules: rules.Cluster,
	})
	return c
}

// coordinatedRows are the tests' own election and the election of the coordinator.
func coordinatedRows() []election {
	i := slices.IndexFunc(table, func(row election) bool { return row.id == leaderelection.Coordinator })
	return append(newController().rows(), table[i])
}

func (e *environment) lease(t *testing.T, name string) *coordinationv1.Lease {
	t.Helper()
	l, err := e.admin.Kube().CoordinationV1().Leases(e.home).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	return l
}

// The API server serves LeaseCandidates and has no coordinator. The server coordinates its own election, whose lock it creates, and an
// election with the strategy of Kubernetes. TestCoordinator_Gone has several processes.
func TestCoordinator(t *testing.T) {
	t.Parallel()
	e := newEnvironment(t)
	for name, emulated := range map[string]string{"m-1": "1.1.0", "m-2": "1.2.0"} {
		candidate, err := coordination.NewPublisher(coordination.PublisherConfig{
			CandidateConfig: coordination.CandidateConfig{BinaryVersion: "1.2.0", EmulationVersion: emulated, Strategy: coordination.OldestEmulationVersion},
			Client:          e.admin.Kube(), Namespace: e.home, Lease: "oldest", Pod: name, Logger: slog.New(slog.DiscardHandler),
		})
		harness.Must(t, err)
		harness.Background(t, candidate.Run)
	}
	config := e.coordinatedConfig(t, "d")
	config.OldestEmulation, config.EmulationVersion = true, "0.0.0-1"
	s := start(t, config, coordinatedRows())
	holds := func(lock, holder, strategy string) {
		t.Helper()
		await(t, holder+" holds "+lock, func() bool {
			l := e.lease(t, lock)
			return l.Spec.HolderIdentity != nil && *l.Spec.HolderIdentity == holder && l.Annotations[record.StrategyAnnotation] == strategy
		})
	}
	holds(leaderelection.Coordinator, "d", "")
	holds(electionID, "d."+electionID, coordination.DefaultRevision)
	holds("oldest", "m-1.oldest", coordination.OldestEmulationVersion) // the older emulation version
	await(t, "its own emulation version is published", func() bool {
		c, err := e.admin.Kube().CoordinationV1beta1().LeaseCandidates(e.home).Get(t.Context(), "d."+electionID, metav1.GetOptions{})
		return err == nil && c.Spec.EmulationVersion == "0.0.0-1"
	})
	await(t, "its member Lease has the strategy", func() bool {
		state := e.lease(t, "incumbent-member-d").Annotations["incumbent.dev/member-state"]
		return strings.Contains(state, `"warm":true,"fit":true,"strategy":"incumbent.dev/DefaultRevision"}`)
	})
	s.stop(t)
}

func TestMemberLease(t *testing.T) {
	t.Parallel()
	e := newEnvironment(t)
	config := e.config(t, "a")
	config.Revision = "a-revision"
	pod, err := e.admin.Kube().CoreV1().Pods(e.home).Get(t.Context(), "a", metav1.GetOptions{})
	harness.Must(t, err)
	config.PodUID = string(pod.UID)
	config.WitnessMode, config.WitnessSocket = WitnessSocket, "absent"
	list := func() (all []members.Member) {
		leases, err := e.admin.Kube().CoordinationV1().Leases(e.home).List(t.Context(), metav1.ListOptions{LabelSelector: members.Selector})
		harness.Must(t, err)
		for i := range leases.Items {
			m, err := members.Parse(&leases.Items[i])
			harness.Must(t, err)
			all = append(all, m)
		}
		return all
	}
	c := newController()
	c.cold = make(chan struct{})
	r := start(t, config, c.rows())
	want := members.Election{Name: electionID, Candidate: true, Fit: true}
	await(t, "the member is published before it is warm", func() bool {
		all := list()
		return len(all) == 1 && len(all[0].Elections) == 1 && all[0].Elections[0] == want
	})
	if m := list()[0]; m.Identity != "a" || m.Key() != "a-revision" || m.Version != ReadBuild().Version || m.PodUID != config.PodUID || m.Witness != "unreachable" || m.Late(time.Now(), time.Minute) {
		t.Errorf("the member is %+v", m)
	}
	close(c.cold)
	want.Warm = true
	await(t, "the member is warm", func() bool { return list()[0].Elections[0] == want })
	r.stop(t)
	if all := list(); len(all) > 0 {
		t.Errorf("after the stop: %+v", all)
	}
	config.DisableMember = true
	if mustNew(t, config, nil).member != nil {
		t.Error("a member Lease although it is disabled")
	}
}

func TestSemanticVersion(t *testing.T) {
	for text, want := range map[string]string{
		"v1.2.3": "1.2.3", "1.2.3": "1.2.3", "1.2.3-rc.1+build": "1.2.3-rc.1+build", "v0.0.0-20261123142546-43643c5aaaaa+dirty": "0.0.0-20261123142546-43643c5aaaaa+dirty",
		"(devel)": "0.0.0", "": "0.0.0", "1.2": "0.0.0", "01.2.3": "0.0.0", "1.02.3": "0.0.0", " 1.2.3": "0.0.0", "1.2.3 ": "0.0.0", "vv1.2.3": "0.0.0", "1.2.x": "0.0.0", "1..3": "0.0.0",
	} {
		if got := semanticVersion(text); got != want {
			t.Errorf("semanticVersion(%q) = %q, want %q", text, got, want)
		}
	}
}

func TestRefusal_Webhook(t *testing.T) {
	const down = `update: Internal error occurred: failed calling webhook "x": connection refused`
	for _, c := range []struct{ rejected, failed, want string }{
		{"", "", ""}, {"", "no response from the API server", ""}, {"", down, down}, {"forbidden", down, "forbidden"},
	} {
		now := leaderelection.Status{}
		now.Rejected, now.Failed = c.rejected, c.failed
		if got := refusal(now); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}
