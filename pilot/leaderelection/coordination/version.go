package coordination

import "github.com/blang/semver/v4"

// versionOrZero parses s as Kubernetes' coordinator does, which accepts "v1.2" and "01.2.3". It returns 0.0.0 for an invalid version.
func versionOrZero(s string) semver.Version {
	v, err := semver.ParseTolerant(s)
	if err != nil {
		return semver.Version{}
	}
	return v
}
