package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// course is how an act has to go. It is judged by causes, never by how long it took: what
// the elector says of how it came by the lock, and what the lock's record went through. A
// release that nobody saw ends like a seen one, only a lease later; this tells them apart.
type course struct {
	// claim is how the new leader came by the lock, in the elector's word.
	claim string
	// unheard is how it may also have come by it, when the answer to its write was lost; "": not so.
	unheard string
	// leader is who: the former leader's pod or another.
	leader who
	// record is what the lock went through, in the words of step names.
	record []string
	// lease: a whole lease has to pass before the new leader's record.
	lease bool
	// ended is the elector's word for why the former leader's term ended, several with " or "
	// between; "" when it could not say anything.
	ended string
	// drained: the former leader gave the lock away, after its work had ended.
	drained bool
	// inOrder: the former leader's process ended in order, and said so.
	inOrder bool
	// late is how it may go instead when the former leader's process was not back before
	// its lease was over.
	late *course
}

type who int

const (
	anyone who = iota
	sameAgain
	another
)

// The words of a record's steps.
const (
	stepFormer     = "former"
	stepFree       = "free"
	stepGone       = "gone"
	stepUnreadable = "unreadable"
	stepNominated  = "nominated"
	stepNamed      = "named"
	stepLeader     = "leader"
)

// evidence is what is known of an act once a leader works.
type evidence struct {
	former, leader string
	said           []statement
	steps          []step
	lease, retry   time.Duration
}

// convict says what of the evidence does not fit the course; nil: it all does.
func (c course) convict(e evidence) error {
	if first, second, ok := e.detour(); ok {
		if err := c.convict(first); err != nil {
			return err
		}
		return handedOver.convict(second)
	}
	checks := []func(evidence) error{c.checkLeader, c.checkClaim, c.checkRecord, c.checkLease, c.checkEnd, c.checkDrain, c.checkProcess}
	for _, check := range checks {
		if err := check(e); err != nil {
			if c.late != nil && e.backTooLate() {
				return c.late.convict(e)
			}
			return err
		}
	}
	return nil
}

// detour splits evidence in which one of a lower rank was faster, and handed over to the leader
// then. Where a lock is free for all the highest rank goes first by a moment only, and a
// busy machine can take that from it.
func (e evidence) detour() (first, second evidence, ok bool) {
	n := len(e.steps)
	if n < 4 {
		return first, second, false
	}
	between, nominated, last := e.steps[n-3], e.steps[n-2], e.steps[n-1]
	if between.holder == "" || between.holder == e.former || between.nominated || between.key == last.key ||
		!nominated.nominated || nominated.holder != e.leader || last.holder != e.leader {
		return first, second, false
	}
	first, second = e, e
	first.leader, first.steps = between.holder, e.steps[:n-2]
	second.former, second.steps = between.holder, e.steps[n-3:]
	return first, second, true
}

func (c course) checkLeader(e evidence) error {
	switch {
	case c.leader == sameAgain && e.leader != e.former:
		return fmt.Errorf("%s leads, and it should be %s again", e.leader, e.former)
	case c.leader == another && e.leader == e.former:
		return fmt.Errorf("%s leads again, and it should be another", e.leader)
	}
	return nil
}

// claimed is how the leader says it came by the lock, last.
func (e evidence) claimed() string {
	claim := ""
	for _, s := range e.said {
		if s.pod == e.leader && s.message == saidPhase && s.to == "leading" {
			claim = s.claim
		}
	}
	return claim
}

func (c course) checkClaim(e evidence) error {
	if got := e.claimed(); got != c.claim && (got != c.unheard || c.unheard == "") {
		return fmt.Errorf("%s came by the lock by %q, and it should be by %q", e.leader, got, c.claim)
	}
	return nil
}

// words names the steps of the record by the parts that pods play in the act.
func (e evidence) words() []string {
	var words []string
	for i, s := range e.steps {
		switch {
		case i == 0 && e.former == "" && s.holder == "" && !s.gone && !s.unreadable:
			// Whoever coordinates may have made the lock before it named anybody.
		case s.gone:
			words = append(words, stepGone)
		case s.unreadable:
			words = append(words, stepUnreadable)
		case s.holder == "":
			words = append(words, stepFree)
		case s.nominated:
			words = append(words, stepNominated+" "+e.part(s.holder, i))
		case s.named:
			words = append(words, stepNamed+" "+e.part(s.holder, i))
		default:
			words = append(words, e.part(s.holder, i))
		}
	}
	return words
}

// part is what a pod is in the act: the first step's holder is the former leader.
func (e evidence) part(pod string, at int) string {
	switch {
	case pod == e.former && at == 0:
		return stepFormer
	case pod == e.leader:
		return stepLeader
	case pod == e.former:
		return stepFormer
	}
	return pod
}

func (c course) checkRecord(e evidence) error {
	got := e.words()
	if !slices.Equal(got, c.record) {
		return fmt.Errorf("the lock's record went through %q, and it should be %q", strings.Join(got, ", "), strings.Join(c.record, ", "))
	}
	for i, s := range e.steps {
		if s.holder != "" && !s.nominated && !s.named && s.lease != int(e.lease.Seconds()) {
			return fmt.Errorf("%s wrote a lease of %d s, and it should be %v", s.holder, s.lease, e.lease)
		}
		if i == 0 || s.gone || s.unreadable {
			continue
		}
		before := e.steps[i-1]
		want := before.transitions + 1
		switch {
		case before.gone || before.unreadable:
			continue
		case s.holder == "" || s.named || before.nominated && before.holder == s.holder:
			want = before.transitions // a release, a coordinator, and a nominee's own first write keep them
		}
		if s.transitions != want {
			return fmt.Errorf("the lock counts %d transitions after %d, and it should be %d", s.transitions, before.transitions, want)
		}
	}
	return nil
}

// checkLease: nobody may have taken over before the lease was over, with RetryPeriod as room for
// what the watch here shows late.
func (c course) checkLease(e evidence) error {
	if !c.lease {
		return nil
	}
	last := len(e.steps) - 1
	if e.steps[last-1].named && last > 1 {
		last--
	}
	if waited := e.steps[last].first.Sub(e.steps[last-1].last); waited < e.lease-e.retry {
		return fmt.Errorf("%s took the lock %s after its last change, before the lease of %v was over", e.leader, round(waited), e.lease)
	}
	return nil
}

// lastOf is the index of a pod's last line of a kind, or -1.
func (e evidence) lastOf(pod string, is func(logLine) bool) int {
	at := -1
	for i, s := range e.said {
		if s.pod == pod && is(s.logLine) {
			at = i
		}
	}
	return at
}

func (c course) checkEnd(e evidence) error {
	if c.ended == "" {
		return nil
	}
	i := e.lastOf(e.former, func(l logLine) bool { return l.message == saidPhase && l.from == "leading" })
	switch {
	case i < 0:
		return fmt.Errorf("%s did not say that its term ended", e.former)
	case !slices.Contains(strings.Split(c.ended, " or "), e.said[i].why):
		return fmt.Errorf("the term of %s ended by %q, and it should be by %q", e.former, e.said[i].why, c.ended)
	}
	return nil
}

func (c course) checkDrain(e evidence) error {
	if !c.drained {
		return nil
	}
	ended := e.lastOf(e.former, func(l logLine) bool { return l.message == saidEnded })
	releasing := e.lastOf(e.former, func(l logLine) bool { return l.message == saidPhase && l.to == "releasing" })
	if ended < 0 || releasing < ended {
		return fmt.Errorf("%s gave the lock away before its work had ended", e.former)
	}
	return nil
}

func (c course) checkProcess(e evidence) error {
	if c.inOrder && e.lastOf(e.former, func(l logLine) bool { return l.message == saidInOrder }) < 0 {
		return fmt.Errorf("the process of %s has not ended in order", e.former)
	}
	return nil
}

// backTooLate reports whether the former leader's next process began too late to have its
// lock back.
func (e evidence) backTooLate() bool {
	if len(e.steps) == 0 {
		return false
	}
	i := e.lastOf(e.former, func(l logLine) bool { return l.message == saidServer })
	return i < 0 || e.said[i].at.After(e.steps[0].last.Add(e.lease-e.retry))
}

// The courses of the script.
var (
	// Who does not hear in time that it has made the lock finds its own name there next: an API server that has just begun can
	// be as slow as that. The record shows that nobody else had it.
	electedFirst = course{claim: "lock-absent", unheard: "own-name", record: []string{stepLeader}}
	handedOver   = course{
		claim: "nominated", leader: another, record: []string{stepFormer, stepNominated + " " + stepLeader, stepLeader},
		ended: "handing-over", drained: true,
	}
	// awake is waitedFor after the former leader has gone on.
	awake     = course{claim: "lease-expired", leader: another, record: []string{stepFormer, stepLeader}, lease: true, ended: "validity-ended or superseded"}
	waitedFor = course{claim: "lease-expired", leader: another, record: []string{stepFormer, stepLeader}, lease: true}
	reclaimed = course{claim: "own-name", leader: sameAgain, record: []string{stepFormer, stepLeader}, late: &waitedFor}
	released  = course{
		claim: "lock-free", leader: another, record: []string{stepFormer, stepFree, stepLeader},
		ended: "stopped", drained: true, inOrder: true,
	}
	madeAgain = course{
		claim: "lock-absent", leader: sameAgain, record: []string{stepFormer, stepGone, stepLeader}, ended: "lock-deleted",
	}
	outwaited = course{
		claim: "record-unreadable", record: []string{stepFormer, stepUnreadable, stepLeader}, lease: true, ended: "record-unreadable",
	}
)
