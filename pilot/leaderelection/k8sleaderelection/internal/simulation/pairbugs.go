package simulation

import "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"

// pairRules are the rules by which a MultiLock works, the core's and its own. A planted bug
// replaces one of them.
type pairRules struct {
	shown  func(p core.Pair, self string) (which core.Half, both bool)
	yields func(core.PairWrite, core.Snapshot) bool
	stored func(core.PairSight, core.Half, core.Snapshot) (core.PairSight, bool)
	sends  func(core.PairSight, core.Half, core.Record, core.Notes) core.PairSight

	merges    bool // what others put on the secondary between the two writes stays
	aligns    bool // a hold is replaced on both objects
	zeroes    bool // one that is over stays, with no time left
	rehearses bool // a claim asks first whether the secondary could be written
	modest    bool // so does a request for the lock
	hopeful   bool // the lock counts as held once the primary is written
}

func rulesOf(b *Bug) pairRules {
	rules := pairRules{
		shown: core.Pair.Shown, yields: core.PairWrite.Yields, stored: core.PairSight.Stored, sends: core.PairSight.Sends,
		merges: true, aligns: true, zeroes: true, rehearses: true, modest: true,
	}
	for _, planted := range plantedInPairs {
		if b != nil && b.Name == planted.name {
			planted.plant(&rules)
		}
	}
	return rules
}

// pairBugs are those of the mode in which two objects are one lock. Step is as it should be.
func pairBugs() (bugs []Bug) {
	for _, planted := range plantedInPairs {
		bugs = append(bugs, Bug{Name: planted.name, Mode: "both-objects", Check: planted.check, plant: each(core.Config.Step)})
	}
	return bugs
}

// plantedInPairs are ways to get the merging of two objects wrong.
var plantedInPairs = []struct {
	name  string
	check Check
	plant func(*pairRules)
}{
	{"pair-held-by-halves", OneAtATime, func(r *pairRules) { r.hopeful = true }},
	// One-at-a-time catches it too, in one seed of a thousand.
	{"pair-half-is-enough", Orders, func(r *pairRules) {
		r.shown = func(p core.Pair, self string) (core.Half, bool) {
			h, _ := p.Shown(self)
			return h, true
		}
	}},
	{"pair-primary-alone", OneAtATime, showsAlways(core.Primary)},
	{"pair-secondary-alone", OneAtATime, showsAlways(core.Secondary)},
	{"pair-either-free", OneAtATime, showsIf(func(s core.Snapshot) bool {
		return s.Exists && s.Content == core.Readable && s.Record.Holder == ""
	})},
	{"pair-either-nominates", OneAtATime, showsIf(func(s core.Snapshot) bool {
		n := s.Notes.Nominated.Identity
		return n != "" && n == s.Record.Holder
	})},
	{"pair-never-yields", OneAtATime, func(r *pairRules) {
		r.yields = func(core.PairWrite, core.Snapshot) bool { return false }
	}},
	{"pair-takes-what-it-may-not", Prompt, func(r *pairRules) { r.rehearses = false }},
	{"pair-asks-for-what-it-may-not", NoFlapping, func(r *pairRules) { r.modest = false }},
	{"pair-pause-erased", Orders, func(r *pairRules) { r.merges = false }},
	{"pair-resume-in-vain", Orders, func(r *pairRules) { r.aligns, r.zeroes = false, false }},
	{"pair-own-write-is-news", Orders, func(r *pairRules) {
		r.sends = func(v core.PairSight, _ core.Half, _ core.Record, _ core.Notes) core.PairSight { return v }
	}},
}

// showsAlways has one object count, whatever the other says.
func showsAlways(h core.Half) func(*pairRules) {
	return func(r *pairRules) {
		r.shown = func(core.Pair, string) (core.Half, bool) { return h, true }
	}
}

// showsIf has the first object count of which that is true.
func showsIf(is func(core.Snapshot) bool) func(*pairRules) {
	return func(r *pairRules) {
		r.shown = func(p core.Pair, self string) (core.Half, bool) {
			for _, h := range []core.Half{core.Primary, core.Secondary} {
				if is(*p.Of(h)) {
					return h, true
				}
			}
			return p.Shown(self)
		}
	}
}
