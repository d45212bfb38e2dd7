package debug

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// Change is the beginning of a time in which one and the same candidate held an election, or
// nobody did.
type Change struct {
	// At is when it began, by the page's clock.
	At time.Time
	// Leader and Key are the holder's; an empty Leader: nobody held it.
	Leader, Key string
	// Acting: the holder acted, see Election.
	Acting bool
	// Transitions is the record's count of terms.
	Transitions int
}

// sameAs reports whether nothing but time has passed.
func (c Change) sameAs(d Change) bool {
	d.At = c.At
	return c == d
}

// history is who led when. Changes are appended and dropped at the front, never written over,
// so that frames may share them.
type history struct {
	most int
	of   map[name][]Change
	// revisions are all that were ever seen, in the order of their first appearance, so that
	// each keeps its colour and sign.
	revisions []string
}

// mostRevisions bounds what revisions may fill: those that come later share a sign.
const mostRevisions = 64

func newHistory(most int) *history { return &history{most: most, of: map[name][]Change{}} }

// observe takes in what is seen at this instant. Elections that are gone are forgotten.
func (h *history) observe(now time.Time, s State) {
	h.meet(s.Revision)
	h.meet(s.Default.Revision)
	present := make(map[name]bool, len(s.Elections))
	for _, e := range s.Elections {
		n := e.name()
		present[n] = true
		h.append(n, Change{At: now, Leader: e.Leader, Key: e.Key, Acting: e.Acting && e.Leader != "", Transitions: e.Transitions})
		for _, c := range e.Candidates {
			h.meet(c.Revision())
		}
	}
	maps.DeleteFunc(h.of, func(n name, _ []Change) bool { return !present[n] })
}

func (h *history) append(n name, c Change) {
	h.meetKey(c.Key)
	all := h.of[n]
	if len(all) > 0 && all[len(all)-1].sameAs(c) {
		return
	}
	all = append(all, c)
	h.of[n] = all[max(0, len(all)-h.most):]
}

// termBegan is when the present term began, that the holder did not act for a while included, or
// when nobody held the lock any more. Not seen: it went on already when the first change was seen.
func termBegan(changes []Change) (began time.Time, seen bool) {
	if len(changes) == 0 {
		return began, false
	}
	last, i := changes[len(changes)-1], len(changes)-1
	for i > 0 && changes[i-1].Leader == last.Leader && (last.Leader == "" || changes[i-1].Transitions == last.Transitions) {
		i--
	}
	return changes[i].At, i > 0
}

// before adds what is known of the time before the first observation.
func (h *history) before(n name, past []Change) {
	known := h.of[n]
	past = slices.Clone(past)
	slices.SortStableFunc(past, func(a, b Change) int { return a.At.Compare(b.At) })
	var earlier []Change
	for _, c := range past {
		if len(known) > 0 && !c.At.Before(known[0].At) {
			break
		}
		if len(earlier) == 0 || !earlier[len(earlier)-1].sameAs(c) {
			earlier = append(earlier, c)
		}
	}
	earlier = earlier[max(0, len(earlier)-max(0, h.most-len(known))):]
	for _, c := range earlier {
		h.meetKey(c.Key)
	}
	h.of[n] = slices.Concat(earlier, known)
}

func (h *history) meetKey(key string) {
	revision, _ := revisionOf(key)
	h.meet(revision)
}

func (h *history) meet(revision string) {
	if revision != "" && len(h.revisions) < mostRevisions && !slices.Contains(h.revisions, revision) {
		h.revisions = append(h.revisions, revision)
	}
}

// picture is the history as it is now; it does not change any more.
func (h *history) picture() history {
	return history{most: h.most, of: maps.Clone(h.of), revisions: slices.Clone(h.revisions)}
}

// begin is when the first change of all was seen.
func (h history) begin(now time.Time) time.Time {
	first := now
	for _, all := range h.of {
		if len(all) > 0 && all[0].At.Before(first) {
			first = all[0].At
		}
	}
	return first
}

// sign is a revision's number among all, which its colour and its sign go by; 0: no revision.
func (h history) sign(revision string) int {
	i := slices.Index(h.revisions, revision)
	switch {
	case revision == "":
		return 0
	case i < 0:
		return signs
	}
	return cmp.Or((i+1)%signs, signs)
}
