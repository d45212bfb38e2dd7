package history

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The labels by which a write says whose it is, in which run of its function, and in which
// election's term.
const (
	ByLabel       = "test.incumbent.dev/by"
	RunLabel      = "test.incumbent.dev/run"
	ElectionLabel = "test.incumbent.dev/election"
	TokenLabel    = "test.incumbent.dev/token"
)

// Write is one write of work. Version is the resourceVersion that the API server gave it: the
// order of all writes, those of locks as well. Run is one life of a function; Election is the
// one whose tokens grow, and empty where there is but one.
type Write struct {
	Version           uint64
	By, Run, Election string
	Token             uint64
}

// Labels are those of a write, but for its version.
func (w Write) Labels() map[string]string {
	return map[string]string{
		ByLabel: w.By, RunLabel: w.Run, ElectionLabel: w.Election, TokenLabel: strconv.FormatUint(w.Token, 10),
	}
}

// Of reads a write from the object that it left.
func Of(object metav1.Object) (Write, error) {
	version, err := strconv.ParseUint(object.GetResourceVersion(), 10, 64)
	if err != nil {
		return Write{}, fmt.Errorf("the resourceVersion of %s: %w", object.GetName(), err)
	}
	labels := object.GetLabels()
	token, err := strconv.ParseUint(labels[TokenLabel], 10, 64)
	if err != nil {
		return Write{}, fmt.Errorf("the label %s of %s: %w", TokenLabel, object.GetName(), err)
	}
	return Write{Version: version, By: labels[ByLabel], Run: labels[RunLabel], Election: labels[ElectionLabel], Token: token}, nil
}

// Judge says what is wrong with the writes of those of whom one at a time may act: two runs of
// theirs are interleaved, a run has a token that is not above its election's last, or it wrote
// before the write of the lock that made its term. again allows one process to run twice in a
// term, and what the first run has left behind to go on. Judge sorts the writes.
func Judge(writes []Write, again bool) (wrong []string) {
	slices.SortFunc(writes, func(a, b Write) int { return cmp.Compare(a.Version, b.Version) })
	runs, tokens := map[string]bool{}, map[string]Write{} // the newest of each election
	var now Write
	for _, w := range writes {
		if w.Version <= w.Token {
			wrong = append(wrong, fmt.Sprintf("%s wrote at %d, before its term %d was made", w.By, w.Version, w.Token))
		}
		if sameTerm := again && w.By == now.By && w.Token == now.Token; runs[w.Run] && now.Run != w.Run && !sameTerm {
			wrong = append(wrong, fmt.Sprintf("%s wrote at %d in its term %d, after %s had written at %d in the term %d: two at once",
				w.By, w.Version, w.Token, now.By, now.Version, now.Token))
		}
		if last, known := tokens[w.Election]; !runs[w.Run] {
			if same := again && w.Token == last.Token && w.By == last.By; known && w.Token <= last.Token && !same {
				wrong = append(wrong, fmt.Sprintf("%s wrote at %d with the token %d, after %s with the token %d", w.By, w.Version, w.Token, last.By, last.Token))
			}
			tokens[w.Election] = w
		}
		runs[w.Run], now = true, w
	}
	return wrong
}

// Runs counts the runs that wrote.
func Runs(writes []Write) int {
	runs := map[string]bool{}
	for _, w := range writes {
		runs[w.Run] = true
	}
	return len(runs)
}
