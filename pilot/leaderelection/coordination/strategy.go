package coordination

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/blang/semver/v4"
)

// Situation is the state of the cluster that a strategy may use, in addition to the candidates.
type Situation struct {
	// DefaultRevision is the default revision. It is empty if it is unknown or none is set.
	DefaultRevision string
	// Holder is the name of the candidate that holds the lock. It is empty if the lock is free or the lease expired.
	// The Controller sets it.
	Holder string
}

// Strategy returns the candidate that should lead, and false if no candidate can. It must be a pure function whose answer does not
// depend on the order of the candidates.
type Strategy func(Situation, []Candidate) (Candidate, bool)

// Compare returns a negative number if a is preferred, a positive number if b is, and 0 if neither is.
type Compare func(s Situation, a, b Candidate) int

// Registry contains the strategies of a coordinator by name. The coordinator does not change elections of other strategies.
type Registry map[string]Strategy

// Own returns a new registry of the strategies of this module. Add others under a qualified name, such as "example.com/Zone": the API
// server rejects other names. It does not contain OldestEmulationVersion, because the API
// server may run that strategy.
func Own() Registry { return Registry{DefaultRevision: Best(CompareDefaultRevision)} }

// Best returns a strategy that applies comparisons in order of importance. If they prefer neither of two candidates, the older
// one is preferred. Creation times have a resolution of a second. Within a second the holder is preferred, so that no
// term ends only because of a name. Otherwise the name decides.
func Best(compares ...Compare) Strategy {
	return func(s Situation, candidates []Candidate) (Candidate, bool) {
		if len(candidates) == 0 {
			return Candidate{}, false
		}
		return slices.MinFunc(candidates, func(a, b Candidate) int {
			for _, compare := range compares {
				if c := compare(s, a, b); c != 0 {
					return c
				}
			}
			return cmp.Or(a.Created.Compare(b.Created), first(a.Name == s.Holder, b.Name == s.Holder), strings.Compare(a.Name, b.Name))
		}), true
	}
}

// ByOldestEmulationVersion is the strategy of Kubernetes. It prefers the lowest emulation version, then the lowest binary
// version, then the oldest candidate. It ignores candidates with an invalid version.
func ByOldestEmulationVersion(s Situation, candidates []Candidate) (Candidate, bool) {
	var valid []Candidate
	for _, c := range candidates {
		_, emulation := semver.ParseTolerant(c.EmulationVersion)
		_, binary := semver.ParseTolerant(c.BinaryVersion)
		if emulation == nil && binary == nil {
			valid = append(valid, c)
		}
	}
	return Best(compareEmulation)(s, valid)
}

func compareEmulation(_ Situation, a, b Candidate) int {
	return cmp.Or(versionOrZero(a.EmulationVersion).Compare(versionOrZero(b.EmulationVersion)), compareBinary(b, a))
}

// CompareDefaultRevision is the comparison of the strategy DefaultRevision. It prefers the default revision, then local
// candidates, fit candidates, a higher priority, and a newer binary. An invalid version counts as 0.0.0.
func CompareDefaultRevision(s Situation, a, b Candidate) int {
	byRevision := 0
	if s.DefaultRevision != "" {
		byRevision = first(a.Revision == s.DefaultRevision, b.Revision == s.DefaultRevision)
	}
	return cmp.Or(byRevision, first(!a.Remote, !b.Remote), first(!a.Unfit, !b.Unfit), cmp.Compare(b.Priority, a.Priority), compareBinary(a, b))
}

// compareBinary prefers the newest binary version.
func compareBinary(a, b Candidate) int {
	return versionOrZero(b.BinaryVersion).Compare(versionOrZero(a.BinaryVersion))
}

func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

var (
	errNoCandidates    = errors.New("no candidate can lead")
	errStrategies      = errors.New("candidates of the newest binary version request different strategies")
	errUnknownStrategy = errors.New("strategy is not in the registry of this coordinator")
)

// chooseStrategy returns the strategy that the candidates of the newest binary version request. The error is errNoCandidates or
// errStrategies, if they request different ones. Kubernetes' coordinator agrees, except that, for some orders of its
// candidates, it also rejects two strategies at a lower binary version.
func chooseStrategy(candidates []Candidate) (string, error) {
	newest, found := Best(func(_ Situation, a, b Candidate) int { return compareBinary(a, b) })(Situation{}, candidates)
	if !found {
		return "", errNoCandidates
	}
	sorted := slices.SortedFunc(slices.Values(candidates), func(a, b Candidate) int { return strings.Compare(a.Name, b.Name) })
	for _, c := range sorted {
		if compareBinary(newest, c) == 0 && c.Strategy != newest.Strategy {
			return "", fmt.Errorf("%w: %s requests %q, %s requests %q", errStrategies, newest.Name, newest.Strategy, c.Name, c.Strategy)
		}
	}
	return newest.Strategy, nil
}

// choose returns the candidate that should lead, and the strategy. The error is errNoCandidates, errStrategies or
// errUnknownStrategy. The strategy is also returned with errUnknownStrategy.
func (r Registry) choose(s Situation, candidates []Candidate) (Candidate, string, error) {
	name, err := chooseStrategy(candidates)
	if err != nil {
		return Candidate{}, "", err
	}
	strategy, known := r[name]
	if !known {
		return Candidate{}, name, fmt.Errorf("%q: %w", name, errUnknownStrategy)
	}
	best, found := strategy(s, candidates)
	if !found {
		return Candidate{}, name, errNoCandidates
	}
	return best, name, nil
}
