package page

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

// Change is the start of a period with the same holder, or without one.
type Change struct {
	// At is the start of the period.
	At time.Time
	// Leader and Key are the holder and its key in the record. Leader is empty if there was no holder.
	Leader, Key string
	// Acting reports that the holder acted.
	Acting bool
	// Transitions is leaderTransitions of the record.
	Transitions int
}

// sameAs reports whether the changes differ in At only.
func (c Change) sameAs(d Change) bool {
	d.At = c.At
	return c == d
}

// history has the changes of each election. They are appended, and removed at the front, but never modified, so frames can
// share them.
type history struct {
	most int
	of   map[name][]Change
	// revisions has all observed revisions in order of appearance, so that each keeps its colour and sign.
	revisions []string
}

// mostRevisions bounds the revisions. Later ones share a sign.
const mostRevisions = 64

func newHistory(most int) *history { return &history{most: most, of: map[name][]Change{}} }

// observe adds the current state and removes elections that no longer exist.
func (h *history) observe(now time.Time, s State) {
	h.meet(s.Revision)
	h.meet(s.Default.Revision)
	present := make(map[name]bool, len(s.Elections))
	for _, e := range s.Elections {
		n := nameOf(e)
		present[n] = true
		h.append(n, Change{At: now, Leader: e.Holder, Key: e.Key, Acting: e.Acting() && e.Holder != "", Transitions: e.Transitions})
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

// termBegan returns the start of the current term or of the period without a holder. seen is false if it started before the
// first change.
func termBegan(changes []Change) (began time.Time, seen bool) {
	if len(changes) == 0 {
		return began, false
	}
	i := len(changes) - 1
	last := changes[i]
	for i > 0 && changes[i-1].Leader == last.Leader && (last.Leader == "" || changes[i-1].Transitions == last.Transitions) {
		i--
	}
	return changes[i].At, i > 0
}

// before adds changes from before the first observation.
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
	revision, _ := k8sleaderelection.ParseRevisionKey(key)
	h.meet(revision)
}

func (h *history) meet(revision string) {
	if revision != "" && len(h.revisions) < mostRevisions && !slices.Contains(h.revisions, revision) {
		h.revisions = append(h.revisions, revision)
	}
}

// named returns the revisions that are valid label values. Only they can be the default revision.
func (h history) named() (valid []string) {
	for _, revision := range h.revisions {
		if revisionForm.MatchString(revision) {
			valid = append(valid, revision)
		}
	}
	return valid
}

// picture returns an immutable copy.
func (h *history) picture() history {
	return history{most: h.most, of: maps.Clone(h.of), revisions: slices.Clone(h.revisions)}
}

// begin returns the time of the first change.
func (h history) begin(now time.Time) time.Time {
	first := now
	for _, all := range h.of {
		if len(all) > 0 && all[0].At.Before(first) {
			first = all[0].At
		}
	}
	return first
}

// sign returns the number of a revision's colour and sign. 0 means no revision.
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
