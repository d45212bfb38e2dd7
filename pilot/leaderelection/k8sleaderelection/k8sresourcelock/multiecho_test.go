package k8sresourcelock_test

import "testing"

// Of two holds that differ after a renewal, the one that was set last counts, on whichever
// object: the renewal's own second write brings nothing newer.
func TestMultiLockAHoldSetBetweenTheWritesOfARenewal(t *testing.T) {
	for name, c := range map[string]struct {
		between, afterwards func(pairTrial)
		want                string
	}{
		"none":                        {func(pairTrial) {}, func(pairTrial) {}, "old"},
		"on the primary":              {func(p pairTrial) { p.Primary.Annotate(hold, "new") }, func(pairTrial) {}, "new"},
		"on the secondary":            {func(p pairTrial) { p.Secondary.Annotate(hold, "new") }, func(pairTrial) {}, "new"},
		"on the primary, and later":   {func(p pairTrial) { p.Primary.Annotate(hold, "new") }, func(p pairTrial) { p.Secondary.Annotate(hold, "newest") }, "newest"},
		"on the secondary, and later": {func(p pairTrial) { p.Secondary.Annotate(hold, "new") }, func(p pairTrial) { p.Primary.Annotate(hold, "newest") }, "newest"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPairTrial(t)
			base, err := p.lock.Write(t.Context(), p.held(), termOf("b", 3, 1), notes{hold: "old"})
			if err != nil {
				t.Fatal(err)
			}
			p.betweenTheWrites(func() { c.between(p) })
			if _, err := p.lock.Write(t.Context(), base, termOf("b", 3, 2), base.Notes); err != nil {
				t.Fatal(err)
			}
			c.afterwards(p)
			if got := p.read().Notes[hold]; got != c.want {
				t.Errorf("the hold %q counts, want %q", got, c.want)
			}
		})
	}
}
