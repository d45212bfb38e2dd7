package inspect

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/members"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

const (
	handsOver = "v1 a 3 handover"
	holdKey   = "incumbent.dev/hold"
	holdOfAnn = `{"holder":"a","transitions":3,"seconds":60,"requester":"ann","reason":"pause","note":"backup"}`
)

// What stays as it is, or ends, is not said again; what changes is, and nothing else.
func TestChangesAreSaidOnce(t *testing.T) {
	of := func(notes ...string) *Election {
		e := Of(configMap(t, "e", recordOf("a", "stable", 3), append(notes, markerKey, handsOver)...))
		return &e
	}
	unfit := Of(configMap(t, "e", recordOf("a", "stable", 3), markerKey, handsOver+" unfit"))
	asked := func(to, requester, more string) *Election {
		return of("incumbent.dev/handover-request", fmt.Sprintf(`{"identity":%q,"reason":"operator","requester":%q,"holder":"a","transitions":3,"seconds":15%s}`, to, requester, more))
	}
	held, longer := of(holdKey, holdOfAnn), of(holdKey, strings.Replace(holdOfAnn, "60", "90", 1))
	next := Of(configMap(t, "e", recordOf("b", "stable", 4)))
	coordinated := func(holder, preferred string) *Election {
		e := Of(lease(t, "e", holder, "incumbent.dev/strategy", "x", "incumbent.dev/preferred-holder", preferred))
		return &e
	}
	for name, c := range map[string]struct {
		before, after *Election
		want          string
	}{
		"unfit still":         {&unfit, &unfit, ""},
		"fit again":           {&unfit, of(), ""},
		"asked for still":     {asked("b", "ann", ""), asked("b", "ann", ""), ""},
		"asked for by nobody": {of(), asked("", "", ""), "asked to hand over to whoever comes (operator, by ?)"},
		"asked for another":   {asked("b", "ann", ""), asked("c", "bob", ""), "asked to hand over to c (operator, by bob)"},
		"accepted":            {asked("b", "ann", ""), asked("b", "ann", `,"accepted":true`), "the leader accepts to hand over to b, and ends its work"},
		"held still":          {held, of(holdKey, holdOfAnn), ""},
		"held for longer":     {held, longer, "ann keeps it there for 90 s (pause)"},
		"held no more":        {held, of(), "rank counts again"},
		"taken while held":    {held, &next, "b (stable) took it from a and holds"},
		"named":               {coordinated("", ""), coordinated("a.e", ""), "a (stable) was named by the coordinator"},
		"preferred":           {coordinated("a.e", ""), coordinated("a.e", "b.e"), "the coordinator prefers b"},
		"preferred still":     {coordinated("a.e", "b.e"), coordinated("a.e", "b.e"), ""},
	} {
		if got := strings.Join(Changes(c.before, c.after), "; "); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// A coordinated election's candidates are known by their Pods, and called in the lock as there.
func TestWhoIsWhoInACoordinatedElection(t *testing.T) {
	l := lease(t, "e", "a.e", "incumbent.dev/strategy", "x", "incumbent.dev/preferred-holder", "b.e", "incumbent.dev/handover-request",
		`{"identity":"c.e","reason":"operator","requester":"ann","holder":"a.e","transitions":3,"seconds":15}`)
	e := Of(l)
	if e.Holder != "a" || e.Preferred != "b" || e.Request == nil || e.Request.To != "c" || e.Strategy != "x" {
		t.Errorf("it says %+v", e)
	}
	if e.Identity("b") != "b.e" || e.Identity("") != "" {
		t.Errorf("b is called %q in the lock, nobody %q", e.Identity("b"), e.Identity(""))
	}
	if left := Of(lease(t, "e", "a", "incumbent.dev/strategy", "x")); left.Holder != "a" || left.Identity("b") != "b" {
		t.Errorf("of a strategy that was left behind: %+v", left)
	}
	if other := Of(lease(t, "e", "a.e")); other.Holder != "a.e" || other.Identity("b") != "b" {
		t.Errorf("where nobody coordinates: %+v", other)
	}
}

// All that a record, its object and the notes beside it say is told.
func TestWhatALockSays(t *testing.T) {
	e := Of(configMap(t, "e", recordOf("a", "stable", 3), "incumbent.dev/handover-request",
		`{"identity":"b","key":"canary","reason":"operator","requester":"ann","note":"backup","holder":"a","transitions":3,"seconds":15}`))
	if want := (Request{To: "b", Key: "canary", Reason: "operator", Requester: "ann", Note: "backup"}); e.Request == nil || *e.Request != want {
		t.Errorf("%+v, want %+v", e.Request, want)
	}
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	if !e.Since.Equal(since) || !e.Renewed.Equal(since.Add(time.Minute)) || e.Version != "7" {
		t.Errorf("%+v", e)
	}
}

// Whose elector a holder runs is known of our leaders by their marker, and of istiod by who wrote the object last.
func TestWhoseElectorItIs(t *testing.T) {
	at := func(seconds int64) *metav1.Time { return new(metav1.Unix(seconds, 0)) }
	istiod := []metav1.ManagedFieldsEntry{{Manager: "pilot-discovery", Time: at(1)}}
	for name, c := range map[string]struct {
		entries []metav1.ManagedFieldsEntry
		marker  string
		want    string
	}{
		"one of ours":       {istiod, handsOver, "incumbent"},
		"one of ours once":  {nil, "v1 a 2 handover", ""},
		"istiod":            {istiod, "", "istiod"},
		"by a newer entry":  {append(istiod, metav1.ManagedFieldsEntry{Manager: "kubectl", Time: at(2)}), "", ""},
		"by an older entry": {append(istiod, metav1.ManagedFieldsEntry{Manager: "kubectl", Time: at(0)}), "", "istiod"},
		"within a second":   {append(istiod, metav1.ManagedFieldsEntry{Manager: "kubectl", Time: at(1)}), "", ""}, // entries are in the order of their writes
		"of no time":        {append(istiod, metav1.ManagedFieldsEntry{Manager: "kubectl"}), "", "istiod"},
		"another program":   {[]metav1.ManagedFieldsEntry{{Manager: "pilot", Time: at(1)}}, "", ""},
	} {
		holder, seconds, transitions := "a", int32(30), int32(3)
		notes := map[string]string{recordKey: recordOf("a", "stable", 3), markerKey: c.marker}
		meta := metav1.ObjectMeta{Namespace: "istio-system", Name: "e", Annotations: notes, ManagedFields: c.entries}
		ofConfigMap, _ := FromConfigMap(&meta)
		ofLease, _ := FromLease(&coordinationv1.Lease{ObjectMeta: meta, Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &holder, LeaseDurationSeconds: &seconds, LeaseTransitions: &transitions,
		}})
		for _, l := range []Lock{ofConfigMap, ofLease} {
			if e := Of(l); e.Program != c.want || e.Holder != "a" {
				t.Errorf("%s: the %s is of %q, want %q (%+v)", name, l.Kind, e.Program, c.want, e)
			}
		}
	}
}

// Where nobody has the lock, or it is kept, there is no peer that would say nothing.
func TestWhoTakesPartIsKnown(t *testing.T) {
	nominated := Of(configMap(t, "e", strings.Replace(recordOf("b", "stable", 3), "03:05:05", "03:04:05", 1), "incumbent.dev/nominated", "b"))
	if !nominated.Led() || nominated.State != Nominated || nominated.Known(true) {
		t.Errorf("%+v", nominated)
	}
	for _, l := range []Lock{
		configMap(t, "e", recordOf("", "", 3)),
		configMap(t, "e", recordOf("incumbent-successors", "", 3), "incumbent.dev/predecessor", "v1 incumbent-successors 3 a"),
	} {
		if e := Of(l); e.Led() || !e.Known(true) || e.Known(false) {
			t.Errorf("%+v", e)
		}
	}
}

func TestElectionsAreInOrder(t *testing.T) {
	in := func(l Lock, namespace string) Lock {
		l.Namespace = namespace
		return l
	}
	var got []string
	for _, e := range Elections([]Lock{
		in(configMap(t, "a", recordOf("", "", 3)), "two"), in(lease(t, "b", "a"), "one"), in(lease(t, "a", "a"), "one"), in(configMap(t, "b", recordOf("", "", 3)), "one"),
	}, nil, k8sleaderelection.DefaultRevision{}) {
		got = append(got, e.Namespace+"/"+e.Name+" "+e.Lock)
	}
	if want := []string{"one/a Lease", "one/b ConfigMap", "one/b Lease", "two/a ConfigMap"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// What a ConfigMap and a Lease of one name are to each other does not depend on which comes first.
func TestTwoObjectsInEitherOrder(t *testing.T) {
	const part = "incumbent.dev/multilock"
	free := func(notes ...string) Lock { return configMap(t, "e", recordOf("", "", 3), notes...) }
	for name, c := range map[string]struct {
		one, other Lock
		want       string // each election: kind, holder, and the beginning of what is wrong
	}{
		"one is free":            {lease(t, "e", "a"), free(), "ConfigMap  []; Lease a []"},
		"the other is free":      {lease(t, "e", ""), configMap(t, "e", recordOf("b", "stable", 3)), "ConfigMap b []; Lease  []"},
		"both are held":          {lease(t, "e", "a"), configMap(t, "e", recordOf("b", "stable", 3)), "ConfigMap b [there is a Confi]; Lease a [there is a Confi]"},
		"together by the Lease":  {lease(t, "e", "a", part, "v1 a 3"), free(), `Both a [its ConfigMap na]`},
		"together by the other":  {lease(t, "e", "a"), free(part, "v1 a 3"), `Both a [its ConfigMap na]`},
		"together and of a mind": {lease(t, "e", "a", part, "v1 a 3"), configMap(t, "e", recordOf("a", "stable", 3), part, "v1 a 3"), "Both a []"},
	} {
		for _, locks := range [][]Lock{{c.one, c.other}, {c.other, c.one}} {
			var got []string
			for _, e := range Elections(locks, nil, k8sleaderelection.DefaultRevision{}) {
				for i, problem := range e.Problems {
					e.Problems[i] = problem[:16]
				}
				got = append(got, fmt.Sprint(e.Lock, " ", e.Holder, " ", e.Problems))
			}
			if text := strings.Join(got, "; "); text != c.want {
				t.Errorf("%s: %s, want %s", name, text, c.want)
			}
		}
	}
}

func TestEachSignOfAnotherTerm(t *testing.T) {
	before := configMap(t, "e", recordOf("a", "stable", 3))
	anew := before
	anew.Snapshot.UID = "2"
	for name, after := range map[string]Lock{
		"made anew": anew, "another holder": configMap(t, "e", recordOf("b", "stable", 3)), "another term": configMap(t, "e", recordOf("a", "stable", 4)),
	} {
		if got := Compare(before, after, time.Hour); got != Moved {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestACandidateIsAsItsMemberSays(t *testing.T) {
	m := members.Member{Namespace: "istio-system", Identity: "a"}
	m.Elections = []members.Election{
		{Name: "e", Candidate: true, Fit: true}, {Name: "f", Candidate: true, Warm: true},
	}
	got := Candidates([]members.Member{m}, time.Time{})
	if len(got) != 2 || !got[0].Fit || got[0].Warm || got[1].Fit || !got[1].Warm {
		t.Errorf("%+v", got)
	}
}

// permutations are all orders in which some things can come.
func permutations[T any](all []T) (found [][]T) {
	if len(all) == 0 {
		return [][]T{nil}
	}
	for i := range all {
		for _, rest := range permutations(slices.Concat(all[:i], all[i+1:])) {
			found = append(found, append([]T{all[i]}, rest...))
		}
	}
	return found
}

// Who goes first, in whichever order they come: by rank where that counts, then who is able, then who is warm, then by name.
func TestWhoGoesFirst(t *testing.T) {
	takes := func(identity, key, is string) Candidate {
		return Candidate{
			Namespace: "istio-system", Election: "e", Identity: identity, Key: key,
			Warm: strings.Contains(is, "warm"), Fit: !strings.Contains(is, "unfit"), Late: strings.Contains(is, "late"),
		}
	}
	ranked, unranked := configMap(t, "e", recordOf("x", "beta", 3)), configMap(t, "e", recordOf("x", "", 3))
	free, own := configMap(t, "e", recordOf("", "", 3)), configMap(t, "e-stable", recordOf("", "", 3))
	synced := func(revision string) k8sleaderelection.DefaultRevision {
		return k8sleaderelection.DefaultRevision{Synced: true, Revision: revision}
	}
	for name, c := range map[string]struct {
		lock Lock
		d    k8sleaderelection.DefaultRevision
		all  []Candidate // as they have to be
	}{
		"by rank":                 {ranked, synced("canary"), []Candidate{takes("d", "canary", "unfit"), takes("c", "^canary", "warm"), takes("b", "stable", "warm"), takes("a", "^stable", "warm")}},
		"by rank, while free":     {free, synced("canary"), []Candidate{takes("b", "canary", ""), takes("a", "stable", "warm")}},
		"without rank":            {unranked, synced("canary"), []Candidate{takes("a", "^stable", "warm"), takes("b", "stable", "warm"), takes("c", "canary", "warm")}},
		"each revision its own":   {own, synced("stable"), []Candidate{takes("a", "^stable", "warm"), takes("b", "stable", "warm"), takes("c", "", "warm")}},
		"by ability":              {ranked, synced(""), []Candidate{takes("d", "stable", ""), takes("c", "stable", "late, warm"), takes("a", "stable", "unfit"), takes("b", "stable", "late")}},
		"by warmth":               {ranked, synced(""), []Candidate{takes("c", "stable", "warm"), takes("a", "stable", ""), takes("b", "stable", "")}},
		"the default not known":   {ranked, k8sleaderelection.DefaultRevision{Revision: "canary"}, []Candidate{takes("a", "stable", ""), takes("b", "canary", "")}},
		"no default, and no rank": {ranked, synced(""), []Candidate{takes("a", "stable", ""), takes("b", "", "")}},
	} {
		for _, order := range permutations(c.all) {
			for i := range order {
				order[i].Election = c.lock.Name
			}
			got := Elections([]Lock{c.lock}, order, c.d)[0].Candidates
			for i := range c.all {
				if got[i].Identity != c.all[i].Identity {
					t.Fatalf("%s: %+v", name, got)
				}
			}
		}
	}
}

// What becomes of an election is the same for a page that has sorted its candidates and for one that has not.
func TestOutcomesInDetail(t *testing.T) {
	takes := func(identity, key string, warm bool) Candidate {
		return Candidate{Identity: identity, Key: key, Warm: warm, Fit: true}
	}
	two := []Candidate{takes("b", "canary", true), takes("a1", "stable", true)}
	canary := k8sleaderelection.DefaultRevision{Synced: true, Revision: "canary"}
	for name, c := range map[string]struct {
		lock       Lock
		candidates []Candidate
		died       bool
		want       string
	}{
		"unfit, without rank":       {configMap(t, "e", recordOf("a", "", 3), markerKey, handsOver+" unfit"), two, false, "handover a1: the leader would rather not lead, and hands over to any candidate that is fit"},
		"unfit, and hands over not": {configMap(t, "e", recordOf("a", "canary", 3), markerKey, "v1 a 3 unfit"), two[1:], false, "stays a: its leader is of canary"},
		"its own member":            {configMap(t, "e", recordOf("a", "stable", 3), markerKey, handsOver), []Candidate{takes("a", "canary", true)}, false, "stays a: nobody of canary that is fit takes part"},
		"held, and remote":          {configMap(t, "e", recordOf("a", "^canary", 3), markerKey, handsOver, holdKey, holdOfAnn), two, false, "stays a: held there by ann (pause); after that rank counts again"},
		"both cold":                 {configMap(t, "e", recordOf("", "", 3)), []Candidate{takes("c", "canary", false), takes("b", "canary", false)}, false, "take b: the lock is free, and the first by rank goes first"},
		"warm":                      {configMap(t, "e", recordOf("a", "stable", 3), markerKey, handsOver), two, false, "handover b: the leader hands over when it is asked"},
		"died, without rank":        {configMap(t, "e", recordOf("a", "", 3)), two, true, "expire a1: the lease of one that was killed has to run out"},
		"died":                      {configMap(t, "e", recordOf("a", "stable", 3)), two, true, "expire b: the lease of one that was killed has to run out"},
	} {
		e := Of(c.lock)
		e.Candidates = c.candidates
		o := e.If(canary, true)
		if c.died {
			o = e.IfDied(canary, true)
		}
		why, _, _ := strings.Cut(o.Why, ", and the first by rank goes first; ")
		if got := fmt.Sprint(o.Move, " ", o.Leader, ": ", why); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
