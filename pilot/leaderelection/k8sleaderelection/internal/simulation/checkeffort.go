package simulation

import (
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// budget is a bucket that time and causes fill. What it pays for comes no more often than
// either allows, however long it goes on.
type budget struct {
	left float64
	at   Time
}

// spend takes one out of the bucket, which gets perPeriod in each period and holds most; it
// reports whether there was one.
func (b *budget) spend(now Time, perPeriod float64, period time.Duration, most float64) bool {
	b.left = min(max(b.left, most), b.left+perPeriod*float64(now.since(b.at))/float64(period))
	b.at = now
	b.left--
	return b.left >= 0
}

// What a bucket holds.
const (
	callBudget     = 24 // calls of one process
	lineBudget     = 10 // what one process would say in its log
	handoverBudget = 4  // changes of leader
	maxCauses      = 96 // what causes can fill a bucket to
	maxHandovers   = 6
)

// efforts is the rest of a process's budgets.
type efforts struct {
	callsLeft, linesLeft budget
	causes               int
	refused              bool // its last write, and since when so were all
	refusedAt            Time
	failing              [callKinds]bool // as it has reported
}

func newEfforts(now Time) efforts {
	return efforts{callsLeft: budget{callBudget, now}, linesLeft: budget{lineBudget, now}}
}

// cause lets p spend more: something has happened that it has to answer to.
func (p *process) cause(calls, lines float64) {
	p.causes++
	p.callsLeft.left = min(p.callsLeft.left+calls, maxCauses)
	p.linesLeft.left = min(p.linesLeft.left+lines, maxCauses)
}

// happened is called for what explains n changes of leader, and what processes do then.
func (w *world) happened(n float64) {
	w.checks.handovers.left = min(w.checks.handovers.left+n, maxHandovers)
	for _, node := range w.nodes {
		if node.p != nil {
			node.p.cause(8, 4)
		}
	}
}

// learns is called before p takes an input in: what others did to the lock, and what else
// changed, is a cause. That its holder goes on renewing is none.
func (p *process) learns(in core.Input, v view) {
	switch in.Kind {
	case core.Seen:
		p.meets(v)
	case core.Replied:
		if in.Result == core.OK {
			p.meets(v)
		}
	case core.DefaultChanged, core.Watching, core.Unwatched, core.Fitness, core.Stop, core.StepDown, core.Drained, core.Coordinator:
		p.cause(3, 2)
	case core.Tick:
	}
}

func (p *process) meets(v view) {
	old := p.base.snap
	now := v.snap
	same := old.Exists == now.Exists && old.UID == now.UID && old.Content == now.Content && old.Annotations == now.Annotations && old.Preferred == now.Preferred &&
		old.Record.Holder == now.Record.Holder && old.Record.Transitions == now.Record.Transitions && p.base.foreign == v.foreign
	if !same {
		p.cause(4, 2)
	}
}

// spends is called when p sends a call. One that has no watch has only its polls.
func (c *checks) spends(p *process) {
	perPeriod := 3.0
	if !p.watching {
		perPeriod = 5
	}
	if !p.callsLeft.spend(c.w.now, perPeriod, p.cfg.Retry, callBudget) {
		c.w.violate(Effort, "%v sends more calls than %v a RetryPeriod, and nothing calls for them", p, perPeriod)
		p.callsLeft.left = callBudget
	}
}

// says is called after each step: each change of phase is a line in the log, and so is
// each kind of call that begins to fail, or succeeds again.
func (c *checks) says(p *process, before core.Phase) {
	lines := 0
	if p.s.Phase != before {
		lines++
	}
	for kind, e := range [...]core.Effort{reads: p.s.Effort.Reads, writes: p.s.Effort.Writes, requests: p.s.Effort.Requests} {
		if failing := e.Fails > 0; failing != p.failing[kind] {
			p.failing[kind] = failing
			lines++
		}
	}
	for range lines {
		if !p.linesLeft.spend(c.w.now, 1, p.cfg.Lease, lineBudget) && c.w.mode.Net == 0 {
			c.w.violate(Reports, "%v says the same again and again: now it is %s (%s), failing %v", p, p.s.Phase, p.s.Why, p.failing)
			p.linesLeft.left = lineBudget
		}
	}
}

// changes is called when functions start in another process than before. In a world where
// everything that explains it is known, leaders change no more often than that.
func (c *checks) changes(p *process) {
	if p.id == c.leader {
		return
	}
	c.leader = p.id
	if !c.handovers.spend(c.w.now, 1, 4*c.w.timing.lease, handoverBudget) && c.w.mode.explained() {
		c.w.violate(Changes, "%v leads, and nothing explains why the leader changes so often", p)
		c.handovers.left = handoverBudget
	}
}

// watchMinutes looks at whole minutes of a spell in which nobody can write and nothing
// else happens: what a candidate sends then is bounded by the clock, not by its timing. It is the
// same where no answer is definite, and a read follows each write. The first minute, of the spell and
// of the candidate's own tries, has the quick ones that save a lease when the trouble is short.
func (w *world) watchMinutes(s *spell) {
	const most, first = 12, 16
	if s.kind != writes || s.node != nil {
		return
	}
	for at := s.from.add(time.Minute); at.add(time.Minute) < s.until; at = at.add(time.Minute) {
		w.at(at, func() {
			for _, n := range w.nodes {
				p := n.p
				if p == nil || !p.watching {
					continue
				}
				sent, causes := p.sentCalls, p.causes
				w.after(time.Minute, func() {
					bound := most
					if p.refusedAt >= at {
						bound = first
					}
					if n := p.sentCalls - sent; p.causes == causes && p.watching && n > bound {
						w.violate(Effort, "%v sends %d calls in a minute in which nobody can write", p, n)
					}
				})
			}
		})
	}
}

// checkCount: a guard of the lock lets the count of terms step by one at most, and never
// down; at its maximum it stays.
func (w *world) checkCount(c *call, now view) {
	old := now.snap
	if !old.Exists || old.Content != core.Readable || c.base.Version == unguardedVersion {
		return
	}
	step := c.record.Transitions - old.Record.Transitions
	counts := c.op == core.Acquire || c.op == core.HandOver
	if c.op == core.Acquire && isNominated(old) && old.Annotations.Nominated.Uncounted && step == 0 && old.Record.Transitions < 1<<31-1 {
		w.violate(Count, "%v begins a term that nobody counts: a coordinator did not", c.p)
	}
	if step != 0 && !(counts && step == 1 && old.Record.Transitions < 1<<31-1) {
		w.violate(Count, "%v's %s counts from %d to %d", c.p, c.op, old.Record.Transitions, c.record.Transitions)
	}
}

// explained reports whether all that can change the leader is told to happened.
func (m Mode) explained() bool {
	hard := m.Edits + m.Restores + m.Pauses + m.Clocks + m.Outages + m.Duplicates + m.Unfits + m.Orders
	return hard == 0 && m.Net+m.Peers+m.Ambush+m.Drop+m.Late+m.Fail == 0 && !m.External && !m.OneCycle
}
