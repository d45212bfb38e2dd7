package coordination

import (
	"fmt"
	"strings"

	"github.com/blang/semver/v4"
)

// Versions are read by the package that Kubernetes' controller and API server read them by: what
// is a version there is one here.

// Version is text as a LeaseCandidate can carry it: a semantic version without a v in front, and 0.0.0 for what is none.
func Version(text string) string {
	text = strings.TrimPrefix(text, "v")
	if _, err := semver.Parse(text); err != nil {
		return "0.0.0"
	}
	return text
}

// versionOrZero reads s as Kubernetes' controller does, which takes "v1.2" and "01.2.3" for versions; what is none counts as 0.0.0.
func versionOrZero(s string) semver.Version {
	v, err := semver.ParseTolerant(s)
	if err != nil {
		return semver.Version{}
	}
	return v
}

// parseStrict reads s as the API server does: three numbers, nothing in front of them.
func parseStrict(s string) (semver.Version, error) {
	v, err := semver.Parse(s)
	if err == nil {
		return v, nil
	}
	likely := "three numbers, such as 1.2.0, with nothing in front"
	if meant, err := semver.ParseTolerant(s); err == nil {
		likely = meant.String()
	}
	return v, fmt.Errorf("the version %q: give %s: %w", s, likely, err)
}
