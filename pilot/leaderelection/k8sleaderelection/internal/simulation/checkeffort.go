package simulation

import (
	"time"

	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// budget is a token bucket that is filled by time and by causes.
type budget struct {
	left float64
	at   Time
}

// spend takes one token. It reports false if there was none.
func (b *budget) spend(now Time, perPeriod float64, period time.Duration, most float64) bool {
	b.left = min(max(b.left, most), b.left+perPeriod*float64(now.since(b.at))/float64(period))
	b.at = now
	b.left--
	return b.left >= 0
}

// Sizes of the buckets.
const (
	callBudget     = 24 // calls of one process
	lineBudget     = 10 // log lines of one process
	handoverBudget = 4  // changes of leader
	maxCauses      = 96 // limit for tokens from causes
	maxHandovers   = 6
)

type efforts struct {
	callsLeft, linesLeft budget
	causes               int
	lostRaces            int             // in a row
	fails                [callKinds]bool // since failedAt, every call of this kind failed
	failedAt             [callKinds]Time
	failing              [callKinds]bool // as last reported
}

func newEfforts(now Time) efforts {
	return efforts{callsLeft: budget{callBudget, now}, linesLeft: budget{lineBudget, now}}
}

// cause adds tokens because p has to react to something.
func (p *process) cause(calls, lines float64) {
	p.causes++
	p.callsLeft.left = min(p.callsLeft.left+calls, maxCauses)
	p.linesLeft.left = min(p.linesLeft.left+lines, maxCauses)
}

// happened is called for an event that explains n changes of leader.
func (w *world) happened(n float64) {
	for _, b := range []*budget{&w.checks.handovers, &w.checks.nominations} {
		b.left = min(b.left+n, maxHandovers)
	}
	for _, node := range w.nodes {
		if node.p != nil {
			node.p.cause(8, 4)
		}
	}
}

// countCauses is called before p processes an input. A change by others is a cause. A renewal by the holder is not.
func (p *process) countCauses(in core.Input, v view) {
	switch in.Kind {
	case core.Seen:
		p.meets(v)
	case core.Replied:
		if in.Result == core.OK {
			p.meets(v)
		}
	case core.DefaultChanged, core.Watching, core.Unwatched, core.Fitness, core.Stop, core.StepDown, core.Drained, core.Coordinator, core.Bar:
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

// countCall is called when p sends a call.
func (c *checks) countCall(p *process) {
	perPeriod := 3.0
	if !p.watching {
		perPeriod = 5
	}
	if !p.callsLeft.spend(c.w.now, perPeriod, p.cfg.Retry, callBudget) {
		c.w.violate(Effort, "%v sends more than %v calls per RetryPeriod without a cause", p, perPeriod)
		p.callsLeft.left = callBudget
	}
}

// countLines counts the log lines of a step: one for a change of phase, and one for each kind of call that begins to
// fail or succeeds again.
func (c *checks) countLines(p *process, before core.Phase) {
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
			c.w.violate(Reports, "%v repeats its reports: phase %s (%s), failing %v", p, p.s.Phase, p.s.Why, p.failing)
			p.linesLeft.left = lineBudget
		}
	}
}

// changes is called when run functions start. If all causes are known, the leader must not change more often
// than they allow.
func (c *checks) changes(p *process) {
	if p.id == c.leader {
		return
	}
	c.leader = p.id
	if !c.handovers.spend(c.w.now, 1, 4*c.w.timing.lease, handoverBudget) && c.w.mode.explained() {
		c.w.violate(Changes, "%v leads, and the leader changes more often than there are causes", p)
		c.handovers.left = handoverBudget
	}
}

// checkHandovers limits the handovers to candidates that do not acquire the lock.
func (w *world) checkHandovers(now view) {
	if b := &w.checks.nominations; !b.spend(w.now, 1, 4*w.timing.lease, handoverBudget) && w.mode.explained() {
		w.violate(Changes, "a leader hands over to %q, and handovers are more frequent than causes", now.snap.Record.Holder)
		b.left = handoverBudget
	}
}

// watchMinutes limits the calls of a candidate in each minute while no process can write. A minute in which its writes or reads
// begin to fail includes the quick first retries.
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
					if max(p.failedAt[writes], p.failedAt[reads]) >= at {
						bound = first
					}
					if n := p.sentCalls - sent; p.causes == causes && p.watching && n > bound {
						w.violate(Effort, "%v sends %d calls in a minute without working writes", p, n)
					}
				})
			}
		})
	}
}

// checkCount checks that transitions grow by at most one and stay at the maximum.
func (w *world) checkCount(c *call, now view) {
	old := now.snap
	if !old.Exists || old.Content != record.Readable || c.base.Version == unguardedVersion {
		return
	}
	step := c.record.Transitions - old.Record.Transitions
	counts := c.op == core.Acquire || c.op == core.HandOver
	if c.op == core.Acquire && isNominated(old) && old.Annotations.Nominated.Uncounted && step == 0 && old.Record.Transitions < 1<<31-1 {
		w.violate(Count, "%v begins a term that is not counted", c.p)
	}
	if step != 0 && !(counts && step == 1 && old.Record.Transitions < 1<<31-1) {
		w.violate(Count, "%v: %s changes transitions from %d to %d", c.p, c.op, old.Record.Transitions, c.record.Transitions)
	}
}

// explained reports whether all causes of leader changes in the mode call happened.
func (m Mode) explained() bool {
	hard := m.Edits + m.Pauses + m.Clocks + m.Outages + m.Duplicates + m.Unfits + m.Orders
	return hard == 0 && m.Net+m.Peers+m.Ambush+m.Drop+m.Late+m.Fail == 0 && !m.External && !m.OneCycle
}
