package leasecandidate

import (
	"fmt"
	"strings"

	"github.com/blang/semver/v4"
)

// Version returns text as a semantic version for a LeaseCandidate: without leading v, and 0.0.0 if it is invalid.
func Version(text string) string {
	text = strings.TrimPrefix(text, "v")
	if _, err := semver.Parse(text); err != nil {
		return "0.0.0"
	}
	return text
}

// parseVersion parses s as the API server does: three numbers without a prefix. The error suggests a valid version.
func parseVersion(s string) (semver.Version, error) {
	v, err := semver.Parse(s)
	if err == nil {
		return v, nil
	}
	suggestion := "three numbers without a prefix, such as 1.2.0"
	if meant, err := semver.ParseTolerant(s); err == nil {
		suggestion = meant.String()
	}
	return v, fmt.Errorf("version %q: use %s: %w", s, suggestion, err)
}
