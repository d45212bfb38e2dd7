package inspect

import (
	"fmt"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

func TestElections_Obstacles(t *testing.T) {
	const preferred, strategy, request = "incumbent.dev/preferred-holder", "incumbent.dev/strategy", "incumbent.dev/handover-request"
	free, stable := recordOf("", "", 3), recordOf("a", "stable", 3)
	member := func(identity, strategy string) Candidate {
		return Candidate{Namespace: "istio-system", Election: "e", Identity: identity, Strategy: strategy, Late: identity == "late"}
	}
	asks := func(to, more string) string {
		return fmt.Sprintf(`{"identity":%q,"reason":"operator","requester":"eve","holder":"a","transitions":3,"seconds":15%s}`, to, more)
	}
	inSpec := lease(t, "e", "a.e", strategy, defaultRevision, preferred, "ghost.e")
	inSpec.Snapshot.Object = &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{Strategy: new(coordinationv1.CoordinatedLeaseStrategy(defaultRevision))}}
	nominated := lease(t, "e", "ghost", "incumbent.dev/nominated", "ghost")
	kubectl := func(objects, annotation string) string {
		return "; to remove it: kubectl -n istio-system annotate " + objects + " " + annotation + "-"
	}
	tooLong := func(annotation, field string) string {
		return annotation + field + ": " + annotation + field + " is 27777h46m39s, longer than 168h0m0s, and counts as 168h0m0s. Its last writer is unknown, and the holder is a" +
			kubectl("configmap/e", annotation)
	}
	hour := lease(t, "e", "b")
	hour.Snapshot.Record.LeaseDurationSeconds = 3600
	hour.Snapshot.ManagedFields = []metav1.ManagedFieldsEntry{
		{Manager: "curl", Time: new(metav1.Unix(1, 0)), FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:leaseDurationSeconds":{}}}`)},
		{Manager: "b", Time: new(metav1.Unix(2, 0)), FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:renewTime":{}}}`)},
	}
	quote := configMap(t, "e", strings.Replace(recordOf("it's", "stable", 3), `:30,`, `:3600,`, 1))
	for name, c := range map[string]struct {
		lock       Lock
		candidates []Candidate
		want       string // the annotation, the effect and the command
	}{
		"long lease": {hour, nil, "leaseDurationSeconds: leaseDurationSeconds is 1h0m0s, longer than 5m0s, and counts completely. Its last writer is curl, and the holder is b" +
			`; to remove it: kubectl -n istio-system patch lease/e --type=merge -p '{"spec":{"leaseDurationSeconds":30}}'`},
		"long lease in a ConfigMap": {quote, nil, "leaseDurationSeconds: leaseDurationSeconds is 1h0m0s, longer than 5m0s, and counts completely. Its last writer is unknown, and the holder is it's" +
			`; to remove it: kubectl -n istio-system annotate configmap/e --overwrite --resource-version=7 'control-plane.alpha.kubernetes.io/leader=` +
			strings.Replace(recordOf("it's", "stable", 3), "'", `'\''`, 1) + "'"},
		"none":               {configMap(t, "e", stable, markerKey, handsOver), []Candidate{member("a", "")}, ""},
		"coordinated":        {lease(t, "e", "a.e", strategy, defaultRevision, preferred, "b.e"), []Candidate{member("a", defaultRevision), member("b", defaultRevision)}, ""},
		"handover":           {configMap(t, "e", stable, markerKey, handsOver, request, asks("b", "")), []Candidate{member("b", "")}, ""},
		"unknown candidates": {lease(t, "e", "a.e", strategy, "x.y/z", preferred, "b.e"), nil, ""},
		"no preference":      {lease(t, "e", "a.e", strategy, "x.y/z", preferred, "a.e"), []Candidate{member("b", "x.y/z")}, ""},
		"hold": {configMap(t, "e", stable, markerKey, handsOver, holdKey, holdOfAnn), nil,
			"incumbent.dev/hold: pause by ann: for 60s no candidate can acquire the lock by rank (reason: backup); to remove it: electionctl -n istio-system resume e"},
		"hold of a stranger": {configMap(t, "e", stable, markerKey, handsOver, holdKey, strings.Replace(holdOfAnn, "60", "99999999", 1)), nil,
			"incumbent.dev/hold: pause by ann: for 7d no candidate can acquire the lock by rank (reason: backup); to remove it: electionctl -n istio-system resume e" + tooLong(holdKey, " seconds")},
		"refused": {configMap(t, "e", stable, markerKey, handsOver, request, asks("b", `,"refused":"not warm"`)), []Candidate{member("b", "")},
			request + ": the leader refused to hand over to b: not warm" + kubectl("configmap/e", request)},
		"step-down": {configMap(t, "e", stable, markerKey, handsOver, request, asks("", `,"holdSeconds":99999999`)), nil,
			request + ": eve requested that the leader steps down and does not campaign for 7d" + kubectl("configmap/e", request) + tooLong(request, " holdSeconds")},
		"transfer to a missing candidate": {configMap(t, "e", stable, markerKey, handsOver, request, asks("ghost", "")), []Candidate{member("a", "")},
			request + ": eve requested a handover to ghost, which cannot acquire the lock" + kubectl("configmap/e", request)},
		"strategy of no candidate": {lease(t, "e", "a", strategy, "x.y/z", markerKey, handsOver), []Candidate{member("a", "")},
			strategy + ": a coordinator must choose the leader by x.y/z, which no candidate requests" + kubectl("lease/e", strategy)},
		"strategy without coordinator": {lease(t, "e", "", strategy, "x.y/z"), nil,
			strategy + ": a coordinator must choose the leader by x.y/z; remove it if no coordinator runs" + kubectl("lease/e", strategy)},
		"preference for a late candidate": {lease(t, "e", "a.e", strategy, defaultRevision, preferred, "late.e"), []Candidate{member("a", defaultRevision), member("late", defaultRevision)},
			preferred + ": the leader should hand over to late, which cannot acquire the lock" + kubectl("lease/e", preferred)},
		"preference without strategy": {lease(t, "e", "a", preferred, "a2", markerKey, handsOver), []Candidate{member("a", ""), member("a2", "")},
			preferred + ": it remained after its strategy was removed; candidates of a free lock wait up to a lease duration for a2" + kubectl("lease/e", preferred)},
		"strategy and preference": {lease(t, "e", "", strategy, "x.y/z", preferred, "b.e"), nil,
			strategy + ": a coordinator must choose the leader by x.y/z; remove it if no coordinator runs" + kubectl("lease/e", strategy) + " " + preferred + "-"},
		"invalid annotations": {configMap(t, "e", stable, markerKey, "v2", request, "{", holdKey, "[]"), nil,
			request + ": the value is invalid, so candidates ignore it" + kubectl("configmap/e", request) +
				holdKey + ": the value is invalid, so candidates ignore it" + kubectl("configmap/e", holdKey) +
				markerKey + ": the value is invalid, so candidates ignore it" + kubectl("configmap/e", markerKey)},
		"preference in the spec": {inSpec, []Candidate{member("a", defaultRevision)},
			`spec.preferredHolder: the leader should hand over to ghost, which cannot acquire the lock; to remove it: kubectl -n istio-system patch lease e --type=merge -p '{"spec":{"preferredHolder":null}}'`},
		"nomination": {nominated, []Candidate{member("a", "")},
			"incumbent.dev/nominated: the nominated holder ghost cannot acquire the lock" + kubectl("lease/e", "incumbent.dev/nominated")},
		"marker": {configMap(t, "e", free, markerKey, "v1 b 2"), nil,
			markerKey + ": b led in an earlier term and may still be active, so the next holder waits for a lease duration" + kubectl("configmap/e", markerKey)},
	} {
		got := ""
		for _, o := range Elections([]Lock{c.lock}, c.candidates, nil, k8sleaderelection.DefaultRevision{})[0].Obstacles {
			if got += o.Annotation + ": " + o.Effect; o.Remove != "" {
				got += "; to remove it: " + o.Remove
			}
		}
		if got != c.want {
			t.Errorf("%s:\n%q, want\n%q", name, got, c.want)
		}
	}
	l, _ := FromLease(&coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{Strategy: new(coordinationv1.CoordinatedLeaseStrategy("x"))}})
	if got, want := Elections([]Lock{l}, nil, nil, k8sleaderelection.DefaultRevision{})[0].Obstacles, specStrategy; len(got) != 1 || got[0].Annotation != want {
		t.Errorf("strategy in the spec: %v", got)
	}
}
