package core

import (
	"testing"
	"time"
)

// A read that was sent before a watch began cannot show what was deleted in between, and the
// watch makes no event of it. With two objects the other one's events go on.
func TestAReadFromBeforeTheWatchDoesNotCloseItsGap(t *testing.T) {
	c := testConfig()
	held := Snapshot{Exists: true, UID: UID{First: "u"}, Version: 5, Content: Unreadable, Sum: 1}
	later := held
	later.Version, later.Sum = 6, 2
	at := func(s int) Moment { return Moment{Mono: testNow.Mono.After(time.Duration(s) * time.Second)} }
	state, action := c.Step(State{}, Input{Kind: Tick, Now: at(1)})
	step := func(in Input) {
		t.Helper()
		state, action = c.Step(state, in)
	}
	step(Input{Kind: Replied, Result: OK, Snap: held, Now: at(2)})
	step(Input{Kind: Tick, Now: at(2 + 5)}) // longer than a poll takes to come
	if action.Op != Read {
		t.Fatalf("it does not poll: %+v", action)
	}
	step(Input{Kind: Watching, Gap: true, Now: at(7)})
	step(Input{Kind: Seen, Snap: later, Now: at(7)})
	step(Input{Kind: Replied, Result: OK, Snap: later, Now: at(7)})
	if action.Op != Read {
		t.Fatalf("after the answer to an earlier question: %+v", action)
	}
	later.Version, later.Sum = 7, 3
	step(Input{Kind: Seen, Snap: later, Now: at(7)})
	step(Input{Kind: Replied, Result: OK, Snap: later, Now: at(8)})
	if action.Op != NoOp || state.Known != Current {
		t.Errorf("after the answer to a later one: %+v", action)
	}
}
