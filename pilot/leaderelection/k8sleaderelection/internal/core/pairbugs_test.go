package core

import "testing"

// pairRules are the predicates that make one lock of two objects. A planted bug changes one of them.
type pairRules struct {
	choose       func(Pair, string) (Half, bool)
	yields       func(PairWrite, Snapshot) bool
	merge        func(PairWrite, PairView, Snapshot, Annotations) Annotations
	replacesHold func(PairWrite, Snapshot, Hold) bool
	record       func(PairView, Half, Record, Annotations) PairView
}

var realPairRules = pairRules{
	choose: Pair.Select, yields: PairWrite.MustNotOverwrite, merge: PairWrite.MergeAnnotations,
	replacesHold: PairWrite.ReplacesHold, record: PairView.RecordWrite,
}

// pairBugs are planted bugs, each with the check that must find it.
var pairBugs = map[string]struct {
	plant func(*pairRules)
	check func(pairRules) []string
}{
	"one object is enough": {func(r *pairRules) {
		r.choose = func(p Pair, self string) (Half, bool) { h, _ := p.Select(self); return h, true }
	}, pairRules.selectFaults},
	"primary alone":    {chooseAlways(Primary), pairRules.selectFaults},
	"secondary alone":  {chooseAlways(Secondary), pairRules.selectFaults},
	"either is free":   {chooseIf(ended), pairRules.selectFaults},
	"either nominates": {chooseIf(nominee), pairRules.selectFaults},
	"second write overwrites everything": {func(r *pairRules) {
		r.yields = func(PairWrite, Snapshot) bool { return false }
	}, pairRules.secondFaults},
	"renewal erases a pause": {func(r *pairRules) {
		r.merge = func(_ PairWrite, _ PairView, _ Snapshot, n Annotations) Annotations { return n }
	}, pairRules.mergeFaults},
	"resume on one object only": {func(r *pairRules) {
		r.replacesHold = func(PairWrite, Snapshot, Hold) bool { return false }
	}, pairRules.holdFaults},
	"own write counts as change by others": {func(r *pairRules) {
		r.record = func(v PairView, _ Half, _ Record, _ Annotations) PairView { return v }
	}, pairRules.ownWriteFaults},
}

func chooseAlways(h Half) func(*pairRules) {
	return func(r *pairRules) { r.choose = func(Pair, string) (Half, bool) { return h, true } }
}

// chooseIf selects the first object with that presence.
func chooseIf(is presence) func(*pairRules) {
	return func(r *pairRules) {
		r.choose = func(p Pair, self string) (Half, bool) {
			for _, h := range []Half{Primary, Secondary} {
				if p.Of(h).presence() == is {
					return h, true
				}
			}
			return p.Select(self)
		}
	}
}

func TestPairBugs(t *testing.T) {
	for name, bug := range pairBugs {
		rules := realPairRules
		bug.plant(&rules)
		if len(bug.check(rules)) == 0 {
			t.Errorf("%s: not found", name)
		}
	}
}
