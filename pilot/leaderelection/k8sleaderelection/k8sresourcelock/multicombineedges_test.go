package k8sresourcelock

import (
	"fmt"
	"maps"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// wholly is inShort with what it leaves out: in which objects it stands, whatever it is.
func wholly(s Snapshot) string {
	switch {
	case !s.Exists:
		return fmt.Sprintf("absent %d %d", s.Parts[0].Version, s.Parts[1].Version)
	case s.Unreadable != nil || s.Raw == nil:
		return fmt.Sprintf("%s in %d", inShort(s), standsIn(s))
	}
	return inShort(s)
}

func TestCombineAtTheEdges(t *testing.T) {
	for _, c := range []struct{ name, primary, secondary, want string }{
		{"never there", "@0 absent", "@0 absent", "absent 0 0"},
		{"neither, and when they went", "@9 absent", "@8 absent", "absent 9 8"},
		{"neither, deleted together", "@8 absent", "@8 absent", "absent 8 8"},
		{"the primary unreadable", "@7 unreadable", "@8 b/3 half", "unreadable in 1"},
		{"the secondary unreadable", "@9 c/3", "@8 unreadable", "unreadable in 2"},
		{"both unreadable", "@8 unreadable", "@9 unreadable", "unreadable in 1"},
		{"the primary empty, the secondary gone", "@5 no-record", "@9 absent", "no record in 1"},
		{"the secondary empty, the primary gone", "@9 absent", "@5 no-record", "no record in 2"},
		{"both empty, the primary newer", "@9 no-record", "@8 no-record", "no record in 1"},
		{"both empty, the secondary newer", "@8 no-record", "@9 no-record", "no record in 2"},
		{"the secondary emptied", "@5 b/3 half=s", "@9 no-record", "b/3 in 1"},
		{"a peer keeps a nomination that is over", "@9 p/5 nominated renewed", "@8 b/4 half", "p/5 in 1"},
		{"a nominee that has written the secondary alone", "@9 c/5 nominated", "@7 c/5 half", "c/5 in 1"},
		{"a third step's holder beside a newer claim", "@9 b/5 half=s", "@8 l/4", "l/4 in 2"},
		{"one and three, the third newer", "@8 c/3", "@9 l/3", "l/3 in 2"},
		{"one and three, the third is oneself", "@8 c/3", "@9 me/3", "c/3 in 1"},
		{"one and three, of stores that count alike", "@9 c/3", "@9 l/3", "c/3 in 1"},
		{"both free, of different terms", "@7 -/3", "@8 -/4", "-/4 in 2"},
		{"both free, of different terms, the primary newer", "@9 -/5", "@8 -/4", "-/5 in 1"},
		{"two that need both, the newer", "@7 b/4 half=s", "@8 a/3 half", "a/3 in 2"},
		{"a claim decided without a secondary, and then there is one", "@7 b/4 half", "@9 -/0", "-/0 in 2"},
		{"a claim over a higher count", "@9 b/4 half=s", "@8 -/7", "b/4 in 1"},
		{"a claim over a higher count of the same age", "@8 b/4 half=s", "@8 -/7", "b/4 in 1"},
		{"a claim, and a late nomination to its term", "@7 b/4 half=s", "@8 b/4 nominated", "b/4 in 1"},
		{"a claim, and a later term ended", "@7 b/4 half=s", "@8 -/5", "-/5 in 2"},
		{"half released, of the same age", "@8 -/3", "@8 b/4 half", "-/3 in 1"},
	} {
		t.Run(c.name, func(t *testing.T) { checkShown(t, c.primary, c.secondary, wholly, c.want) })
	}
}

// What stands beside a record that counts is shown, and nothing of the other object's.
func TestCombineShowsTheNotesThatCount(t *testing.T) {
	for _, c := range []struct {
		name, primary, secondary string
		want                     map[string]string
	}{
		{"nothing but the term", "@5 b/3 half", "@6 b/3 half", nil},
		{"no request is no empty request", "@5 b/3 half", "@6 b/3 half marker", map[string]string{MarkerAnnotation: "v1 b 3"}},
		{"an old replica's request, and a secondary without notes", "@5 b/3 half request=old", "@6 b/3 half", map[string]string{HandoverRequestAnnotation: "old"}},
		{"the newer request", "@7 b/3 half request=later", "@6 b/3 half request=earlier", map[string]string{HandoverRequestAnnotation: "later"}},
		{"the newer hold", "@5 b/3 half hold=earlier", "@6 b/3 half hold=later", map[string]string{HoldAnnotation: "later"}},
		{"of stores that count alike the primary's", "@6 b/3 half request=p", "@6 b/3 half request=s", map[string]string{HandoverRequestAnnotation: "p"}},
		{"another term's request", "@5 b/3 half=s request=old", "@9 -/4", nil},
		{"what others wrote to either of two free ones, the primary newer", "@7 -/3 request=p", "@6 -/3 hold=s", map[string]string{HandoverRequestAnnotation: "p", HoldAnnotation: "s"}},
		{"a hold of a nominee, and a label on the primary", "@9 me/4 nominated", "@8 me/4 nominated hold=s", map[string]string{NominatedAnnotation: "me", HoldAnnotation: "s"}},
		{"an unreadable record's", "@9 unreadable request=a", "@8 b/3 half request=b", map[string]string{HandoverRequestAnnotation: "a"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, s := one(t, "p", c.primary), one(t, "s", c.secondary)
			before := [2]map[string]string{maps.Clone(p.Annotations), maps.Clone(s.Annotations)}
			if got := shown(t, p, s, "me").Annotations; !maps.Equal(got, c.want) {
				t.Errorf("notes %v, want %v", got, c.want)
			}
			if !maps.Equal(p.Annotations, before[0]) || !maps.Equal(s.Annotations, before[1]) {
				t.Errorf("the objects' own notes became %v and %v", p.Annotations, s.Annotations)
			}
		})
	}
}

func TestCombineMergesIntoNoNotes(t *testing.T) {
	p, s := one(t, "p", "@7 -/3 request=old"), one(t, "s", "@8 -/3")
	s.Annotations = nil
	if got := shown(t, p, s, "me").Annotations; got[HandoverRequestAnnotation] != "old" {
		t.Errorf("notes %v", got)
	}
}

// A lease starts anew whenever either object or its record changes, however alike the
// bytes of two pairs are when they are strung together.
func TestCombineTellsPairsApart(t *testing.T) {
	seen := map[string]string{}
	for _, uids := range [][2]string{{"p", "s"}, {"p", "t"}, {"q", "s"}, {"pb/3", "s"}} {
		for _, records := range [][2]string{{"b/3", "b/3"}, {"b/3", "b/4"}, {"b/4", "b/3"}, {"b/3b/3", "b/3"}, {"b/3", "no-record"}} {
			p, s := one(t, uids[0], "@5 b/3"), one(t, uids[1], "@6 b/3")
			p.Raw, s.Raw = []byte(records[0]), []byte(records[1])
			name := fmt.Sprint(uids, records)
			raw := string(shown(t, p, s, "me").Raw)
			if other, ok := seen[raw]; ok || raw == "" {
				t.Errorf("%s shows the same bytes as %s", name, other)
			}
			seen[raw] = name
		}
	}
}

func TestHalf(t *testing.T) {
	held := LeaderElectionRecord{HolderIdentity: "b"}
	for _, c := range []struct {
		snap Snapshot
		want bool
	}{
		{Snapshot{Record: held, Parts: [2]Part{{Present: true}, {}}}, true},
		{Snapshot{Record: held, Parts: [2]Part{{}, {Present: true}}}, true},
		{Snapshot{Record: held, Parts: [2]Part{{Present: true}, {Present: true}}}, false},
		{Snapshot{Record: held}, false}, // one object
		{Snapshot{Parts: [2]Part{{Present: true}, {}}}, false},
	} {
		if c.snap.Half() != c.want {
			t.Errorf("%q in %d: half %v", c.snap.Record.HolderIdentity, standsIn(c.snap), !c.want)
		}
	}
}

// Others write what they like into annotations.
func TestNamesTerm(t *testing.T) {
	r := LeaderElectionRecord{HolderIdentity: "b", LeaderTransitions: 3}
	for note, want := range map[string]bool{
		"v1 b 3":         true,
		"v1 b 3 more":    true,
		"v2 b 3":         false,
		"v1 a 3":         false,
		"v1 b 4":         false,
		"v1 b":           false,
		"v1":             false,
		"":               false,
		"v1  3":          false,
		" v1 b 3":        false,
		"v1 b 03 s more": false,
	} {
		if namesTerm(note, r) != want {
			t.Errorf("%q names the term: %v", note, !want)
		}
	}
	for note, want := range map[string]string{"v1 b 3 uid": "uid", "v1 b 3": "", "": "", "v1 b 3 uid more": "uid"} {
		if got := otherUID(note); got != want {
			t.Errorf("%q names UID %q", note, got)
		}
	}
}

func TestSameRecordAndTerm(t *testing.T) {
	there := time.FixedZone("there", 3600)
	base := golden
	elsewhere := base
	elsewhere.AcquireTime = metav1.NewTime(base.AcquireTime.In(there))
	elsewhere.RenewTime = metav1.NewTime(base.RenewTime.In(there))
	if !sameRecord(base, elsewhere) {
		t.Error("the same instants in another zone are another record")
	}
	for name, change := range map[string]func(*LeaderElectionRecord){
		"acquired later": func(r *LeaderElectionRecord) { r.AcquireTime = metav1.NewTime(r.AcquireTime.Add(time.Second)) },
		"renewed later":  func(r *LeaderElectionRecord) { r.RenewTime = metav1.NewTime(r.RenewTime.Add(time.Second)) },
		"another key":    func(r *LeaderElectionRecord) { r.HolderKey = "canary" },
	} {
		other := base
		if change(&other); sameRecord(base, other) || sameRecord(other, base) {
			t.Errorf("%s: the same record", name)
		}
	}
	free := LeaderElectionRecord{LeaseDurationSeconds: 1}
	inTerm := func(snap Snapshot) bool {
		half, err := coreSnapshot(snap)
		return err == nil && core.PairWrite{Base: core.Pair{Primary: half, Secondary: half}, Record: coreRecord(free)}.IsRenewal()
	}
	if !inTerm(Snapshot{Exists: true, Raw: []byte("{}"), Record: free}) {
		t.Error("a free lock's term is not its own")
	}
	if inTerm(Snapshot{Exists: true, Raw: []byte("{"), Unreadable: ErrUnreadable}) || inTerm(Snapshot{Exists: true}) {
		t.Error("what carries no record that can be read stands in a term")
	}
}
