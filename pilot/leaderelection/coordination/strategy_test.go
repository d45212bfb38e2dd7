package coordination_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/pilot/leaderelection/coordination"
)

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// of makes a candidate from its name, "emulation binary", and its age in seconds.
func of(name, versions string, age int) coordination.Candidate {
	emulation, binary, _ := strings.Cut(versions, " ")
	return coordination.Candidate{
		Name: name, EmulationVersion: emulation, BinaryVersion: binary, Strategy: coordination.OldestEmulationVersion,
		Created: epoch.Add(-time.Duration(age) * time.Second), Revision: "default",
	}
}

func TestOldestEmulationVersion(t *testing.T) {
	for name, test := range map[string]struct {
		candidates []coordination.Candidate
		want       string
	}{
		"nobody":                              {nil, ""},
		"lowest emulation":                    {[]coordination.Candidate{of("a", "1.2.0 1.2.0", 9), of("b", "1.1.0 1.3.0", 0)}, "b"},
		"then lowest binary":                  {[]coordination.Candidate{of("a", "1.1.0 1.3.0", 9), of("b", "1.1.0 1.2.0", 0)}, "b"},
		"then the oldest":                     {[]coordination.Candidate{of("a", "1.1.0 1.2.0", 0), of("b", "1.1.0 1.2.0", 1)}, "b"},
		"then the name":                       {[]coordination.Candidate{of("b", "1.1.0 1.2.0", 1), of("a", "1.1.0 1.2.0", 1)}, "a"},
		"numbers, not text":                   {[]coordination.Candidate{of("a", "1.10.0 1.10.0", 1), of("b", "1.9.0 1.10.0", 0)}, "b"},
		"unreadable emulation is left out":    {[]coordination.Candidate{of("a", "x 1.0.0", 9), of("b", "2.0.0 2.0.0", 0)}, "b"},
		"empty emulation is left out":         {[]coordination.Candidate{of("a", " 1.0.0", 9), of("b", "2.0.0 2.0.0", 0)}, "b"},
		"unreadable binary is left out":       {[]coordination.Candidate{of("a", "1.0.0 -", 9)}, ""},
		"a pre-release is below its release":  {[]coordination.Candidate{of("a", "1.0.0 1.0.0", 9), of("b", "1.0.0-rc.1 1.0.0", 0)}, "b"},
		"pre-releases: numbers by value":      {[]coordination.Candidate{of("a", "1.0.0-rc.10 1.0.0", 9), of("b", "1.0.0-rc.9 1.0.0", 0)}, "b"},
		"pre-releases: numbers below text":    {[]coordination.Candidate{of("a", "1.0.0-a 1.0.0", 9), of("b", "1.0.0-9 1.0.0", 0)}, "b"},
		"pre-releases: text by its letters":   {[]coordination.Candidate{of("a", "1.0.0-b 1.0.0", 9), of("b", "1.0.0-a 1.0.0", 0)}, "b"},
		"pre-releases: the shorter is lower":  {[]coordination.Candidate{of("a", "1.0.0-a.1 1.0.0", 9), of("b", "1.0.0-a 1.0.0", 0)}, "b"},
		"builds do not count":                 {[]coordination.Candidate{of("a", "1.0.0+z 1.0.0", 9), of("b", "1.0.0+a 1.0.0", 0)}, "a"},
		"tolerant: v, short, leading zeros":   {[]coordination.Candidate{of("a", "1.1 1.2", 9), of("b", "v01.00 1.2", 0)}, "b"},
		"a short one has no pre-release":      {[]coordination.Candidate{of("a", "1.0-rc 1.2", 9)}, ""},
		"a pre-release has no leading zero":   {[]coordination.Candidate{of("a", "1.0.0-01 1.2", 9)}, ""},
		"a pre-release has no empty part":     {[]coordination.Candidate{of("a", "1.0.0-a..b 1.2", 9)}, ""},
		"a build has letters, digits and -":   {[]coordination.Candidate{of("a", "1.0.0+a_b 1.2", 9)}, ""},
		"a number does not go beyond 64 bits": {[]coordination.Candidate{of("a", "1.0.99999999999999999999 1.2", 9)}, ""},
	} {
		best, found := coordination.ByOldestEmulationVersion(coordination.Situation{}, test.candidates)
		if best.Name != test.want || found != (test.want != "") {
			t.Errorf("%s: %q, %v; want %q", name, best.Name, found, test.want)
		}
	}
}

func TestDefaultRevision(t *testing.T) {
	type candidates = []coordination.Candidate
	with := func(name, revision string, change func(*coordination.Candidate)) coordination.Candidate {
		c := of(name, "1.0.0 1.0.0", 1)
		c.Revision = revision
		if change != nil {
			change(&c)
		}
		return c
	}
	// In each case all that comes later in the order speaks for a.
	for name, test := range map[string]struct{ a, b coordination.Candidate }{
		"default revision": {
			with("a", "canary", func(c *coordination.Candidate) { c.Priority = 9 }),
			with("b", "stable", func(c *coordination.Candidate) { c.Remote, c.Unfit = true, true }),
		},
		"local": {
			with("a", "stable", func(c *coordination.Candidate) { c.Remote, c.Priority = true, 9 }),
			with("b", "stable", func(c *coordination.Candidate) { c.Unfit = true }),
		},
		"fit":      {with("a", "stable", func(c *coordination.Candidate) { c.Unfit, c.Priority = true, 9 }), with("b", "stable", nil)},
		"priority": {with("a", "stable", func(c *coordination.Candidate) { c.BinaryVersion = "2.0.0" }), with("b", "stable", func(c *coordination.Candidate) { c.Priority = 1 })},
		"newest binary": {
			with("a", "stable", func(c *coordination.Candidate) { c.Created = epoch.Add(-time.Hour) }),
			with("b", "stable", func(c *coordination.Candidate) { c.BinaryVersion = "1.0.1" }),
		},
		"a readable binary": {with("a", "stable", func(c *coordination.Candidate) { c.BinaryVersion = "x" }), with("b", "stable", nil)},
		"oldest":            {with("a", "stable", nil), with("b", "stable", func(c *coordination.Candidate) { c.Created = epoch.Add(-time.Hour) })},
		"name":              {with("c", "stable", nil), with("b", "stable", nil)},
	} {
		for _, all := range []candidates{{test.a, test.b}, {test.b, test.a}} {
			best, found := coordination.ByDefaultRevision(coordination.Situation{DefaultRevision: "stable"}, all)
			if best.Name != "b" || !found {
				t.Errorf("%s: %q, %v", name, best.Name, found)
			}
		}
	}
	for holder, want := range map[string]string{"": "b", "b": "b", "c": "c", "d": "b"} {
		s := coordination.Situation{DefaultRevision: "stable", Holder: holder}
		if best, _ := coordination.ByDefaultRevision(s, candidates{with("c", "stable", nil), with("b", "stable", nil)}); best.Name != want {
			t.Errorf("of two that only their names tell apart, while %q has the lock: %q", holder, best.Name)
		}
	}
	unknown := candidates{with("a", "", nil), with("b", "stable", func(c *coordination.Candidate) { c.Priority = 1 })}
	if best, _ := coordination.ByDefaultRevision(coordination.Situation{}, unknown); best.Name != "b" {
		t.Errorf("without a default revision: %q", best.Name)
	}
}

func TestTheStrategyOfTheNewestBinaryCounts(t *testing.T) {
	ask := func(name, binary, strategy string) coordination.Candidate {
		c := of(name, "1.0.0 "+binary, 0)
		c.Strategy = strategy
		return c
	}
	known := coordination.Own().With(coordination.OldestEmulationVersion, coordination.ByOldestEmulationVersion)
	for name, test := range map[string]struct {
		registry   coordination.Registry
		candidates []coordination.Candidate
		best       string
		strategy   string
		err        error
	}{
		"nobody":   {known, nil, "", "", coordination.ErrNoCandidates},
		"one":      {known, []coordination.Candidate{ask("a", "1.0.0", coordination.DefaultRevision)}, "a", coordination.DefaultRevision, nil},
		"newest":   {known, []coordination.Candidate{ask("a", "1.0.0", coordination.OldestEmulationVersion), ask("b", "1.1.0", coordination.DefaultRevision)}, "b", coordination.DefaultRevision, nil},
		"conflict": {known, []coordination.Candidate{ask("a", "1.0.0", coordination.OldestEmulationVersion), ask("b", "1.0.0", coordination.DefaultRevision)}, "", "", coordination.ErrStrategies},
		"conflict below": {known, []coordination.Candidate{
			ask("a", "1.0.0", coordination.OldestEmulationVersion), ask("b", "1.0.0", coordination.DefaultRevision), ask("c", "1.1.0", coordination.OldestEmulationVersion),
		}, "a", coordination.OldestEmulationVersion, nil},
		"off unless told": {
			coordination.Own(), []coordination.Candidate{ask("a", "1.0.0", coordination.OldestEmulationVersion)}, "",
			coordination.OldestEmulationVersion, coordination.ErrUnknownStrategy,
		},
		"unreadable":  {known, []coordination.Candidate{ask("a", "x", coordination.OldestEmulationVersion)}, "", coordination.OldestEmulationVersion, coordination.ErrNoCandidates},
		"no registry": {nil, []coordination.Candidate{ask("a", "1.0.0", "example.com/S")}, "", "example.com/S", coordination.ErrUnknownStrategy},
	} {
		best, strategy, err := test.registry.Choose(coordination.Situation{}, test.candidates)
		if best.Name != test.best || strategy != test.strategy || !errors.Is(err, test.err) {
			t.Errorf("%s: %q by %q, %v", name, best.Name, strategy, err)
		}
	}
	if err := func() error {
		_, err := coordination.StrategyOf([]coordination.Candidate{ask("pod-a.x", "1.0.0", "example.com/A"), ask("pod-b.x", "1.0.0", "example.com/B")})
		return err
	}(); err == nil || !strings.Contains(err.Error(), `pod-a.x asks for "example.com/A", pod-b.x for "example.com/B"`) {
		t.Errorf("a conflict says %v", err)
	}
	if r := coordination.Own(); len(r.With("a/b", coordination.ByDefaultRevision)) != 2 || len(r) != 1 {
		t.Error("With changes the registry that it is called on")
	}
	if r := coordination.Registry(nil).With("a/b", coordination.ByDefaultRevision); len(r) != 1 {
		t.Error("With does not take an empty registry")
	}
}

var (
	someVersions  = []string{"1.0.0", "1.0.1", "1.1.0", "1.10.0", "v1.2", "1.0.0-rc.1", "1.0.0-rc.2", "", "x", "01.1"}
	someRevisions = []string{"stable", "canary", "default"}
)

func drawn(r *rand.Rand, name string) coordination.Candidate {
	pick := func(all []string) string { return all[r.IntN(len(all))] }
	return coordination.Candidate{
		Name: name, EmulationVersion: pick(someVersions), BinaryVersion: pick(someVersions), Revision: pick(someRevisions),
		Strategy: pick([]string{coordination.OldestEmulationVersion, coordination.DefaultRevision}), Created: epoch.Add(time.Duration(r.IntN(3)) * time.Second),
		Remote: r.IntN(3) == 0, Unfit: r.IntN(3) == 0, Priority: r.IntN(2),
	}
}

// The answer does not depend on the candidates' order, is one of them, and stays when another one goes.
func TestChoicesAreOrders(t *testing.T) {
	registry := coordination.Own().With(coordination.OldestEmulationVersion, coordination.ByOldestEmulationVersion)
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 1))
		var all []coordination.Candidate
		for i := range 1 + r.IntN(6) {
			all = append(all, drawn(r, string(rune('a'+i))))
		}
		s := coordination.Situation{DefaultRevision: []string{"", "stable", "canary"}[r.IntN(3)], Holder: []string{"", "a", "c"}[r.IntN(3)]}
		before := slices.Clone(all)
		named, strategy, err := registry.Choose(s, all)
		for name, f := range registry {
			best, found := f(s, all)
			others := slices.DeleteFunc(slices.Clone(all), func(c coordination.Candidate) bool { return c.Name != best.Name && r.IntN(2) == 0 })
			r.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
			if again, _ := f(s, others); found && again.Name != best.Name {
				t.Fatalf("seed %d: %s names %s of %+v, and %s of %+v", seed, name, best.Name, all, again.Name, others)
			}
		}
		if !slices.EqualFunc(before, all, func(a, b coordination.Candidate) bool { return a.Name == b.Name }) {
			t.Fatalf("seed %d: the candidates were sorted in place", seed)
		}
		r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		again, strategyAgain, errAgain := registry.Choose(s, all)
		if named.Name != again.Name || strategy != strategyAgain || (err == nil) != (errAgain == nil) {
			t.Fatalf("seed %d: %s by %q (%v), and %s by %q (%v)", seed, named.Name, strategy, err, again.Name, strategyAgain, errAgain)
		}
	}
}

func TestFromLeaseCandidate(t *testing.T) {
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
	all := object("x", coordination.RevisionLabel, "canary", coordination.LocationLabel, "remote", coordination.FitLabel, "false", coordination.PriorityLabel, "-3")
	c, err := coordination.FromLeaseCandidate(all)
	if err != nil || c.Name != "pod-a.x" || c.Revision != "canary" || !c.Remote || !c.Unfit || c.Priority != -3 || c.Strategy != "a/b" ||
		c.BinaryVersion != "1.2.0" || c.EmulationVersion != "1.1.0" || !c.Created.Equal(epoch) || c.Labels[coordination.FitLabel] != "false" {
		t.Errorf("got %+v, %v", c, err)
	}
	c, err = coordination.FromLeaseCandidate(object("x", coordination.LocationLabel, "local", coordination.FitLabel, "true"))
	if err != nil || c.Revision != "default" || c.Remote || c.Unfit || c.Priority != 0 {
		t.Errorf("got %+v, %v", c, err)
	}
	for want, o := range map[string]*coordinationv1beta1.LeaseCandidate{
		`label incumbent.dev/priority="high": the priority is no whole number`: object("x", coordination.PriorityLabel, "high"),
		`label incumbent.dev/priority="99999999999999999999"`:                  object("x", coordination.PriorityLabel, "99999999999999999999"),
		`label incumbent.dev/location="moon"`:                                  object("x", coordination.LocationLabel, "moon"),
		`label incumbent.dev/fit="no"`:                                         object("x", coordination.FitLabel, "no"),
	} {
		c, err := coordination.FromLeaseCandidate(o)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "LeaseCandidate ns/pod-a.x") || c.Name != "pod-a.x" || c.Priority != 0 || c.Remote || c.Unfit {
			t.Errorf("%s: %+v, %v", want, c, err)
		}
	}
	if c, err := coordination.FromLeaseCandidate(object("")); err == nil || !strings.Contains(err.Error(), "no spec.leaseName") || c.Name != "" {
		t.Errorf("without a lease: %+v, %v", c, err)
	}
}
