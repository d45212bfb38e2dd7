package core

import "testing"

// rankKeys has every kind of key.
var rankKeys = []string{"", "^", "stable", "^stable", "canary", "^canary", "default", "^default", "other"}

var rankDefaults = []DefaultRevision{
	{}, {Synced: true}, {Synced: true, Revision: "stable"}, {Synced: true, Revision: "canary"}, {Synced: true, Revision: "gone"}, {Revision: "stable"},
}

// TestRank_NoCycle follows every path of Outranks between all keys.
func TestRank_NoCycle(t *testing.T) {
	for _, def := range rankDefaults {
		for _, start := range rankKeys {
			reached := map[string]bool{}
			frontier := []string{start}
			for len(frontier) > 0 {
				k := frontier[0]
				frontier = frontier[1:]
				for _, next := range rankKeys {
					if !Outranks(next, k, def) || reached[next] {
						continue
					}
					if next == start {
						t.Fatalf("with default %+v, %q outranks itself by way of %q", def, start, k)
					}
					reached[next] = true
					frontier = append(frontier, next)
				}
			}
		}
	}
}

func TestOutranks(t *testing.T) {
	stable := DefaultRevision{Synced: true, Revision: "stable"}
	for _, c := range []struct {
		ours, theirs string
		def          DefaultRevision
		want         bool
	}{
		{"stable", "canary", stable, true}, {"canary", "stable", stable, false}, {"stable", "stable", stable, false},
		{"^stable", "canary", stable, true}, {"canary", "^stable", stable, false}, {"stable", "^stable", stable, true},
		{"canary", "^canary", stable, true}, {"^canary", "canary", stable, false}, {"canary", "^other", stable, false},
		{"stable", "", stable, true}, {"canary", "", stable, false}, {"", "^", stable, false},
		{"stable", "canary", DefaultRevision{}, false}, {"stable", "canary", DefaultRevision{Synced: true}, false}, {"stable", "canary", DefaultRevision{Revision: "stable"}, false},
		{"stable", "^stable", DefaultRevision{}, true}, {"stable", "^canary", DefaultRevision{}, false}, {"", "canary", DefaultRevision{Synced: true}, false},
		{"^", "stable", DefaultRevision{Synced: true}, false},
	} {
		if got := Outranks(c.ours, c.theirs, c.def); got != c.want {
			t.Errorf("Outranks(%q, %q, %+v) = %v, want %v", c.ours, c.theirs, c.def, got, c.want)
		}
	}
}
