package k8sresourcelock

import (
	"fmt"
	"strings"
)

// notePrefix begins the names of this project's annotations.
const notePrefix = "incumbent.dev/"

// knownNotes are the annotations that this version may remove. One with our prefix
// that is not among them is a later version's, and not ours to take away.
var knownNotes = []string{MarkerAnnotation, HandoverRequestAnnotation, NominatedAnnotation, HoldAnnotation, PredecessorAnnotation}

// notesOf picks our annotations out of an object's; nil when there are none.
func notesOf(annotations map[string]string) map[string]string {
	var notes map[string]string
	for k, v := range annotations {
		if !strings.HasPrefix(k, notePrefix) || k == StrategyAnnotation || k == PreferredHolderAnnotation {
			continue
		}
		if notes == nil {
			notes = make(map[string]string, len(knownNotes))
		}
		notes[k] = v
	}
	return notes
}

// applyNotes returns annotations with exactly these notes; it may change and
// return the map it is given.
func applyNotes(annotations, notes map[string]string) map[string]string {
	for _, k := range knownNotes {
		delete(annotations, k)
	}
	if annotations == nil && len(notes) > 0 {
		annotations = make(map[string]string, len(notes))
	}
	for k, v := range notes {
		annotations[k] = v
	}
	return annotations
}

func checkNotes(notes map[string]string) error {
	for k := range notes {
		if !strings.HasPrefix(k, notePrefix) {
			return fmt.Errorf("note %q does not begin with %s", k, notePrefix)
		}
	}
	return nil
}
