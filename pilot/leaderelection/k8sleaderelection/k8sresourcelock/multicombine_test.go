package k8sresourcelock

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// side is one object of a pair. version is its last known version.
type side struct {
	Snapshot
	version uint64
}

// shown returns the Snapshot of both objects.
func shown(t *testing.T, p, s side, self string) Snapshot {
	t.Helper()
	objects := Pair{p.Snapshot, s.Snapshot}
	pair, err := corePair(objects)
	if err != nil {
		t.Fatal(err)
	}
	pair.Primary.Version, pair.Secondary.Version = p.version, s.version
	return combine(core.PairView{Pair: pair}, objects, self)
}

// needsBoth returns the MultiLockAnnotation of a holder.
func needsBoth(r LeaderElectionRecord, other string) string {
	return formatNeeds(core.NeedsBoth{Identity: r.HolderIdentity, Transitions: r.LeaderTransitions, Other: other})
}

// one parses one object of a pair: "@version", then "absent", "unreadable", or "holder/transitions" ("-" for an empty
// holder), and optionally "half" (with the other object's UID after "="), "nominated", "marker", "request=…", "hold=…".
func one(t *testing.T, uid, text string) side {
	t.Helper()
	words := strings.Fields(text)
	var version uint64
	if _, err := fmt.Sscanf(words[0], "@%d", &version); err != nil {
		t.Fatal(err)
	}
	s := Snapshot{Exists: true, UID: types.UID(uid), ResourceVersion: words[0][1:], Annotations: map[string]string{}}
	switch what := words[1]; what {
	case "absent":
		return side{version: version}
	case "unreadable":
		s.Raw, s.Unreadable = []byte("{"), unreadable("broken")
	default:
		holder, count, _ := strings.Cut(what, "/")
		if holder != "-" {
			s.Record.HolderIdentity = holder
		}
		if _, err := fmt.Sscan(count, &s.Record.LeaderTransitions); err != nil {
			t.Fatal(err)
		}
		s.Raw = []byte(what)
	}
	for _, word := range words[2:] {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "half":
			s.Annotations[MultiLockAnnotation] = needsBoth(s.Record, value)
		case "nominated":
			s.Annotations[NominatedAnnotation] = s.Record.HolderIdentity
		case "marker":
			s.Annotations[MarkerAnnotation] = needsBoth(s.Record, "")
		case "request":
			s.Annotations[HandoverRequestAnnotation] = value
		case "hold":
			s.Annotations[HoldAnnotation] = value
		default:
			t.Fatalf("word %q", word)
		}
	}
	return side{Snapshot: s, version: version}
}

func TestCombine_Parts(t *testing.T) {
	got := shown(t, one(t, "p", "@5 b/3 half"), one(t, "s", "@6 a/9 half"), "me")
	if got.Parts != [2]Part{{"p", 5, false}, {"s", 6, true}} || got.UID != "s" || got.ResourceVersion != "6" || got.Floor != 9 {
		t.Errorf("parts %v, fence %s %s, floor %d", got.Parts, got.UID, got.ResourceVersion, got.Floor)
	}
	if !errors.Is(shown(t, one(t, "p", "@5 unreadable"), one(t, "s", "@6 absent"), "me").Unreadable, ErrUnreadable) {
		t.Error("no ErrUnreadable")
	}
}

// Half reports whether only one of the two objects names the holder.
func (s Snapshot) Half() bool {
	return s.Record.HolderIdentity != "" && s.Parts[0].Present != s.Parts[1].Present
}

func TestCombine_Annotations(t *testing.T) {
	if got := formatNeeds(core.NeedsBoth{}); got != "" {
		t.Errorf("a term that does not need both objects has the annotation %q", got)
	}
	for _, c := range []struct {
		name, primary, secondary string
		want                     map[string]string
	}{
		{"nothing but the term", "@5 b/3 half", "@6 b/3 half", nil},
		{"no request is no empty request", "@5 b/3 half", "@6 b/3 half marker", map[string]string{MarkerAnnotation: "v1 b 3"}},
		{"an old replica's request, and a secondary without notes", "@5 b/3 half request=old", "@6 b/3 half", map[string]string{HandoverRequestAnnotation: "old"}},
		{"the newer request", "@7 b/3 half request=later", "@6 b/3 half request=earlier", map[string]string{HandoverRequestAnnotation: "later"}},
		{"annotations of two free objects, the primary newer", "@7 -/3 request=p", "@6 -/3 hold=s", map[string]string{HandoverRequestAnnotation: "p", HoldAnnotation: "s"}},
		{"a hold of a nominee, and a label on the primary", "@9 me/4 nominated", "@8 me/4 nominated hold=s", map[string]string{NominatedAnnotation: "me", HoldAnnotation: "s"}},
		{"an unreadable record's", "@9 unreadable request=a", "@8 b/3 half request=b", map[string]string{HandoverRequestAnnotation: "a"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, s := one(t, "p", c.primary), one(t, "s", c.secondary)
			before := [2]map[string]string{maps.Clone(p.Annotations), maps.Clone(s.Annotations)}
			if got := shown(t, p, s, "me").Annotations; !maps.Equal(got, c.want) {
				t.Errorf("annotations %v, want %v", got, c.want)
			}
			if !maps.Equal(p.Annotations, before[0]) || !maps.Equal(s.Annotations, before[1]) {
				t.Errorf("the objects' own notes became %v and %v", p.Annotations, s.Annotations)
			}
		})
	}
}

// Raw differs if an object or a record differs.
func TestCombine_Raw(t *testing.T) {
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

func TestCoreSnapshot_Term(t *testing.T) {
	free := LeaderElectionRecord{LeaseDurationSeconds: 1}
	inTerm := func(snap Snapshot) bool {
		half, err := coreSnapshot(snap)
		return err == nil && core.PairWrite{Base: core.Pair{Primary: half, Secondary: half}, Record: coreRecord(free)}.IsRenewal()
	}
	if !inTerm(Snapshot{Exists: true, Raw: []byte("{}"), Record: free}) {
		t.Error("the term of a free lock is not equal to itself")
	}
	if inTerm(Snapshot{Exists: true, Raw: []byte("{"), Unreadable: ErrUnreadable}) || inTerm(Snapshot{Exists: true}) {
		t.Error("an object without a readable record has a term")
	}
}
