package k8sresourcelock_test

import (
	"testing"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock/locktest"
)

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
			if _, err := p.lock.Write(t.Context(), base, termOf("b", 3, 2), base.Annotations); err != nil {
				t.Fatal(err)
			}
			c.afterwards(p)
			if got := p.read().Annotations[hold]; got != c.want {
				t.Errorf("the hold %q counts, want %q", got, c.want)
			}
		})
	}
}

// A renewal that was decided before its holder saw another's word takes nothing back of it, even if it
// gets no further than the primary: what that shows is the holder's own, and older.
func TestMultiLockAHoldSetBeforeARenewalThatIsCutShort(t *testing.T) {
	for name, cut := range map[string]func(pairTrial){
		"the second write is lost": func(p pairTrial) {
			p.lock.Secondary.FailNext(locktest.Update, locktest.Fault{Lose: locktest.TheRequest})
		},
		"the first one's answer is lost": func(p pairTrial) { p.lock.Primary.FailNext(locktest.Update, locktest.Fault{Lose: locktest.TheReply}) },
	} {
		t.Run(name, func(t *testing.T) {
			p := newPairTrial(t)
			base, err := p.lock.Write(t.Context(), p.held(), termOf("b", 3, 1), notes{hold: "old"})
			if err != nil {
				t.Fatal(err)
			}
			p.Secondary.Annotate(hold, "new")
			cut(p)
			if _, err := p.lock.Write(t.Context(), base, termOf("b", 3, 2), base.Annotations); err == nil {
				t.Fatal("written")
			}
			if got := p.read().Annotations[hold]; got != "new" || p.Primary.Snapshot().Annotations[hold] != "old" {
				t.Errorf("the hold %q counts, want %q", got, "new")
			}
		})
	}
}

// Of an order that was written to both objects, and of the next on the primary, the holder sees the
// first arrive on the secondary last. Its renewal does not take that for the newest; what is said
// there once the renewal has written both, is.
func TestMultiLockAHoldThatArrivesLate(t *testing.T) {
	p := newPairTrial(t)
	if _, err := p.lock.Write(t.Context(), p.held(), termOf("b", 3, 1), notes{hold: "old"}); err != nil {
		t.Fatal(err)
	}
	p.Primary.Annotate(hold, "ended")
	p.lock.Secondary.FailNext(locktest.Get, locktest.Fault{Lose: locktest.TheRequest})
	if _, err := p.lock.Read(t.Context()); err == nil {
		t.Fatal("the secondary was read")
	}
	p.Primary.Annotate(hold, "new")
	base := p.read()
	p.betweenTheWrites(func() { p.Secondary.Annotate(hold, "ended") })
	if _, err := p.lock.Write(t.Context(), base, termOf("b", 3, 2), base.Annotations); err != nil {
		t.Fatal(err)
	}
	if got := p.read().Annotations[hold]; got != "new" || p.Secondary.Snapshot().Annotations[hold] != "new" {
		t.Errorf("the hold %q counts, and the secondary shows %q; want %q", got, p.Secondary.Snapshot().Annotations[hold], "new")
	}
	p.Secondary.Annotate(hold, "ended")
	if got := p.read().Annotations[hold]; got != "ended" {
		t.Errorf("said again: the hold %q counts", got)
	}
}

// What the holder takes away it has taken away, even if that gets no further than the primary.
func TestMultiLockAHoldThatIsTakenAwayDoesNotComeBack(t *testing.T) {
	p := newPairTrial(t)
	if _, err := p.lock.Write(t.Context(), p.held(), termOf("b", 3, 1), notes{hold: "old"}); err != nil {
		t.Fatal(err)
	}
	p.lock.Secondary.FailNext(locktest.Update, locktest.Fault{Lose: locktest.TheRequest})
	if _, err := p.lock.Write(t.Context(), p.read(), termOf("b", 3, 2), nil); err == nil {
		t.Fatal("written")
	}
	for _, label := range []string{"", "y"} { // a label is not a word about the hold
		if p.Secondary.Annotate("example.com/x", label); p.read().Annotations[hold] != "" || p.Secondary.Snapshot().Annotations[hold] != "old" {
			t.Errorf("the hold %q is back", p.read().Annotations[hold])
		}
	}
}
