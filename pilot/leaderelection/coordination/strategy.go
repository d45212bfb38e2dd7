package coordination

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/blang/semver/v4"
	coordinationv1 "k8s.io/api/coordination/v1"
)

// Names of strategies, as candidates ask for them.
const (
	OldestEmulationVersion = string(coordinationv1.OldestEmulationVersion)
	DefaultRevision        = "incumbent.dev/DefaultRevision"
)

// Situation is what a strategy may look at beside the candidates.
type Situation struct {
	// DefaultRevision is the revision that the cluster's default tag names; "" while that is not known, or there is none.
	DefaultRevision string
	// Holder is the candidate that has the lock, "" while nobody has it or its lease is over. An Observer's Plan says it.
	Holder string
}

// Strategy names the candidate that should lead; false if none of them can. It is a pure function:
// its answer depends on what it is given alone, and not on the candidates' order.
type Strategy func(Situation, []Candidate) (Candidate, bool)

// Compare says which of two candidates goes first: a with a negative number, b with a positive one, 0 if it
// does not tell them apart.
type Compare func(s Situation, a, b Candidate) int

// Registry is the strategies that a coordinator knows, by name. It leaves the elections of all others alone.
type Registry map[string]Strategy

// Own is a registry of this module's own strategies: without OldestEmulationVersion, which
// an API server may run itself.
func Own() Registry { return Registry{DefaultRevision: ByDefaultRevision} }

// With is a copy of the registry with one more strategy. Its name must be qualified, such as "example.com/Zone":
// the API server refuses all others but its own.
func (r Registry) With(name string, strategy Strategy) Registry {
	all := maps.Clone(r)
	if all == nil {
		all = Registry{}
	}
	all[name] = strategy
	return all
}

// Best makes a strategy of comparisons, the most important first. Candidates that none of them tells apart go by age,
// the oldest first. Creation times are whole seconds: of those of one second the holder goes on, as no term is to end for a name,
// and without one the name decides.
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

// ByOldestEmulationVersion is Kubernetes' strategy: the lowest emulation version, then the lowest binary
// version, then the oldest. A candidate with a version that cannot be read is left out.
func ByOldestEmulationVersion(s Situation, candidates []Candidate) (Candidate, bool) {
	var readable []Candidate
	for _, c := range candidates {
		_, emulation := semver.ParseTolerant(c.EmulationVersion)
		_, binary := semver.ParseTolerant(c.BinaryVersion)
		if emulation == nil && binary == nil {
			readable = append(readable, c)
		}
	}
	return Best(oldestEmulation, oldestBinary)(s, readable)
}

// ByDefaultRevision prefers the default revision, candidates of this cluster to remote ones, fit to unfit ones,
// a higher priority, and a newer binary.
func ByDefaultRevision(s Situation, candidates []Candidate) (Candidate, bool) {
	return Best(InDefaultRevision, LocalFirst, FitFirst, PriorityFirst, NewestBinary)(s, candidates)
}

// InDefaultRevision puts candidates of the default revision first. Without one nobody goes first.
func InDefaultRevision(s Situation, a, b Candidate) int {
	if s.DefaultRevision == "" {
		return 0
	}
	return first(a.Revision == s.DefaultRevision, b.Revision == s.DefaultRevision)
}

// LocalFirst puts candidates that are not remote first.
func LocalFirst(_ Situation, a, b Candidate) int { return first(!a.Remote, !b.Remote) }

// FitFirst puts candidates that are not unfit first.
func FitFirst(_ Situation, a, b Candidate) int { return first(!a.Unfit, !b.Unfit) }

// PriorityFirst puts the higher priority first.
func PriorityFirst(_ Situation, a, b Candidate) int { return cmp.Compare(b.Priority, a.Priority) }

// NewestBinary puts the newest binary version first; one that cannot be read counts as 0.0.0.
func NewestBinary(_ Situation, a, b Candidate) int {
	return versionOrZero(b.BinaryVersion).Compare(versionOrZero(a.BinaryVersion))
}

func oldestEmulation(_ Situation, a, b Candidate) int {
	return versionOrZero(a.EmulationVersion).Compare(versionOrZero(b.EmulationVersion))
}

func oldestBinary(s Situation, a, b Candidate) int { return NewestBinary(s, b, a) }

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
	// ErrNoCandidates: there is nobody to choose.
	ErrNoCandidates = errors.New("there is no candidate that could lead")
	// ErrStrategies: candidates of the newest binary version ask for different strategies.
	ErrStrategies = errors.New("candidates of the newest binary version ask for different strategies")
	// ErrUnknownStrategy: the registry does not have the strategy, so somebody else's coordinator chooses.
	ErrUnknownStrategy = errors.New("the strategy is none of this coordinator's")
)

// StrategyOf is the strategy that counts for candidates: that of the newest binary version. If two are asked for there, none
// counts, and the error, ErrStrategies, names both candidates. Kubernetes' controller agrees, except that
// in some orders of its candidates it also refuses two strategies at a lower binary version.
func StrategyOf(candidates []Candidate) (string, error) {
	newest, found := Best(NewestBinary)(Situation{}, candidates)
	if !found {
		return "", ErrNoCandidates
	}
	sorted := slices.SortedFunc(slices.Values(candidates), func(a, b Candidate) int { return strings.Compare(a.Name, b.Name) })
	for _, c := range sorted {
		if NewestBinary(Situation{}, newest, c) == 0 && c.Strategy != newest.Strategy {
			return "", fmt.Errorf("%w: %s asks for %q, %s for %q", ErrStrategies, newest.Name, newest.Strategy, c.Name, c.Strategy)
		}
	}
	return newest.Strategy, nil
}

// Choose is who should lead, and by which strategy. The error is ErrNoCandidates, ErrStrategies or
// ErrUnknownStrategy; the strategy is returned beside the last one too.
func (r Registry) Choose(s Situation, candidates []Candidate) (Candidate, string, error) {
	name, err := StrategyOf(candidates)
	if err != nil {
		return Candidate{}, "", err
	}
	strategy, known := r[name]
	if !known {
		return Candidate{}, name, fmt.Errorf("%q: %w", name, ErrUnknownStrategy)
	}
	best, found := strategy(s, candidates)
	if !found {
		return Candidate{}, name, ErrNoCandidates
	}
	return best, name, nil
}
