package coordination

import (
	"fmt"

	"github.com/blang/semver/v4"
)

// versionOrZero parses s as Kubernetes' coordinator does, which accepts "v1.2" and "01.2.3". It returns 0.0.0 for an invalid version.
func versionOrZero(s string) semver.Version {
	v, err := semver.ParseTolerant(s)
	if err != nil {
		return semver.Version{}
	}
	return v
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
