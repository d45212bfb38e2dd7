package ctl

import (
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/members"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/leaderelection"
)

var ourRecord = strings.Replace(record, "istiod-stable-1", "pilot-1", 1)

// farAhead matches a clock that differs by hours.
var farAhead = regexp.MustCompile(`clock of pilot-1 is \d+h`)

const (
	marker    = "incumbent.dev/leader"
	ourMarker = "v1 pilot-1 3 handover"
)

// TestDoctor_Outcomes shows states of an election to doctor. TestEmergencies of package diagnosis has all states.
func TestDoctor_Outcomes(t *testing.T) {
	const stepDown = `{"reason":"operator","requester":"ann","holder":"pilot-1","transitions":3,"seconds":15,"holdSeconds":60}`
	free := strings.Replace(ourRecord, "pilot-1", "", 1)
	ready := members.Election{Name: "istio-leader", Candidate: true, Warm: true, Fit: true}
	type member struct {
		identity, revision string
		ago                time.Duration
		election           members.Election
	}
	leader, other := member{"pilot-1", "stable", 0, ready}, member{"pilot-2", "canary", 0, ready}
	for name, c := range map[string]struct {
		record  string // empty: no lock
		marker  string
		members []member
		tag     string
		code    int
		want    string
	}{
		"healthy":      {ourRecord, ourMarker, []member{leader, other}, "stable", Done, "leaders         ok        each election has a leader and another candidate that can lead\ndefault         ok        the default revision is stable"},
		"no process":   {free, "", nil, "", unhealthy, "NAMESPACE/istio-leader has no leader: free; candidates: unknown\n                          Start the pods of a candidate. Only their logs have the reason if they run.\n                          → kubectl -n NAMESPACE get deployments,pods"},
		"no lock":      {"", "", []member{other}, "", unhealthy, "NAMESPACE/istio-leader has no lock: its candidate pilot-2 does not create it"},
		"clock behind": {ourRecord, ourMarker, []member{leader, {"pilot-2", "canary", 90*time.Minute + 30*time.Second, ready}}, "", Done, "the clock of pilot-2 is 1h30m"},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnvironment(t)
			if c.record != "" {
				e.lock("istio-leader", c.record, marker, c.marker)
			}
			for _, m := range c.members {
				e.memberOf(m.identity, m.revision, "", m.ago, m.election)
			}
			if c.tag != "" {
				e.tag(c.tag, 0, map[string]string{})
			}
			got := e.run("doctor")
			e.expect(got, c.code, c.want)
			if name == "healthy" && farAhead.MatchString(got.out) { // the record differs from the clock by months
				t.Error("a clock is wrong")
			}
		})
	}
	t.Run("cool-down", func(t *testing.T) {
		e := newEnvironment(t)
		e.lock("istio-leader", free)
		e.memberOf("pilot-1", "stable", "", 0, members.Election{Name: "istio-leader", Candidate: true, Warm: true, Fit: true, BackingOff: true})
		e.expect(e.run("list"), Done, "free, pilot-1 is cooling down")
		e.expect(e.run("explain", "istio-leader"), Done, "Next leader: pilot-1; gap: until the cool-down ends, at most a lease")
		e.lock("f", ourRecord, marker, ourMarker, "incumbent.dev/handover-request", stepDown)
		e.expect(e.run("list"), Done, "handover to any candidate requested")
	})
}

// TestDoctor_OtherLock shows a Lease that is not used next to the ConfigMap of the leader.
func TestDoctor_OtherLock(t *testing.T) {
	e := newEnvironment(t)
	stop := e.elect("work", "a", "stable", leaderelection.LockTypeLease, nil)
	e.shows("work", "a", "leads")
	stop()
	e.elect("work", "b", "stable", leaderelection.LockTypeConfigMap, nil)
	e.shows("work", "b", "leads")
	e.expect(e.run("doctor"), Done, "NAMESPACE/work: the Lease is not used, because the lock of another type has the leader b\n                          → kubectl -n NAMESPACE delete lease/work")
	e.expect(e.run("pause", "work", "--yes"), Done, "set a hold for 60m (pause)")
}

// TestDoctor_Pods shows each state of the holder's pod to doctor.
func TestDoctor_Pods(t *testing.T) {
	e := newEnvironment(t)
	e.lock("istio-leader", ourRecord, marker, ourMarker)
	for _, name := range []string{"pilot-1", "pilot-2"} {
		e.running(name, "stable")
		pod, err := e.kube.CoreV1().Pods(e.namespace).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		e.memberOf(name, "stable", pod.UID, 0, members.Election{Name: "istio-leader", Candidate: true, Warm: true, Fit: true})
	}
	e.expect(e.run("doctor"), Done, "each election has a leader and another candidate that can lead")
	e.crashes("pilot-2")
	got := e.run("explain", "istio-leader")
	e.expect(got, Done, "Warning: NAMESPACE/istio-leader has no candidate that can replace the leader: 1 of 2 pods of revision stable do not run: CrashLoopBackOff: container pilot ended with exit code 2 (Error): unknown flag\n"+
		"  Only a change of the program or its settings can fix this. Its log has the reason.\n  → kubectl -n NAMESPACE logs pilot-2 -c pilot --previous\n")
	e.expect(got, Done, "not running   warm")
	e.starts("pilot-2")
	now := int64(0)
	if err := e.kube.CoreV1().Pods(e.namespace).Delete(t.Context(), "pilot-1", metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		t.Fatal(err)
	}
	e.expect(e.run("doctor"), unhealthy, "NAMESPACE/istio-leader has no live leader: pod pilot-1 does not exist; other candidates: pilot-2 (ready)")
	e.expect(e.run("explain", "istio-leader"), Done, "state        recorded as leader until its lease expires")
	e.expect(e.run("list"), Done, "leads, see explain", "Problem: NAMESPACE/istio-leader has no live leader: pod pilot-1 does not exist; other candidates: pilot-2 (ready)\n"+
		"  A candidate acquires the lock when the lease of 600 s expires.\n")
	e.pod("pilot-1", "stable")
	e.expect(e.run("doctor"), unhealthy, "NAMESPACE/istio-leader has no live leader: pod pilot-1 was replaced")
	if err := e.kube.CoordinationV1().Leases(e.namespace).Delete(t.Context(), members.LeaseName("pilot-1"), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	e.expect(e.run("doctor"), unhealthy, "NAMESPACE/istio-leader has no live leader: pod pilot-1 does not run: no container runs (Pending)")
}

// crashes sets the status of a pod to CrashLoopBackOff.
func (e *environment) crashes(name string) {
	e.t.Helper()
	pods := e.kube.CoreV1().Pods(e.namespace)
	pod, err := pods.Get(e.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		e.t.Fatal(err)
	}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "pilot", RestartCount: 3, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
		LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 2, Reason: "Error", Message: "unknown flag"}},
	}}
	e.must(pods.UpdateStatus(e.t.Context(), pod, metav1.UpdateOptions{}))
}

// TestTerminating shows a namespace that is being deleted to each tool.
func TestTerminating(t *testing.T) {
	e := newEnvironment(t)
	e.lock("istio-leader", strings.Replace(ourRecord, "pilot-1", "", 1))
	e.must(nil, e.kube.CoreV1().Namespaces().Delete(t.Context(), e.namespace, metav1.DeleteOptions{}))
	const why = "namespace NAMESPACE is being deleted (Terminating)"
	e.expect(e.run("doctor"), unhealthy, "CHECK           VERDICT   MESSAGE\nleaders         problem   NAMESPACE/istio-leader has no leader: "+why)
	if got := e.run("explain", "istio-leader"); !strings.HasPrefix(got.out, "Problem: NAMESPACE/istio-leader has no leader: "+why) {
		t.Errorf("%+v", got)
	}
	e.must(nil, e.kube.CoreV1().ConfigMaps(e.namespace).Delete(t.Context(), "istio-leader", metav1.DeleteOptions{}))
	e.expect(e.run("doctor"), NotFound, "", "no elections found: "+why)
	e.expect(e.run("list"), Done, "", "no elections found: "+why)
}

// TestDoctor_Deletions shows a lock that is deleted repeatedly to doctor.
func TestDoctor_Deletions(t *testing.T) {
	e := newEnvironment(t)
	e.lock("istio-leader", ourRecord)
	now := metav1.Now()
	e.must(e.kube.CoreV1().Events(e.namespace).Create(t.Context(), &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: "deleted"}, InvolvedObject: corev1.ObjectReference{Kind: "ConfigMap", Namespace: e.namespace, Name: "istio-leader"},
		Reason: "LeaderElection", Message: "pilot-1 " + lockDeleted, FirstTimestamp: metav1.NewTime(now.Add(-time.Minute)), LastTimestamp: now, Count: 5,
	}, metav1.CreateOptions{}))
	e.expect(e.run("doctor"), unhealthy, "NAMESPACE/istio-leader loses its leaders: the lock configmap/istio-leader was deleted under a leader 5 times since 2026-01-02T03:04:05Z")
}

// TestForbidden checks that a missing permission makes a result unknown.
func TestForbidden(t *testing.T) {
	e := newEnvironment(t)
	meta := metav1.ObjectMeta{Name: "reader"}
	role := &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"list"}}}}
	binding := &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: rbacv1.RoleRef{Kind: "Role", Name: "reader"}, Subjects: []rbacv1.Subject{{Kind: "User", Name: "reader"}}}
	rbac := e.kube.RbacV1()
	e.must(rbac.Roles(e.namespace).Create(t.Context(), role, metav1.CreateOptions{}))
	e.must(rbac.RoleBindings(e.namespace).Create(t.Context(), binding, metav1.CreateOptions{}))
	reads := func(args ...string) (got result) {
		harness.Until(t, "the role is in effect", func() bool {
			got = e.run(append(args, "--as", "reader")...)
			return !strings.Contains(got.errs, "cannot list resource \"leases\"")
		})
		return got
	}
	e.expect(reads("list"), Done, "", "elections are unknown: configmaps is forbidden")
	e.expect(reads("plan", "--default-revision", "x"), Refused, "", "elections are unknown: configmaps is forbidden")
	e.expect(reads("explain", "istio-leader"), Refused, "", "election istio-leader is unknown: configmaps is forbidden")
	e.elect("istio-leader", "pilot-1", "stable", leaderelection.LockTypeLease, nil)
	e.shows("istio-leader", "leads")
	e.member("pilot-2", "canary", "", 0, true, true)
	e.member("pilot-3", "stable", "", 0, true, true)
	got := reads("explain", "istio-leader")
	e.expect(got, Done, "Candidates, in unknown order of rank:")
	e.expect(got, Done, "If its holder died: one of 2 candidates, when the lease expires")
	got = reads("doctor")
	e.expect(got, Done, "leaders       unknown   pods is forbidden")
	e.expect(got, Done, "locks         unknown   configmaps is forbidden")
}
