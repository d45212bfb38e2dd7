package k8sresourcelock

import (
	"fmt"
	"strings"
)

// annotationPrefix begins the names of this project's annotations.
const annotationPrefix = "incumbent.dev/"

// knownAnnotations are the annotations that this version may remove. One with our prefix
// that is not among them is a later version's, and not ours to take away.
var knownAnnotations = []string{MarkerAnnotation, HandoverRequestAnnotation, NominatedAnnotation, HoldAnnotation}

// annotationsOf picks our annotations out of an object's; nil when there are none.
func annotationsOf(annotations map[string]string) map[string]string {
	var notes map[string]string
	for k, v := range annotations {
		if !strings.HasPrefix(k, annotationPrefix) || k == StrategyAnnotation || k == PreferredHolderAnnotation {
			continue
		}
		if notes == nil {
			notes = make(map[string]string, len(knownAnnotations))
		}
		notes[k] = v
	}
	return notes
}

// applyAnnotations returns annotations with exactly these notes; it may change and
// return the map it is given.
func applyAnnotations(annotations, notes map[string]string) map[string]string {
	for _, k := range knownAnnotations {
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

func checkAnnotations(notes map[string]string) error {
	for k := range notes {
		if !strings.HasPrefix(k, annotationPrefix) {
			return fmt.Errorf("note %q does not begin with %s", k, annotationPrefix)
		}
	}
	return nil
}
