package k8sresourcelock

import (
	"fmt"
	"strings"

	"incumbent.dev/incumbent/internal/record"
)

// knownAnnotations are the annotations that a write may remove. Other annotations with the prefix belong to later
// versions and are preserved.
var knownAnnotations = []string{record.MarkerAnnotation, record.HandoverRequestAnnotation, record.NominatedAnnotation, record.HoldAnnotation, record.WitnessReleaseAnnotation}

// annotationsOf returns the annotations of this project, or nil if there are none.
func annotationsOf(all map[string]string) map[string]string {
	var ours map[string]string
	for k, v := range all {
		if !strings.HasPrefix(k, record.Prefix) || k == record.StrategyAnnotation || k == record.PreferredHolderAnnotation {
			continue
		}
		if ours == nil {
			ours = make(map[string]string, len(knownAnnotations))
		}
		ours[k] = v
	}
	return ours
}

// applyAnnotations returns all with the known annotations replaced by ours. An empty value removes an annotation. It
// may change and return all.
func applyAnnotations(all, ours map[string]string) map[string]string {
	for _, k := range knownAnnotations {
		delete(all, k)
	}
	if all == nil && len(ours) > 0 {
		all = make(map[string]string, len(ours))
	}
	for k, v := range ours {
		if v == "" {
			delete(all, k)
		} else {
			all[k] = v
		}
	}
	return all
}

func checkAnnotations(annotations map[string]string) error {
	for k := range annotations {
		if !strings.HasPrefix(k, record.Prefix) {
			return fmt.Errorf("annotation %q does not begin with %s", k, record.Prefix)
		}
	}
	return nil
}
