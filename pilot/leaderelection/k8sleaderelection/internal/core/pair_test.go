package core

import (
	"fmt"
	"slices"
	"testing"
)

// UIDs of the two objects. A claim may have been decided on another object.
const (
	firstUID  = "p"
	secondUID = "s"
)

// halves returns all contents of one object of a pair, in terms 2 to 4. The observer is candidate me.
func halves(uid, otherUID string) map[string]Snapshot {
	all := map[string]Snapshot{
		"absent":     {},
		"no record":  {Exists: true},
		"unreadable": {Exists: true, Content: Unreadable},
	}
	for term := 2; term <= 4; term++ {
		add := func(name, holder string, renewed Stamp, annotations Annotations) {
			all[fmt.Sprintf("%s %s/%d", name, holder, term)] = Snapshot{
				Exists: true, Content: Readable, Record: Record{Holder: holder, Transitions: term, Acquired: 5e6, Renewed: renewed}, Annotations: annotations,
			}
		}
		add("ended", "", 7e6, Annotations{})
		for _, holder := range []string{"me", "b"} {
			add("nominee", holder, 5e6, Annotations{Nominated: Nomination{Identity: holder, Transitions: term}})
			add("alone", holder, 7e6, Annotations{})
			for _, other := range []string{otherUID, "gone", ""} {
				add("claim beside "+other+" of", holder, 7e6, Annotations{Needs: NeedsBoth{holder, term, other}})
			}
		}
	}
	for name, s := range all {
		if s.Exists {
			s.UID.First = uid
		}
		s.Sum = uint64(s.Content)<<32 + uint64(s.Record.Transitions)<<16 + uint64(len(s.Record.Holder))<<8 + uint64(s.Record.Renewed/1e6)
		all[name] = s
	}
	return all
}

// everyPair calls f with all pairs, with versions in each order.
func everyPair(f func(name string, p Pair)) {
	for first, primary := range halves(firstUID, secondUID) {
		for second, secondary := range halves(secondUID, firstUID) {
			for _, versions := range [][2]uint64{{5, 6}, {6, 6}, {7, 6}} {
				p := Pair{primary, secondary}
				p.Primary.Version, p.Secondary.Version = versions[0], versions[1]
				f(fmt.Sprintf("%s @%d | %s @%d", first, versions[0], second, versions[1]), p)
			}
		}
	}
}

// term returns holder and transitions of the record.
func term(s Snapshot) string {
	if !s.Exists || s.Content != Readable {
		return ""
	}
	return fmt.Sprintf("%s/%d", s.Record.Holder, s.Record.Transitions)
}

// shown is the result of Pair.Select.
type shown struct {
	half Half
	both bool
}

func asShown(h Half, both bool) shown { return shown{h, both} }

// wants returns the rules that the result of Select breaks.
func wants(p Pair, shown shown) (broken []string) {
	want := func(is bool, what string) {
		if !is {
			broken = append(broken, what)
		}
	}
	is := [2]presence{p.Primary.presence(), p.Secondary.presence()}
	has := func(what ...presence) bool { return slices.Contains(what, is[0]) || slices.Contains(what, is[1]) }
	one := *p.Of(shown.half)
	same := term(p.Primary) == term(p.Secondary) && term(one) != ""
	lone := func(h Half) bool { return is[h] == alone }

	want(!shown.both || same, "both without the same term")
	want(one.Exists || !p.Primary.Exists && !p.Secondary.Exists, "an absent object is selected")
	want(!has(invalid) || one.Content == Unreadable, "an unreadable object is not selected")
	if has(invalid) {
		return broken
	}
	want(!(is[0] >= claim && is[1] >= claim && same) || shown.both && shown.half == Secondary, "a term in both objects is not detected")
	want(!has(alone) || is[shown.half] == alone || shown.both, "a holder of one object alone is not selected")
	if lone(Primary) && lone(Secondary) && !shown.both {
		names := func(h Half) bool { return p.Of(h).Record.Holder == "me" }
		want(names(Primary) == names(Secondary) || !names(shown.half), "the own record is selected, not the other holder")
	}
	want(!has(claim) || is[shown.half] != vacant, "an object without a record is selected instead of a claim")
	again := is[0] == claim && is[1] == nominee && p.Secondary.Version > p.Primary.Version && p.Primary.Record.Holder == p.Secondary.Record.Holder
	want(!again || shown.half == Secondary, "a later nomination of the same candidate is not selected")
	underWay := !again && is[0] == claim && (is[1] == ended || is[1] == nominee) && p.Primary.Annotations.Needs.Other == secondUID &&
		(p.Secondary.Version <= p.Primary.Version || p.Secondary.Record.Transitions <= p.Primary.Record.Transitions)
	want(!underWay || shown.half == Primary, "a claim in progress is not selected")
	over := is[0] == claim && (is[1] == ended || is[1] == nominee) && p.Primary.Annotations.Needs.Other != secondUID
	want(!over || shown.half == Secondary, "a claim that cannot succeed is selected")
	passing := is[0] == ended && is[1] == claim && p.Primary.Record.Transitions == p.Secondary.Record.Transitions
	want(!passing || shown.half == Secondary, "a release in progress is not selected")
	return broken
}

// The selected object breaks no rule, and does not depend on the candidate unless two holders use one object each.
func TestPair_Enumerated(t *testing.T) {
	everyPair(func(name string, p Pair) {
		got := asShown(p.Select("me"))
		for _, what := range wants(p, got) {
			t.Errorf("%s: selected %+v: %s", name, got, what)
		}
		both := p.Primary.presence() == alone && p.Secondary.presence() == alone
		if other := asShown(p.Select("somebody")); other != got && !both {
			t.Errorf("%s: %+v for one candidate, %+v for another", name, got, other)
		}
	})
}

// The second write does not overwrite what changed since, except an earlier term than an own claim.
func TestPairWrite_SecondEnumerated(t *testing.T) {
	everyPair(func(base string, p Pair) {
		if p.Primary.Version != 5 {
			return
		}
		for state, now := range halves(secondUID, firstUID) {
			for _, r := range []Record{
				{Holder: "me", Transitions: 2}, {Holder: "me", Transitions: 3}, {Holder: "me", Transitions: 4}, {Holder: "me", Transitions: 5},
				{Holder: "b", Transitions: 4}, {Transitions: 3},
			} {
				now.Version = 9
				w := PairWrite{Self: "me", Base: p, Record: r}
				if w.MustNotOverwrite(now) == mayOverwrite(w, now) {
					t.Errorf("%s/%d on %s, then %s: must not overwrite %v", r.Holder, r.Transitions, base, state, w.MustNotOverwrite(now))
				}
			}
		}
	})
}

// mayOverwrite is the rule for the second write.
func mayOverwrite(w PairWrite, now Snapshot) bool {
	was := w.Base.Secondary
	changed := now.Content != was.Content || now.Record != was.Record || now.Annotations.Nominated != was.Annotations.Nominated
	switch {
	case now.UID != was.UID:
		return false
	case !changed:
		return true
	case w.Record.Holder != w.Self || w.IsRenewal() || now.Content != Readable:
		return false
	}
	switch now.presence() {
	case ended, claim:
		return now.Record.Transitions < w.Record.Transitions
	case nominee:
		return now.Record.Transitions <= w.Record.Transitions
	case vacant, invalid, alone:
	}
	return false
}
