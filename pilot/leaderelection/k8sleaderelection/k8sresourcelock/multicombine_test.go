package k8sresourcelock

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// side is one object of a pair. Of an absent one version is the last that was known.
type side struct {
	Snapshot
	version uint64
}

// shown is the Snapshot of two objects together.
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

// needsBoth is the note of a holder that needs the other object too.
func needsBoth(r LeaderElectionRecord, other string) string {
	return formatNeeds(core.NeedsBoth{Identity: r.HolderIdentity, Transitions: r.LeaderTransitions, Other: other})
}

// one is one object of a pair in short: "@version", then "absent", "no-record",
// "unreadable", or "holder/transitions" ("-" for nobody), and as needed "half" (with the
// other object's UID after "="), "nominated", "renewed", "marker", "request=…", "hold=…".
func one(t *testing.T, uid, text string) side {
	t.Helper()
	words := strings.Fields(text)
	var version uint64
	if _, err := fmt.Sscanf(words[0], "@%d", &version); err != nil {
		t.Fatal(err)
	}
	s := Snapshot{Exists: true, UID: "", ResourceVersion: words[0][1:], Annotations: map[string]string{}}
	switch what := words[1]; what {
	case "absent":
		return side{version: version}
	case "no-record":
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
		case "renewed":
			s.Record.RenewTime = at("2026-01-02T03:04:12Z")
		case "request":
			s.Annotations[HandoverRequestAnnotation] = value
		case "hold":
			s.Annotations[HoldAnnotation] = value
		case "uid":
			uid = value
		default:
			t.Fatalf("word %q", word)
		}
	}
	s.UID = types.UID(uid)
	return side{Snapshot: s, version: version}
}

func TestCombine(t *testing.T) {
	for _, c := range []struct{ name, primary, secondary, want string }{
		// The first step: who needs the primary alone decides.
		{"step one, no secondary yet", "@5 c/3 marker", "@0 absent", "c/3 in 1"},
		{"step one, a stale claim in the secondary", "@9 c/4", "@7 b/3 half", "c/4 in 1"},
		{"step one, released", "@9 -/4", "@7 b/3 half", "-/4 in 1"},
		{"step one, released, no secondary yet", "@9 -/4", "@0 absent", "-/4 in 1"},
		{"step one, handed over", "@9 me/5 nominated", "@7 b/3 half", "me/5 in 1"},
		{"step one, handed over to one who needs the primary", "@9 c/5", "@7 c/5 nominated", "c/5 in 1"},
		// The third step: who needs the secondary alone does.
		{"step three", "@5 b/3 half", "@9 l/4", "l/4 in 2"},
		{"step three, released", "@5 b/3 half=s", "@9 -/4", "-/4 in 2"},
		{"step three, handed over", "@5 b/3 half=s", "@9 me/5 nominated", "me/5 in 2"},
		{"step three, the primary deleted", "@0 absent", "@9 -/4", "-/4 in 2"},
		{"step three, the secondary made anew", "@5 b/7 half=old", "@9 -/0 uid=new", "-/0 in 2"},
		// Both.
		{"both", "@5 b/3 half marker", "@6 b/3 half marker", "b/3 in 3"},
		{"both, the primary renewed first", "@7 b/3 half", "@6 b/3 half", "b/3 in 3"},
		{"both free", "@7 -/3", "@8 -/3", "-/3 in 3"},
		{"both handed over", "@7 me/4 nominated", "@8 me/4 nominated", "me/4 in 3"},
		// A claim under way is not disturbed.
		{"a claim", "@7 b/4 half=s", "@6 -/3", "b/4 in 1"},
		{"a claim, and a late release", "@7 b/4 half=s", "@8 -/3", "b/4 in 1"},
		{"a claim over another", "@7 b/4 half=s", "@6 a/3 half", "b/4 in 1"},
		{"a claim of a nominee", "@9 b/4 half=s", "@8 b/4 nominated", "b/4 in 1"},
		{"a claim, no secondary yet", "@7 b/4 half", "@0 absent", "b/4 in 1"},
		{"one's own claim", "@7 me/4 half=s", "@6 -/3", "me/4 in 1"},
		{"one's own claim, and another there", "@7 me/4 half=s", "@8 l/4", "l/4 in 2"},
		// What is half done is its writer's to finish.
		{"half released", "@7 -/3", "@6 b/3 half marker", "b/3 in 2"},
		{"half handed over", "@7 c/4 nominated", "@6 b/3 half marker", "b/3 in 2"},
		{"released before the present claim", "@5 -/3", "@8 b/4 half", "b/4 in 2"},
		// A hand.
		{"the primary deleted", "@9 absent", "@8 b/3 half", "b/3 in 2"},
		{"the primary emptied", "@9 no-record", "@8 b/3 half", "b/3 in 2"},
		{"the secondary deleted", "@5 b/3 half=s", "@9 absent", "b/3 in 1"},
		{"the primary unreadable", "@9 unreadable", "@8 b/3 half", "unreadable"},
		{"the secondary unreadable", "@9 c/3", "@8 unreadable", "unreadable"},
		{"neither", "@9 absent", "@8 absent", "absent"},
		{"neither has a record", "@9 no-record", "@8 no-record", "no record"},
		// The steps that must not meet.
		{"one and three, the newer", "@9 c/3", "@8 l/3", "c/3 in 1"},
		{"one and three, never oneself", "@9 me/3", "@8 l/3", "l/3 in 2"},
	} {
		t.Run(c.name, func(t *testing.T) { checkShown(t, c.primary, c.secondary, inShort, c.want) })
	}
}

// checkShown is that these two objects are to me, in words, the lock that is wanted.
func checkShown(t *testing.T, primary, secondary string, words func(Snapshot) string, want string) {
	t.Helper()
	if is := words(shown(t, one(t, "p", primary), one(t, "s", secondary), "me")); is != want {
		t.Errorf("%s | %s shows as %s, want %s", primary, secondary, is, want)
	}
}

func inShort(s Snapshot) string {
	switch {
	case !s.Exists:
		return "absent"
	case s.Unreadable != nil:
		return "unreadable"
	case s.Raw == nil:
		return "no record"
	}
	holder := s.Record.HolderIdentity
	if holder == "" {
		holder = "-"
	}
	return fmt.Sprintf("%s/%d in %d", holder, s.Record.LeaderTransitions, standsIn(s))
}

func TestCombineMergesWhatStandsBesideOneTerm(t *testing.T) {
	got := shown(t, one(t, "p", "@7 b/3 half request=old-replica"), one(t, "s", "@6 b/3 half marker"), "me")
	if got.Annotations[HandoverRequestAnnotation] != "old-replica" || got.Annotations[MarkerAnnotation] == "" || got.Annotations[MultiLockAnnotation] != "" {
		t.Errorf("notes %v", got.Annotations)
	}
	got = shown(t, one(t, "p", "@5 b/3 half request=earlier"), one(t, "s", "@6 b/3 half request=later"), "me")
	if got.Annotations[HandoverRequestAnnotation] != "later" {
		t.Errorf("notes %v", got.Annotations)
	}
	got = shown(t, one(t, "p", "@5 c/3 request=mine"), one(t, "s", "@6 b/2 half request=stale"), "me")
	if got.Annotations[HandoverRequestAnnotation] != "mine" {
		t.Errorf("notes %v", got.Annotations)
	}
}

func TestCombineNamesBothObjects(t *testing.T) {
	got := shown(t, one(t, "p", "@5 b/3 half"), one(t, "s", "@6 a/9 half"), "me")
	if got.Parts != [2]Part{{"p", 5, false}, {"s", 6, true}} || got.UID != "s" || got.ResourceVersion != "6" || got.Floor != 9 {
		t.Errorf("parts %v, fence %s %s, floor %d", got.Parts, got.UID, got.ResourceVersion, got.Floor)
	}
	if !errors.Is(shown(t, one(t, "p", "@5 unreadable"), one(t, "s", "@6 absent"), "me").Unreadable, ErrUnreadable) {
		t.Error("no ErrUnreadable")
	}
}

// standsIn is in which of two objects the record stands: 1 and 2 added up.
func standsIn(s Snapshot) (in int) {
	for i, part := range s.Parts {
		if part.Present {
			in |= 1 << i
		}
	}
	return in
}

// Half reports whether the record has a holder that stands in one object of two.
func (s Snapshot) Half() bool {
	return s.Record.HolderIdentity != "" && s.Parts[0].Present != s.Parts[1].Present
}
