package coordination

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// of makes a candidate from its name, "emulation binary", and its age in seconds.
var byDefaultRevision = Best(CompareDefaultRevision)

func of(name, versions string, age int) Candidate {
	emulation, binary, _ := strings.Cut(versions, " ")
	return Candidate{
		Name: name, EmulationVersion: emulation, BinaryVersion: binary, Strategy: OldestEmulationVersion,
		Created: epoch.Add(-time.Duration(age) * time.Second), Revision: "default",
	}
}

func TestDefaultRevision(t *testing.T) {
	type candidates = []Candidate
	with := func(name, revision string, change func(*Candidate)) Candidate {
		c := of(name, "1.0.0 1.0.0", 1)
		c.Revision = revision
		if change != nil {
			change(&c)
		}
		return c
	}
	// In each case all less important criteria prefer a.
	for name, test := range map[string]struct{ a, b Candidate }{
		"default revision": {
			with("a", "canary", func(c *Candidate) { c.Priority = 9 }),
			with("b", "stable", func(c *Candidate) { c.Remote, c.Unfit = true, true }),
		},
		"local": {
			with("a", "stable", func(c *Candidate) { c.Remote, c.Priority = true, 9 }),
			with("b", "stable", func(c *Candidate) { c.Unfit = true }),
		},
		"fit":      {with("a", "stable", func(c *Candidate) { c.Unfit, c.Priority = true, 9 }), with("b", "stable", nil)},
		"priority": {with("a", "stable", func(c *Candidate) { c.BinaryVersion = "2.0.0" }), with("b", "stable", func(c *Candidate) { c.Priority = 1 })},
		"newest binary": {
			with("a", "stable", func(c *Candidate) { c.Created = epoch.Add(-time.Hour) }),
			with("b", "stable", func(c *Candidate) { c.BinaryVersion = "1.0.1" }),
		},
		"a readable binary": {with("a", "stable", func(c *Candidate) { c.BinaryVersion = "x" }), with("b", "stable", nil)},
		"oldest":            {with("a", "stable", nil), with("b", "stable", func(c *Candidate) { c.Created = epoch.Add(-time.Hour) })},
		"name":              {with("c", "stable", nil), with("b", "stable", nil)},
	} {
		for _, all := range []candidates{{test.a, test.b}, {test.b, test.a}} {
			best, found := byDefaultRevision(Situation{DefaultRevision: "stable"}, all)
			if best.Name != "b" || !found {
				t.Errorf("%s: %q, %v", name, best.Name, found)
			}
		}
	}
	for holder, want := range map[string]string{"": "b", "b": "b", "c": "c", "d": "b"} {
		s := Situation{DefaultRevision: "stable", Holder: holder}
		if best, _ := byDefaultRevision(s, candidates{with("c", "stable", nil), with("b", "stable", nil)}); best.Name != want {
			t.Errorf("equal except for the name, holder %q: %q", holder, best.Name)
		}
	}
	unknown := candidates{with("a", "", nil), with("b", "stable", func(c *Candidate) { c.Priority = 1 })}
	if best, _ := byDefaultRevision(Situation{}, unknown); best.Name != "b" {
		t.Errorf("without a default revision: %q", best.Name)
	}
}

// The coordinator of kube-apiserver chooses the same candidates. In each case all less important criteria prefer a.
func TestByOldestEmulationVersion(t *testing.T) {
	for name, test := range map[string]struct {
		a, b string // "emulation binary"
		age  int    // of b; a is one second old
		want string
	}{
		"emulation":             {"1.1.0 1.1.0", "1.0.0 1.9.0", 0, "b"},
		"by number":             {"1.10.0 1.10.0", "1.9.0 1.10.0", 0, "b"},
		"patch":                 {"1.0.1 1.0.1", "1.0.0 1.0.1", 0, "b"},
		"pre-release":           {"1.0.0 1.0.0", "1.0.0-rc.10 1.0.0", 0, "b"},
		"pre-release by number": {"1.0.0-rc.10 1.0.0", "1.0.0-rc.1 1.0.0", 0, "b"},
		"binary":                {"1.0.0 1.10.0", "1.0.0 1.9.0", 0, "b"},
		"build":                 {"1.10.0 1.10.0+build", "1.10.0 1.10.0", 0, "a"},
		"oldest":                {"1.0.0 1.0.0", "1.0.0 1.0.0", 2, "b"},
		"invalid emulation":     {"x 1.0.0", "1.0.0 1.0.0", 0, "b"},
		"invalid binary":        {"1.0.0 x", "1.1.0 1.1.0", 0, "b"},
		"none valid":            {"x 1.0.0", "1.0.0 x", 0, ""},
	} {
		a, b := of("a", test.a, 1), of("b", test.b, test.age)
		for _, all := range [][]Candidate{{a, b}, {b, a}} {
			if best, found := ByOldestEmulationVersion(Situation{}, all); best.Name != test.want || found != (test.want != "") {
				t.Errorf("%s: %q, %v", name, best.Name, found)
			}
		}
	}
}

func TestRegistry_Choose(t *testing.T) {
	ask := func(name, binary, strategy string) Candidate {
		c := of(name, "1.0.0 "+binary, 0)
		c.Strategy = strategy
		return c
	}
	known := Own()
	known[OldestEmulationVersion] = ByOldestEmulationVersion
	for name, test := range map[string]struct {
		registry   Registry
		candidates []Candidate
		best       string
		strategy   string
		err        error
	}{
		"no candidates": {known, nil, "", "", errNoCandidates},
		"one":           {known, []Candidate{ask("a", "1.0.0", DefaultRevision)}, "a", DefaultRevision, nil},
		"newest":        {known, []Candidate{ask("a", "1.0.0", OldestEmulationVersion), ask("b", "1.1.0", DefaultRevision)}, "b", DefaultRevision, nil},
		"conflict":      {known, []Candidate{ask("a", "1.0.0", OldestEmulationVersion), ask("b", "1.0.0", DefaultRevision)}, "", "", errStrategies},
		"conflict below": {known, []Candidate{
			ask("a", "1.0.0", OldestEmulationVersion), ask("b", "1.0.0", DefaultRevision), ask("c", "1.1.0", OldestEmulationVersion),
		}, "a", OldestEmulationVersion, nil},
		"not in the registry": {
			Own(), []Candidate{ask("a", "1.0.0", OldestEmulationVersion)}, "",
			OldestEmulationVersion, errUnknownStrategy,
		},
		"invalid version": {known, []Candidate{ask("a", "x", OldestEmulationVersion)}, "", OldestEmulationVersion, errNoCandidates},
		"no registry":     {nil, []Candidate{ask("a", "1.0.0", "example.com/S")}, "", "example.com/S", errUnknownStrategy},
	} {
		best, strategy, err := test.registry.choose(Situation{}, test.candidates)
		if best.Name != test.best || strategy != test.strategy || !errors.Is(err, test.err) {
			t.Errorf("%s: %q by %q, %v", name, best.Name, strategy, err)
		}
	}
	_, err := chooseStrategy([]Candidate{ask("pod-a.x", "1.0.0", "example.com/A"), ask("pod-b.x", "1.0.0", "example.com/B")})
	if err == nil || !strings.Contains(err.Error(), `pod-a.x requests "example.com/A", pod-b.x requests "example.com/B"`) {
		t.Errorf("conflict: %v", err)
	}
	if len(Own()) != 1 {
		t.Error("a change of a registry changed the next one")
	}
}

var (
	someVersions  = []string{"1.0.0", "1.0.1", "1.1.0", "1.10.0", "v1.2", "1.0.0-rc.1", "1.0.0-rc.2", "", "x", "01.1"}
	someRevisions = []string{"stable", "canary", "default"}
)

func randomCandidate(r *rand.Rand, name string) Candidate {
	pick := func(all []string) string { return all[r.IntN(len(all))] }
	return Candidate{
		Name: name, EmulationVersion: pick(someVersions), BinaryVersion: pick(someVersions), Revision: pick(someRevisions),
		Strategy: pick([]string{OldestEmulationVersion, DefaultRevision}), Created: epoch.Add(time.Duration(r.IntN(3)) * time.Second),
		Remote: r.IntN(3) == 0, Unfit: r.IntN(3) == 0, Priority: r.IntN(2),
	}
}

// The choice does not depend on the order of the candidates, and does not change if another candidate is removed.
func TestStrategies_Order(t *testing.T) {
	registry := Own()
	registry[OldestEmulationVersion] = ByOldestEmulationVersion
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 1))
		var all []Candidate
		for i := range 1 + r.IntN(6) {
			all = append(all, randomCandidate(r, string(rune('a'+i))))
		}
		s := Situation{DefaultRevision: []string{"", "stable", "canary"}[r.IntN(3)], Holder: []string{"", "a", "c"}[r.IntN(3)]}
		before := slices.Clone(all)
		named, strategy, err := registry.choose(s, all)
		for name, f := range registry {
			best, found := f(s, all)
			others := slices.DeleteFunc(slices.Clone(all), func(c Candidate) bool { return c.Name != best.Name && r.IntN(2) == 0 })
			r.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
			if again, _ := f(s, others); found && again.Name != best.Name {
				t.Fatalf("seed %d: %s: %s of %+v, but %s of %+v", seed, name, best.Name, all, again.Name, others)
			}
		}
		if !slices.EqualFunc(before, all, func(a, b Candidate) bool { return a.Name == b.Name }) {
			t.Fatalf("seed %d: the argument was sorted", seed)
		}
		r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		again, strategyAgain, errAgain := registry.choose(s, all)
		if named.Name != again.Name || strategy != strategyAgain || (err == nil) != (errAgain == nil) {
			t.Fatalf("seed %d: %s by %q (%v), but in another order %s by %q (%v)", seed, named.Name, strategy, err, again.Name, strategyAgain, errAgain)
		}
	}
}

func TestParseCandidate(t *testing.T) {
	object := func(lease string, labels ...string) *coordinationv1beta1.LeaseCandidate {
		o := &coordinationv1beta1.LeaseCandidate{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod-a.x", CreationTimestamp: metav1.NewTime(epoch), Labels: map[string]string{}},
			Spec:       coordinationv1beta1.LeaseCandidateSpec{LeaseName: lease, BinaryVersion: "1.2.0", EmulationVersion: "1.1.0", Strategy: "a/b"},
		}
		for i := 0; i < len(labels); i += 2 {
			o.Labels[labels[i]] = labels[i+1]
		}
		return o
	}
	all := object("x", RevisionLabel, "canary", LocationLabel, "remote", FitLabel, "false", PriorityLabel, "-3")
	c, err := parseCandidate(all)
	if err != nil || c.Name != "pod-a.x" || c.Revision != "canary" || !c.Remote || !c.Unfit || c.Priority != -3 || c.Strategy != "a/b" ||
		c.BinaryVersion != "1.2.0" || c.EmulationVersion != "1.1.0" || !c.Created.Equal(epoch) || c.Labels[FitLabel] != "false" {
		t.Errorf("got %+v, %v", c, err)
	}
	c, err = parseCandidate(object("x", LocationLabel, "local", FitLabel, "true"))
	if err != nil || c.Revision != "default" || c.Remote || c.Unfit || c.Priority != 0 {
		t.Errorf("got %+v, %v", c, err)
	}
	for want, o := range map[string]*coordinationv1beta1.LeaseCandidate{
		`label incumbent.dev/priority="high": not an integer`: object("x", PriorityLabel, "high"),
		`label incumbent.dev/priority="99999999999999999999"`: object("x", PriorityLabel, "99999999999999999999"),
		`label incumbent.dev/location="moon"`:                 object("x", LocationLabel, "moon"),
		`label incumbent.dev/fit="no"`:                        object("x", FitLabel, "no"),
	} {
		c, err := parseCandidate(o)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "LeaseCandidate ns/pod-a.x") || c.Name != "pod-a.x" || c.Priority != 0 || c.Remote || c.Unfit {
			t.Errorf("%s: %+v, %v", want, c, err)
		}
	}
	if c, err := parseCandidate(object("")); err == nil || !strings.Contains(err.Error(), "spec.leaseName is empty") || c.Name != "" {
		t.Errorf("without leaseName: %+v, %v", c, err)
	}
}
