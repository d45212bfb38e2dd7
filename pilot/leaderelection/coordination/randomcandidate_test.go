package coordination

import (
	"fmt"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

const (
	simLeaseSeconds = 15
	simRenewPeriod  = 2 * time.Second
	simCover        = 10 * time.Second
)

var simRevisions = []string{"stable", "canary"}

// simCandidate is a process that could lead. It keeps to the contract of docs/coordination.md: it answers when it is asked, leads when it was
// named and has written the lock itself, and hands over to whom the lock prefers.
type simCandidate struct {
	w    *simWorld
	name string
	skew time.Duration // of its wall clock

	alive    bool
	silent   bool          // it does not answer
	refuses  bool          // it gives the lock back when it is named
	stuck    bool          // it does neither that nor takes it
	stopping bool          // it ends in order
	cut      time.Duration // it reaches nobody, and hears of nothing, before
	late     time.Duration // by how much its next claim is late
	long     time.Duration // by how much its next drain is longer

	binary            string
	labels            map[string]string
	lease             *coordinationv1.Lease
	object            *coordinationv1beta1.LeaseCandidate
	leaseAt, objectAt time.Duration // when it sees what it sees next
	heeded            string        // the version of the nomination that it deals with
	term              int
	leading, draining bool
	drained, busy     bool
	acked, settled    time.Duration
	lost              leaseState    // of a term whose cover has ended
	alone             time.Duration // until when all coordinators left it alone
}

func (w *simWorld) start() {
	p := &simCandidate{
		w: w, name: fmt.Sprintf("pod-%d", w.named), alive: true, skew: w.between(-10*time.Minute, 10*time.Minute), binary: []string{"1.0.0", "1.1.0"}[w.rng.IntN(2)],
		labels: map[string]string{RevisionLabel: simRevisions[w.rng.IntN(2)]}, lease: w.store.lease,
	}
	w.named++
	w.candidates = append(w.candidates, p)
	w.trouble("%s starts, of %s", p.name, p.labels[RevisionLabel])
	p.publish()
}

func (p *simCandidate) wall() time.Time { return simStart.Add(p.w.now + p.skew) }

func (p *simCandidate) reachable() bool { return p.w.now >= p.cut }

// sees is when it sees what is stored now.
func (p *simCandidate) sees(last *time.Duration) time.Duration {
	*last = max(*last+1, p.cut, p.w.now+p.w.between(time.Millisecond, 10*time.Millisecond))
	return *last
}

func (p *simCandidate) publish() {
	if !p.alive || p.stopping {
		return
	}
	at := metav1.NewMicroTime(p.wall())
	err := p.w.store.createCandidate(&coordinationv1beta1.LeaseCandidate{
		ObjectMeta: metav1.ObjectMeta{Name: p.name, Labels: p.labels},
		Spec:       coordinationv1beta1.LeaseCandidateSpec{LeaseName: simLease, BinaryVersion: p.binary, Strategy: coordinationv1.CoordinatedLeaseStrategy(DefaultRevision), RenewTime: &at},
	})
	if err == nil {
		p.w.trouble("%s publishes itself", p.name)
	}
}

func (p *simCandidate) seeObject(c *coordinationv1beta1.LeaseCandidate) {
	p.object = c
	if c == nil {
		p.w.after(p.w.between(10*time.Millisecond, 500*time.Millisecond), p.publish)
		return
	}
	p.answer()
}

func (p *simCandidate) answer() {
	if !p.alive || p.silent || p.object == nil || !asked(p.object.Spec) {
		return
	}
	object := p.object
	longest := 300 * time.Millisecond
	if p.w.chance(0.2) {
		longest = 3 * time.Second
	}
	p.w.after(p.w.between(10*time.Millisecond, longest), func() {
		if !p.alive || p.silent || p.object != object {
			return
		}
		answered := object.DeepCopy()
		answered.Spec.RenewTime = answerTo(object.Spec.PingTime, p.wall())
		p.w.call(p.reachable(), func() error { return p.w.store.putCandidate(answered) }, func(err error) {
			if err != nil {
				p.w.after(time.Second, p.answer)
			}
		})
	})
}

func (p *simCandidate) seeLease(l *coordinationv1.Lease) {
	p.lease = l
	p.look()
}

// look does what the lock calls for.
func (p *simCandidate) look() {
	if !p.alive || p.lease == nil {
		p.leading, p.draining = false, false
		return
	}
	switch s := stateOf(p.lease); {
	case s.holder != p.name:
		p.leading, p.draining = false, false
	case s.nominated:
		p.leading, p.draining = false, false
		p.heed()
	case s.uid == p.lost.uid && s.transitions == p.lost.transitions:
	case !p.leading:
		p.lead() // its own claim, whose reply has not come
	default:
		p.yield()
	}
}

// heed takes the lock that it was named for, or gives it back.
func (p *simCandidate) heed() {
	version := p.lease.ResourceVersion
	if p.heeded == version || p.stuck {
		return
	}
	p.heeded = version
	longest := 500 * time.Millisecond
	if p.w.chance(0.3) {
		longest = 2 * time.Millisecond
	}
	delay := p.w.between(0, longest) + p.late
	if p.late > 0 {
		p.w.trouble("%s is %v late", p.name, p.late)
		p.w.after(p.late, func() { p.w.trouble("%s was late", p.name) })
	}
	p.late = 0
	p.w.after(delay, func() {
		if !p.alive || p.lease == nil || p.lease.ResourceVersion != version {
			return
		}
		then := func(err error) {
			if err != nil {
				p.w.after(200*time.Millisecond, func() { p.heeded = ""; p.look() })
			}
		}
		if p.refuses || p.stopping {
			p.write("gives the lock back", p.release, then)
			return
		}
		p.write("takes the lock", p.claim, func(err error) {
			if err == nil && p.alive && !p.leading {
				p.lead()
			}
			then(err)
		})
	})
}

// write sends a guarded write of the lock.
func (p *simCandidate) write(what string, change func(l *coordinationv1.Lease), then func(error)) {
	if p.busy {
		p.w.after(20*time.Millisecond, func() { then(errSimConflict) })
		return
	}
	p.busy = true
	l := p.lease.DeepCopy()
	change(l)
	p.w.call(p.reachable(), func() error {
		stored, err := p.w.store.putLease(l)
		if err == nil && what != "" {
			p.w.tracef("%s %s: %s", p.name, what, simShown(stored))
		}
		return err
	}, func(err error) {
		p.busy = false
		if p.alive {
			then(err)
		}
	})
}

func (p *simCandidate) stampOf(l *coordinationv1.Lease, holder string, seconds, transitions int32) {
	at := After(p.wall(), l.Spec.RenewTime)
	l.Spec.HolderIdentity, l.Spec.LeaseDurationSeconds, l.Spec.RenewTime, l.Spec.LeaseTransitions = &holder, &seconds, &at, &transitions
	if value(l.Spec.PreferredHolder) == holder {
		l.Spec.PreferredHolder = nil
	}
}

func (p *simCandidate) claim(l *coordinationv1.Lease) {
	p.stampOf(l, p.name, simLeaseSeconds, value(l.Spec.LeaseTransitions)+1)
	l.Spec.AcquireTime = l.Spec.RenewTime
	delete(l.Annotations, k8sresourcelock.NominatedAnnotation)
	metav1.SetMetaDataAnnotation(&l.ObjectMeta, k8sresourcelock.LeaseHolderKey, p.labels[RevisionLabel])
}

func (p *simCandidate) renew(l *coordinationv1.Lease) {
	p.stampOf(l, p.name, simLeaseSeconds, value(l.Spec.LeaseTransitions))
}

func (p *simCandidate) release(l *coordinationv1.Lease) {
	p.stampOf(l, "", 1, value(l.Spec.LeaseTransitions))
	l.Spec.AcquireTime = l.Spec.RenewTime
	delete(l.Annotations, k8sresourcelock.NominatedAnnotation)
}

// handOver writes in whom the lock prefers.
func (p *simCandidate) handOver(l *coordinationv1.Lease) {
	p.stampOf(l, preferred(l), simLeaseSeconds+1, value(l.Spec.LeaseTransitions)+1)
	l.Spec.AcquireTime = l.Spec.RenewTime
	metav1.SetMetaDataAnnotation(&l.ObjectMeta, k8sresourcelock.NominatedAnnotation, *l.Spec.HolderIdentity)
}

// lead begins a term, in which it may have to wait before it acts: until then it hands over to nobody.
func (p *simCandidate) lead() {
	p.w.tracef("%s leads", p.name)
	p.term++
	p.leading, p.draining, p.drained, p.acked, p.settled = true, false, false, p.w.now, p.w.now
	if p.w.chance(0.25) {
		p.settled += p.w.between(0, simLeaseSeconds*time.Second)
		p.w.at(p.settled, p.look)
	}
	term := p.term
	p.w.after(simRenewPeriod, func() { p.keep(term) })
	p.yield()
}

// keep renews the term.
func (p *simCandidate) keep(term int) {
	if !p.alive || !p.leading || p.term != term {
		return
	}
	if p.w.now > p.acked+simCover {
		p.w.tracef("%s could not renew, and leads no more", p.name)
		p.leading, p.draining, p.lost = false, false, stateOf(p.lease)
		return
	}
	p.w.after(simRenewPeriod, func() { p.keep(term) })
	if sent := p.w.now; !p.busy && !p.drained {
		p.write("", p.renew, func(err error) {
			if err == nil {
				p.acked = sent
			}
		})
	}
}

// yield drains for whom the lock prefers, and when the process is to end.
func (p *simCandidate) yield() {
	who := preferred(p.lease)
	prefers := strategyOf(p.lease) != "" && who != "" && who != p.name
	if p.w.now >= p.settled && (p.stopping || prefers) {
		p.drain()
	}
}

func (p *simCandidate) drain() {
	if !p.leading || p.draining {
		return
	}
	p.draining = true
	drain := p.w.between(0, time.Second) + p.long
	if p.long > 0 {
		p.w.trouble("%s drains for longer", p.name)
		p.w.after(drain, func() { p.w.trouble("%s has drained", p.name) })
	}
	p.long = 0
	term := p.term
	p.w.tracef("%s drains, for %v", p.name, drain)
	p.w.after(drain, func() { p.pass(term) })
}

// pass ends a drained term, by a handover if there is somebody to hand over to.
func (p *simCandidate) pass(term int) {
	if !p.alive || !p.leading || p.term != term {
		return
	}
	if p.busy {
		p.w.after(10*time.Millisecond, func() { p.pass(term) })
		return
	}
	p.drained = true
	what, change := "releases the lock", p.release
	if who := preferred(p.lease); strategyOf(p.lease) != "" && who != "" && who != p.name {
		what, change = "hands over to "+who, p.handOver
		p.w.ambushed(&p.w.killPreferred, who)
	}
	p.write(what, change, func(err error) {
		if err != nil {
			p.w.after(200*time.Millisecond, func() { p.pass(term) })
			return
		}
		p.leading, p.draining = false, false
	})
}

// crash ends the process without a word.
func (p *simCandidate) crash() {
	p.w.trouble("%s dies", p.name)
	p.alive, p.leading = false, false
	if p.w.chance(0.5) {
		p.w.after(p.w.between(0, time.Minute), func() {
			if p.w.store.deleteCandidate(p.name, "") == nil {
				p.w.trouble("the LeaseCandidate of %s is collected with its Pod", p.name)
			}
		})
	}
}

// stop ends it in order: it passes the lock on, and deletes its LeaseCandidate.
func (p *simCandidate) stop() {
	p.w.trouble("%s stops", p.name)
	p.stopping = true
	p.look()
	p.end()
}

func (p *simCandidate) end() {
	if p.leading {
		p.w.after(100*time.Millisecond, p.end)
		return
	}
	if p.alive {
		p.w.trouble("%s has ended", p.name)
		p.alive = false
		_ = p.w.store.deleteCandidate(p.name, "")
	}
}

// relabel changes what it says of itself.
func (p *simCandidate) relabel(label, text string) {
	p.w.trouble("%s: %s=%s", p.name, label, text)
	labels := map[string]string{label: text}
	for k, v := range p.labels {
		if k != label {
			labels[k] = v
		}
	}
	p.labels = labels
	if c := p.w.store.candidates[p.name]; c != nil {
		c = c.DeepCopy()
		c.Labels = labels
		_ = p.w.store.putCandidate(c)
	}
}

func simShown(l *coordinationv1.Lease) string {
	if l == nil {
		return "no lock"
	}
	s := stateOf(l)
	text := fmt.Sprintf("holder %q of term %d for %d s", s.holder, s.transitions, value(l.Spec.LeaseDurationSeconds))
	if s.nominated {
		text += ", named"
	}
	if who := preferred(l); who != "" {
		text += ", prefers " + who
	}
	if strategyOf(l) != DefaultRevision {
		text += ", strategy " + strconv.Quote(strategyOf(l))
	}
	return text + ", version " + l.ResourceVersion
}
