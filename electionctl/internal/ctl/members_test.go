package ctl

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"incumbent.dev/incumbent/internal/inspect"
	"incumbent.dev/incumbent/internal/members"
	"incumbent.dev/incumbent/internal/testutil/golden"
	"incumbent.dev/incumbent/internal/testutil/harness"
)

// member creates the member Lease of a candidate of istio-leader.
func (e *environment) member(identity, revision string, pod types.UID, ago time.Duration, warm, fit bool) {
	e.t.Helper()
	e.memberOf(identity, revision, pod, ago, members.Election{Name: "istio-leader", Candidate: true, Warm: warm, Fit: fit})
}

func (e *environment) memberOf(identity, revision string, pod types.UID, ago time.Duration, elections ...members.Election) {
	e.t.Helper()
	state, err := json.Marshal(members.State{Revision: revision, Cluster: members.Local, Version: "v1", Witness: "parent", Elections: elections})
	if err != nil {
		e.t.Fatal(err)
	}
	seconds, at := int32(900), metav1.NewMicroTime(time.Now().Add(-ago))
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Name: members.LeaseName(identity), Labels: map[string]string{members.Label: members.LabelValue}, Annotations: map[string]string{members.StateAnnotation: string(state)},
		},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &identity, LeaseDurationSeconds: &seconds, RenewTime: &at},
	}
	if pod != "" {
		lease.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: identity, UID: pod}}
	}
	options := metav1.CreateOptions{FieldManager: "incumbent-member"} // the API server's time counts
	if ago == time.Hour {
		options.FieldManager = "old" // the time in the Lease counts
	}
	e.must(e.kube.CoordinationV1().Leases(e.namespace).Create(e.t.Context(), lease, options))
}

// completes waits until the shell completion offers words. It offers none if the API server is slow.
func (e *environment) completes(words string, args ...string) {
	e.t.Helper()
	harness.Until(e.t, "completion of "+strings.Join(args, " "), func() bool {
		return strings.Contains(e.run(append([]string{"__complete"}, args...)...).out, words)
	})
}

// -o wide prints each candidate.
func TestCandidateNames_All(t *testing.T) {
	var e inspect.Election
	for i := range 60 {
		e.Candidates = append(e.Candidates, inspect.Candidate{Identity: fmt.Sprint("p", i), Witness: fmt.Sprint("w", i%2)})
	}
	for _, got := range []string{candidateNames(e), witnesses(e.Candidates)} {
		if words := strings.Split(got, ","); len(words) != 60 {
			t.Errorf("got %q", got)
		}
	}
}

func TestMembers(t *testing.T) {
	e := newEnvironment(t)
	e.lock("istio-leader", strings.ReplaceAll(record, "istiod", "pilot"), "incumbent.dev/leader", "v1 pilot-stable-1 3 handover")
	e.member("pilot-stable-1", "stable", "", 0, true, true)
	e.member("pilot-canary-1", "canary", "", 0, true, true)
	e.member("pilot-canary-2", "canary", "", 0, false, true)
	e.member("pilot-canary-3", "canary", "", 0, true, false)
	e.member("pilot-canary-4", "canary", "", time.Hour, true, true)
	e.member("pilot-canary-5", "canary", "gone", 0, true, true)
	e.pod("pilot-canary-5", "canary")
	e.member("pilot-canary-6", "canary", "gone", 0, true, true)

	for file, args := range map[string][]string{
		"members-explain.txt": {"explain", "istio-leader", "--default-revision", "canary"},
		"members-wide.txt":    {"list", "-o", "wide"},
		"members-plan.txt":    {"plan", "--default-revision", "canary"},
	} {
		got := e.run(args...)
		e.expect(got, Done, "")
		golden.File(t, "testdata/"+file, got.out)
	}
	for to, c := range map[string]struct {
		code int
		says string
	}{
		"pilot-canary-2": {Refused, "the caches of pilot-canary-2 are not warm yet"},
		"pilot-canary-3": {Refused, "is not fit to lead"},
		"pilot-canary-5": {Refused, "pod pilot-canary-5 was replaced"},
		"pilot-canary-6": {NotFound, "pod pilot-canary-6 not found"},
		"pilot-beta-1":   {NotFound, "pilot-beta-1 is no candidate of istio-leader; candidates: pilot-canary-1, "},
	} {
		e.expect(e.run("transfer", "istio-leader", "--to", to, "--yes"), c.code, "", c.says)
	}
	e.expect(e.run("plan", "--default-revision", "beta"), NotFound, "", "no candidate has revision beta (revisions: canary, stable); install it first")
	e.completes("pilot-canary-1\n", "transfer", "istio-leader", "--to", "")
	e.completes("canary\nstable\n", "plan", "--default-revision", "")
	e.completes("table\nwide\n", "list", "-o", "")
	newEnvironment(t).completes("canary\n", "default", "set", "")
	e.expect(e.run("version"), Done, "electionctl (devel), go")
	explained := e.run("explain", "istio-leader", "-o", "json", "--default-revision", "canary")
	e.expect(explained, Done, `"reason": "There is no default revision`)
	e.expect(explained, Done, `"ifHolderDied": {`)
	e.expect(explained, Done, `"ifDefaultRevision": {`)
	if o := e.run("list", "-o", "json"); !strings.Contains(o.out, `"holder": "pilot-stable-1"`) {
		t.Error(o)
	}
}

// An API server without LeaseCandidates, or a fence, does not coordinate an election although candidates request it.
func TestUncoordinated(t *testing.T) {
	e := newEnvironment(t)
	e.lock("istio-leader", strings.ReplaceAll(record, "istiod", "a.istio-leader"), "incumbent.dev/leader", "v1 a.istio-leader 3 handover")
	for _, pod := range []string{"a", "b"} {
		e.memberOf(pod, "stable", "", 0, members.Election{
			Name: "istio-leader", Candidate: true, Warm: true, Fit: true, Strategy: "incumbent.dev/DefaultRevision",
			Uncoordinated: "the API server does not serve LeaseCandidates",
		})
	}
	e.expect(e.run("explain", "istio-leader"), Done, "coordinated  no: the API server does not serve LeaseCandidates")
	if got := e.run("doctor"); !strings.Contains(got.out, "istio-leader is not coordinated, although candidates request it: the API server does not serve LeaseCandidates") {
		t.Errorf("%+v", got)
	}
	install := []string{"fence", "install", "--revisions", "stable", "--service-account", "pilot", "--lock", "lease", "--wait", "0", "--keep"}
	e.expect(e.run(install...), Done, "istio-leader")
	rejects := "the fence NAMESPACE rejects the coordinated candidates of NAMESPACE/istio-leader, for example a"
	if got := e.run("doctor"); !strings.Contains(got.out, rejects) {
		t.Errorf("%+v", got)
	}
	e.expect(e.run(append(install, "--coordinated")...), Done, "istio-leader")
	if got := e.run("doctor"); strings.Contains(got.out, "rejects the coordinated") {
		t.Errorf("%+v", got)
	}
	e.expect(e.run("fence", "remove", "--revisions", "stable"), Done, "removed") // other tests use the cluster
}
