package simulation

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// nextInstant is when the next timer rings, or the next promise runs out: that of a call
// to end by its deadline, and that of functions to return.
func (m *model) nextInstant() (core.Instant, bool) {
	at := core.Never
	for i := range m.sides {
		s := &m.sides[i]
		if s.down {
			continue
		}
		at = min(at, max(s.wake, m.now))
		if s.s.Flight.Op != core.NoOp {
			at = min(at, max(m.now, s.s.Flight.Sent.Mono.After(time.Second)))
		}
		if s.alive && !s.work && s.s.Drain.Until > 0 {
			at = min(at, s.s.Drain.Until)
		}
	}
	return at, at != core.Never
}

// pass lets time pass up to an instant: what is due then happens.
func (x *explorer) pass(m *model, at core.Instant) {
	m.now = max(at, m.now)
	for i := range m.sides {
		s := &m.sides[i]
		if s.down {
			continue
		}
		if s.alive && !s.work && s.s.Drain.Until > 0 && s.s.Drain.Until <= m.now {
			s.alive = false // they keep the limit
			x.input(m, i, core.Input{Kind: core.Drained})
			s = &m.sides[i]
		}
		for j := range s.wires {
			if !s.wires[j].orphan && s.s.Flight.Op != core.NoOp && s.s.Flight.Sent.Mono.After(time.Second) <= m.now {
				x.answer(m, i, j, true)
				break
			}
		}
		if s := &m.sides[i]; s.wake <= m.now {
			x.input(m, i, core.Input{Kind: core.Tick})
		}
	}
}

// arrive is when a request reaches the store.
func (x *explorer) arrive(m *model, i, j int) {
	w := m.sides[i].wires[j]
	w.applied, w.result, w.snap = true, core.OK, m.lock
	switch {
	case w.op == core.Read:
		if !w.snap.Exists {
			w.snap.Version = 0
		}
	case w.base.Exists != m.lock.Exists || w.base.Exists && (w.base.Version != m.lock.Version || w.base.UID != m.lock.UID):
		w.result, w.snap = core.Conflict, core.Snapshot{}
	default:
		next := core.Snapshot{Exists: true, UID: m.lock.UID, Content: core.Readable, Record: w.record, Notes: w.notes}
		if !m.lock.Exists {
			m.uids++
			next.UID = uid(m.uids)
		}
		m.next++
		next.Version = m.next
		next.Sum = sum(next)
		w.snap = next
		if w.op == core.Release || w.op == core.HandOver {
			x.checkGivenUp(m, i, w.op)
		}
		x.store(m, next)
	}
	if w.orphan {
		m.sides[i].wires = slices.Delete(m.sides[i].wires, j, j+1)
		return
	}
	m.sides[i].wires[j] = w
}

// store changes the lock and lets the watches know, one event after the other.
func (x *explorer) store(m *model, next core.Snapshot) {
	m.lock = next
	for i := range m.sides {
		s := &m.sides[i]
		s.saw = false
		if !s.down {
			s.events = append(s.events, next)
		}
	}
}

// answer ends a call for its sender; unheard, it may still be on its way.
func (x *explorer) answer(m *model, i, j int, unheard bool) {
	s := &m.sides[i]
	w := s.wires[j]
	in := core.Input{Kind: core.Replied, Result: w.result, Snap: w.snap}
	if unheard {
		in.Result, in.Snap = core.Unknown, core.Snapshot{}
	}
	if unheard && !w.applied && w.op != core.Read {
		s.wires[j].orphan = true
	} else {
		s.wires = slices.Delete(s.wires, j, j+1)
	}
	x.input(m, i, in)
}

// end is that of a process, at once or well; what it sent goes on.
func (x *explorer) end(m *model, i int) {
	s := &m.sides[i]
	var left []wire
	for _, w := range s.wires {
		if !w.applied && w.op != core.Read {
			w.orphan = true
			left = append(left, w)
		}
	}
	*s = side{down: true, wires: left, wake: core.Never}
}

func (x *explorer) restart(m *model, i int) {
	m.sides[i] = side{wires: m.sides[i].wires}
	x.input(m, i, core.Input{Kind: core.DefaultChanged, Default: m.def})
	if m.sides[i].down {
		return
	}
	x.input(m, i, core.Input{Kind: core.Watching, Gap: true})
}

// input is one turn of a candidate's loop.
func (x *explorer) input(m *model, i int, in core.Input) {
	s := &m.sides[i]
	in.Now = m.moment()
	if in.Kind == core.DefaultChanged {
		s.lastDef = in.Default
	}
	if in.Snap.Version == m.lock.Version && in.Snap.Exists == m.lock.Exists {
		s.saw = s.saw || in.Kind == core.Seen || in.Kind == core.Replied && in.Result == core.OK
	}
	var a core.Action
	s.s, a = x.step[i](x.config(i), s.s, in)
	s.gate, s.wake = a.Gate, a.Wake
	if a.Work && !s.work {
		x.checkStart(m, i)
		s.alive = true
	}
	s.work = a.Work
	if a.Op != core.NoOp {
		if (a.Op == core.Release || a.Op == core.HandOver) && s.alive {
			x.wrong = fmt.Sprintf("%c sends %s while its functions run", 'a'+i, a.Op)
		}
		s.wires = append(s.wires, wire{op: a.Op, base: a.Base, record: a.Record, notes: a.Notes})
	}
	if s.s.Phase == core.Done {
		x.end(m, i)
	}
}

func (m *model) acts(i int) bool {
	s := &m.sides[i]
	return !s.down && (s.alive || s.gate.Left(m.moment()) > 0)
}

// allSaw reports whether every candidate knows the present record: one that never saw what
// was deleted is outside the promise.
func (m *model) allSaw() bool {
	for i := range m.sides {
		if s := &m.sides[i]; s.down || !s.saw && !(s.s.Known != core.Unread && s.s.Snap.Version == m.lock.Version) {
			return false
		}
	}
	return true
}

func (x *explorer) check(m *model) {
	who := []string{}
	for i := range m.sides {
		if m.acts(i) {
			who = append(who, string(rune('a'+i)))
		}
	}
	if len(who) > 1 && x.wrong == "" {
		x.wrong = fmt.Sprintf("%s act at once", strings.Join(who, " and "))
	}
	if len(who) == 1 {
		x.acting++
	}
}

func (x *explorer) checkStart(m *model, i int) {
	if token := m.sides[i].s.Term.Token; token <= m.token {
		x.wrong = fmt.Sprintf("%c acts with token %d after one acted with %d", 'a'+i, token, m.token)
	} else {
		m.token = token
	}
}

func (x *explorer) checkGivenUp(m *model, i int, op core.Op) {
	for j := range m.sides {
		if m.acts(j) && x.wrong == "" {
			x.wrong = fmt.Sprintf("%c's %s arrives while %c acts", 'a'+i, op, 'a'+j)
		}
	}
}
