package main

import (
	"testing"
	"time"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func at(seconds float64) time.Time { return noon.Add(time.Duration(seconds * float64(time.Second))) }

// alive is the end of a span that has none.
const alive = -1

func spanOf(pod string, from, to float64) span {
	s := span{election: "e", pod: pod, from: at(from)}
	if to >= 0 {
		s.to = at(to)
	}
	return s
}

func TestClashes(t *testing.T) {
	other := spanOf("c", 0, alive)
	other.election = "another"
	cases := []struct {
		name  string
		spans []span
		want  []time.Duration
	}{
		{"nobody", nil, nil},
		{"one after the other", []span{spanOf("a", 0, 1), spanOf("b", 1, 2)}, nil},
		{"a moment at once", []span{spanOf("b", 1, alive), spanOf("a", 0, 1.5)}, []time.Duration{500 * time.Millisecond}},
		{"one within the other", []span{spanOf("a", 0, 5), spanOf("b", 1, 2)}, []time.Duration{time.Second}},
		{"both alive", []span{spanOf("a", 0, alive), spanOf("b", 8, alive)}, []time.Duration{2 * time.Second}},
		{"another election", []span{spanOf("a", 0, alive), other}, nil},
		{"the same process twice", []span{spanOf("a", 0, 2), spanOf("a", 1, alive)}, []time.Duration{time.Second}},
		{
			"three", []span{spanOf("a", 0, 4), spanOf("b", 3, 6), spanOf("c", 3.5, 4.5)},
			[]time.Duration{time.Second, time.Second, 500 * time.Millisecond},
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := clashes(c.spans, at(10))
			if len(got) != len(c.want) {
				t.Fatalf("clashes %v, want lengths %v", got, c.want)
			}
			for i := range got {
				if got[i].length != c.want[i] {
					t.Errorf("clash %d lasts %v, want %v", i, got[i].length, c.want[i])
				}
			}
		})
	}
}

func TestIdle(t *testing.T) {
	cases := []struct {
		name     string
		spans    []span
		from, to float64
		want     float64
	}{
		{"nobody at all", nil, 0, 4, 4},
		{"one all the time", []span{spanOf("a", 0, alive)}, 1, 4, 0},
		{"a gap", []span{spanOf("a", 0, 2), spanOf("b", 3, alive)}, 1, 9, 1},
		{"late start and early end", []span{spanOf("a", 2, 3)}, 1, 5, 3},
		{"overlapping ones", []span{spanOf("a", 0, 3), spanOf("b", 2, 4)}, 0, 5, 1},
		{"one that comes later", []span{spanOf("a", 0, 1), spanOf("b", 7, alive)}, 0, 5, 4},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := idle(c.spans, "e", at(c.from), at(c.to))
			if want := time.Duration(c.want * float64(time.Second)); got != want {
				t.Errorf("idle %v, want %v", got, want)
			}
		})
	}
}

// A leader of one election may have come by another in another way: that is not its claim.
func TestWhatIsSaidOfOtherElectionsIsNoClaim(t *testing.T) {
	var j journal
	led := func(election, claim string, seconds float64) {
		j.note("a", logLine{at: at(seconds), message: saidPhase, election: election, from: "following", to: "leading", claim: claim})
	}
	led(witnessed, "lock-absent", 1)
	j.note("a", logLine{at: at(2), message: saidInOrder})
	led("istio-leader", "nominated", 3)
	said := j.since(at(1), witnessed)
	if claim := (evidence{leader: "a", said: said}).claimed(); claim != "lock-absent" || len(said) != 2 {
		t.Errorf("it claims %q, by %d lines", claim, len(said))
	}
}
