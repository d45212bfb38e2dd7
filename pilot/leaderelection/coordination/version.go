package coordination

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// version is a semantic version, read as tolerantly as Kubernetes' own controller reads one: "v1.2" and
// "01.2.3" are versions there. The zero version is lower than all others but the pre-releases of 0.0.0.
type version struct {
	numbers [3]uint64
	pre     []identifier
}

// identifier is one part of a pre-release: a number, or text.
type identifier struct {
	text    string
	number  uint64
	numeric bool
}

var (
	errNumber     = errors.New("a number is expected, without leading zeros")
	errIdentifier = errors.New("letters, digits and - are expected between dots")
	errStrict     = errors.New("three numbers are expected, such as 1.2.0, with nothing in front")
	errShort      = errors.New("a version of less than three numbers can have neither pre-release nor build")
)

const (
	digits = "0123456789"
	alnum  = digits + "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-"
)

// Version is text as a LeaseCandidate can carry it: a semantic version without a v in front, and 0.0.0 for what is none.
func Version(text string) string {
	text = strings.TrimPrefix(text, "v")
	if _, err := parseStrict(text); err != nil {
		return "0.0.0"
	}
	return text
}

// parseVersion reads s.
func parseVersion(s string) (version, error) {
	v, err := parseTolerant(s)
	if err != nil {
		return version{}, fmt.Errorf("the version %q: %w", s, err)
	}
	return v, nil
}

func parseTolerant(s string) (version, error) {
	parts := strings.SplitN(strings.TrimPrefix(strings.TrimSpace(s), "v"), ".", 3)
	for i, part := range parts {
		parts[i] = withoutZeros(part)
	}
	if len(parts) < 3 && strings.ContainsAny(parts[len(parts)-1], "+-") {
		return version{}, errShort
	}
	for len(parts) < 3 {
		parts = append(parts, "0")
	}
	patch, build, hasBuild := strings.Cut(parts[2], "+")
	patch, pre, hasPre := strings.Cut(patch, "-")
	parts[2] = patch
	var v version
	for i, part := range parts {
		n, err := number(part)
		if err != nil {
			return v, err
		}
		v.numbers[i] = n
	}
	if hasBuild && !slices.ContainsFunc(strings.Split(build, "."), notAlnum) || !hasBuild {
		return withPre(v, pre, hasPre)
	}
	return v, errIdentifier
}

func withPre(v version, pre string, hasPre bool) (version, error) {
	if !hasPre {
		return v, nil
	}
	for _, text := range strings.Split(pre, ".") {
		id := identifier{text: text, numeric: text != "" && strings.Trim(text, digits) == ""}
		if notAlnum(text) {
			return v, errIdentifier
		}
		if id.numeric {
			n, err := number(text)
			if err != nil {
				return v, err
			}
			id.number = n
		}
		v.pre = append(v.pre, id)
	}
	return v, nil
}

func notAlnum(s string) bool { return s == "" || strings.Trim(s, alnum) != "" }

func number(s string) (uint64, error) {
	if s == "" || strings.Trim(s, digits) != "" || len(s) > 1 && s[0] == '0' {
		return 0, errNumber
	}
	return strconv.ParseUint(s, 10, 64)
}

// withoutZeros strips zeros in front of a number.
func withoutZeros(s string) string {
	if len(s) < 2 {
		return s
	}
	s = strings.TrimLeft(s, "0")
	if s == "" || !strings.Contains(digits, s[:1]) {
		return "0" + s
	}
	return s
}

// versionOrZero reads s; what is none counts as 0.0.0.
func versionOrZero(s string) version {
	v, err := parseVersion(s)
	if err != nil {
		return version{}
	}
	return v
}

// compare orders versions; builds do not count.
func (v version) compare(w version) int {
	if c := slices.Compare(v.numbers[:], w.numbers[:]); c != 0 {
		return c
	}
	if len(v.pre) == 0 || len(w.pre) == 0 {
		// A release is above its pre-releases.
		return cmp.Compare(len(w.pre), len(v.pre))
	}
	return slices.CompareFunc(v.pre, w.pre, identifier.compare)
}

// compare orders numbers by value and before text.
func (a identifier) compare(b identifier) int {
	switch {
	case a.numeric && b.numeric:
		return cmp.Compare(a.number, b.number)
	case a.numeric:
		return -1
	case b.numeric:
		return 1
	}
	return strings.Compare(a.text, b.text)
}

// parseStrict reads s as the API server does: three numbers, nothing in front of them.
func parseStrict(s string) (version, error) {
	if strings.HasPrefix(s, "v") {
		return version{}, fmt.Errorf("the version %q: %w: give %s", s, errStrict, s[1:])
	}
	parts := strings.SplitN(s, ".", 3)
	if len(parts) < 3 || slices.ContainsFunc(parts, func(part string) bool { return withoutZeros(part) != part }) || strings.TrimSpace(s) != s {
		return version{}, fmt.Errorf("the version %q: %w", s, errStrict)
	}
	return parseVersion(s)
}
