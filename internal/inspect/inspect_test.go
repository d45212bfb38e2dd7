package inspect

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/members"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	recordKey = "control-plane.alpha.kubernetes.io/leader"
	markerKey = "incumbent.dev/leader"
)

func recordOf(holder, key string, transitions int) string {
	return fmt.Sprintf(`{"holderIdentity":%q,"holderKey":%q,"leaseDurationSeconds":30,"acquireTime":"2026-01-02T03:04:05Z","renewTime":"2026-01-02T03:05:05Z","leaderTransitions":%d}`, holder, key, transitions)
}

// configMap returns a lock with annotations: key, value, key, value.
func configMap(t *testing.T, name, record string, notes ...string) Lock {
	t.Helper()
	meta := metav1.ObjectMeta{Namespace: "istio-system", Name: name, UID: "1", ResourceVersion: "7", Annotations: map[string]string{recordKey: record}}
	for i := 0; i < len(notes); i += 2 {
		meta.Annotations[notes[i]] = notes[i+1]
	}
	lock, ok := FromConfigMap(&meta)
	if !ok {
		t.Fatal("no lock")
	}
	return lock
}

func lease(t *testing.T, name, holder string, notes ...string) Lock {
	t.Helper()
	seconds, transitions := int32(30), int32(3)
	l := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "istio-system", Name: name, Annotations: map[string]string{"leader.istio.io/holder-key": "stable"}},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, LeaseTransitions: &transitions},
	}
	for i := 0; i < len(notes); i += 2 {
		l.Annotations[notes[i]] = notes[i+1]
		if notes[i] == markerKey { // the holder's own write sets it
			l.Spec.AcquireTime = &metav1.MicroTime{Time: time.Unix(1_780_000_000, 0)}
		}
	}
	lock, ok := FromLease(l)
	if !ok {
		t.Fatal("no lock")
	}
	return lock
}

func TestOf_AnnotationsOfOtherTerms(t *testing.T) {
	request := `{"identity":"b","key":"canary","reason":"default-revision","requester":"b","holder":"a","transitions":%d,"seconds":15,"accepted":true}`
	hold := `{"holder":"a","transitions":%d,"seconds":60,"requester":"ann","reason":"pause","note":"backup"}`
	of := func(term int) Election {
		return Of(configMap(t, "e", recordOf("a", "stable", 3), "incumbent.dev/handover-request", fmt.Sprintf(request, term), "incumbent.dev/hold", fmt.Sprintf(hold, term)))
	}
	if e := of(3); e.Request == nil || e.Request.Identity != "b" || !e.Request.Accepted || e.Hold == nil || e.Hold.Note != "backup" {
		t.Errorf("%+v", e)
	}
	if e := of(2); e.Request != nil || e.Hold != nil {
		t.Errorf("%+v", e)
	}
	if e := Of(configMap(t, "e", recordOf("a", "stable", 3), markerKey, "v1 b 2")).With(nil, k8sleaderelection.DefaultRevision{}); e.Former != "b" || len(e.Obstacles) != 1 || !e.Obstacles[0].Severe {
		t.Errorf("%+v", e)
	}
	if e := Of(configMap(t, "e", "{", markerKey, "v1 b 2")); e.Former != "b" || len(e.Problems) != 1 || !strings.Contains(e.Problems[0], "candidates replace it") {
		t.Errorf("%+v", e)
	}
}

func TestFromLease_OtherLeases(t *testing.T) {
	for name, meta := range map[string]metav1.ObjectMeta{
		"heartbeat":  {Namespace: "kube-node-lease", Name: "node"},
		"member":     {Namespace: "istio-system", Labels: map[string]string{"incumbent.dev/member": "a"}},
		"API server": {Namespace: "kube-system", Labels: map[string]string{"apiserver.kubernetes.io/identity": "kube-apiserver"}},
		"component":  {Namespace: "kube-system", Labels: map[string]string{"k8s.io/component": "kube-apiserver"}},
	} {
		if _, ok := FromLease(&coordinationv1.Lease{ObjectMeta: meta}); ok {
			t.Error(name)
		}
	}
	if _, ok := FromConfigMap(&metav1.ObjectMeta{Name: "settings"}); ok {
		t.Error("a ConfigMap without a record")
	}
}

func TestCompare(t *testing.T) {
	before := configMap(t, "e", recordOf("a", "stable", 3))
	recreated := before
	recreated.Snapshot.UID = "2"
	for name, c := range map[string]struct {
		after Lock
		apart time.Duration
		want  Liveness
	}{
		"renewed":        {configMap(t, "e", strings.Replace(recordOf("a", "stable", 3), "03:05:05", "03:05:06", 1)), time.Minute, Renewed},
		"too early":      {before, 29 * time.Second, Undecided},
		"silent":         {before, 30 * time.Second, Silent},
		"recreated":      {recreated, time.Hour, Moved},
		"another holder": {configMap(t, "e", recordOf("b", "stable", 3)), time.Hour, Moved},
		"another term":   {configMap(t, "e", recordOf("a", "stable", 4)), time.Hour, Moved},
	} {
		if got := Compare(before, c.after, c.apart); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestCandidates(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	m := members.Member{Namespace: "istio-system", Identity: "a", Renewed: at, Duration: 90 * time.Second, PodUID: "u"}
	m.Revision, m.Cluster, m.Version = "stable", members.Remote, "v1"
	m.Elections = []members.Election{{Name: "e", Candidate: true, Warm: true}, {Name: "other"}, {Name: "fit", Candidate: true, Fit: true}, {Name: "e", Candidate: true}}
	want := Candidate{Namespace: "istio-system", Election: "e", Identity: "a", Key: "^stable", Warm: true, PodUID: "u", Version: "v1", Witness: "none"}
	if got := Candidates([]members.Member{m}, at.Add(149*time.Second)); len(got) != 2 || got[0] != want || got[1].Warm || !got[1].Fit {
		t.Errorf("%+v", got)
	}
	want.Late = true
	if got := Candidates([]members.Member{m}, at.Add(151*time.Second)); len(got) != 2 || got[0] != want {
		t.Errorf("%+v", got)
	}
	e := Elections([]Lock{configMap(t, "e", recordOf("a", "^stable", 3))}, []Candidate{want}, nil, k8sleaderelection.DefaultRevision{})[0]
	if !e.Known() {
		t.Error("the holder is a member")
	}
	e.Holder = "istiod"
	if e.Known() {
		t.Error("its holder is another elector, so there may be more candidates")
	}
	for namespace, known := range map[string]bool{"istio-system": true, "other": false} {
		free := Elections([]Lock{configMap(t, "e", recordOf("", "", 3))}, nil, map[string]bool{namespace: true}, k8sleaderelection.DefaultRevision{})[0]
		if free.Led() || free.Known() != known {
			t.Errorf("free, with members in %s: %+v", namespace, free)
		}
	}
}

// TestWords has further outcomes.
func TestOutcomes(t *testing.T) {
	const marker = "v1 a 3 handover"
	canary := k8sleaderelection.DefaultRevision{Synced: true, Revision: "canary"}
	takes := func(identity, key string, warm, fit bool) Candidate {
		return Candidate{Namespace: "istio-system", Election: "e", Identity: identity, Key: key, Warm: warm, Fit: fit}
	}
	hold := `{"holder":"a","transitions":3,"seconds":60,"requester":"ann","reason":"pause"}`
	cases := map[string]struct {
		lock       Lock
		candidates []Candidate
		want       string
	}{
		"handover":            {configMap(t, "e", recordOf("a", "stable", 3), markerKey, marker), []Candidate{takes("b", "canary", true, true)}, "handover b true"},
		"warm one first":      {configMap(t, "e", recordOf("a", "stable", 3), markerKey, marker), []Candidate{takes("b", "canary", false, true), takes("c", "canary", true, true)}, "handover c true"},
		"late":                {configMap(t, "e", recordOf("a", "stable", 3), markerKey, marker), []Candidate{late(takes("b", "canary", true, true))}, "stays a true"},
		"free, late":          {configMap(t, "e", recordOf("", "", 3)), []Candidate{late(takes("b", "canary", true, true)), takes("s", "stable", false, true)}, "acquire s false"},
		"unfit leader":        {configMap(t, "e", recordOf("a", "canary", 3), markerKey, marker+" unfit"), []Candidate{takes("a", "canary", true, true), takes("u", "stable", true, false), takes("b", "stable", true, true)}, "handover b true"},
		"free, cold first":    {configMap(t, "e", recordOf("", "", 3)), []Candidate{takes("c", "canary", false, true), takes("s", "stable", true, true)}, "acquire s true"},
		"free, by rank":       {configMap(t, "e", recordOf("", "", 3)), []Candidate{takes("a", "stable", true, true), takes("c", "canary", true, true)}, "acquire c true"},
		"free, unfit":         {configMap(t, "e", recordOf("", "", 3)), []Candidate{late(takes("a", "canary", true, false)), takes("c", "stable", true, false)}, "acquire c true"},
		"held":                {configMap(t, "e", recordOf("a", "stable", 3), markerKey, marker, "incumbent.dev/hold", hold), []Candidate{takes("b", "canary", true, true)}, "stays a true"},
		"local over remote":   {configMap(t, "e", recordOf("a", "^canary", 3), markerKey, marker), []Candidate{takes("b", "canary", true, true)}, "handover b true"},
		"free":                {configMap(t, "e", recordOf("", "", 3)), []Candidate{takes("s", "stable", true, true), takes("u", "canary", true, false), takes("c", "canary", true, true)}, "acquire c true"},
		"free, no candidates": {configMap(t, "e", recordOf("", "", 3)), nil, "stays  false"},
		"unfit, no rank":      {configMap(t, "e", recordOf("a", "", 3), markerKey, marker+" unfit"), []Candidate{takes("b", "canary", true, true)}, "handover b true"},
		"unfit, no handover":  {configMap(t, "e", recordOf("a", "canary", 3), markerKey, "v1 a 3 unfit"), []Candidate{takes("b", "stable", true, true)}, "stays a true"},
		"own member":          {configMap(t, "e", recordOf("a", "stable", 3), markerKey, marker), []Candidate{takes("a", "canary", true, true)}, "stays a true"},
		"both cold":           {configMap(t, "e", recordOf("", "", 3)), []Candidate{takes("c", "canary", false, true), takes("b", "canary", false, true)}, "acquire 2 of canary false"},
		"three equals":        {configMap(t, "e", recordOf("a", "stable", 3), markerKey, marker), []Candidate{takes("b", "canary", true, true), takes("c", "canary", true, true), late(takes("d", "canary", true, true))}, "handover 2 of canary true"},
		"free, of the rest":   {configMap(t, "e", recordOf("", "", 3)), []Candidate{takes("b", "beta", true, true), takes("s", "stable", true, true)}, "acquire 2 of  true"},
	}
	for name, c := range cases {
		e := Elections([]Lock{c.lock}, c.candidates, map[string]bool{"istio-system": true}, k8sleaderelection.DefaultRevision{})[0]
		o := withHolder(e).If(canary)
		leader := o.Leader
		if o.Candidates > 1 {
			leader = fmt.Sprintf("%d of %s", o.Candidates, o.Revision)
		}
		if got := fmt.Sprint(o.Move, " ", leader, " ", o.Warm); got != c.want {
			t.Errorf("%s: %s, want %s (%+v)", name, got, c.want, o)
		}
	}
}

// withHolder returns the election with its holder as a candidate, so that the candidates are known.
func withHolder(e Election) Election {
	if e.Candidates != nil && !e.Known() {
		e.Candidates = append(slices.Clone(e.Candidates), Candidate{Identity: e.Holder, Key: e.Key, Warm: true, Fit: true})
	}
	return e
}

func late(c Candidate) Candidate {
	c.Late = true
	return c
}
