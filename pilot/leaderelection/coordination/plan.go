package coordination

import (
	"errors"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// ElectionDuration is how long a candidate has for its answer, and how long the answer counts.
	ElectionDuration = 5 * time.Second
	// CandidateDuration is for how long one that was asked may be silent before its LeaseCandidate is collected.
	CandidateDuration = 30 * time.Minute
	// nominationSeconds is the lease that a nomination comes with, as Kubernetes' controller writes it.
	nominationSeconds = 5
	// maxRefusalBackOff bounds for how long one that was named and refused is not named again.
	maxRefusalBackOff = 5 * time.Minute
)

// Election is what the cluster shows of one election.
type Election struct {
	// Lease is the lock; nil while there is none: it is not a coordinator's to create.
	Lease      *coordinationv1.Lease
	Candidates []*coordinationv1beta1.LeaseCandidate
	// Alive: whoever is among the candidates is known to live, and nobody has to be asked. So it is with members.
	Alive bool
	// Annotate: the API server keeps neither strategy nor preferredHolder in a spec, and has no controller that makes locks.
	Annotate  bool
	Situation Situation
}

// Plan is what a coordinator should write now. The zero Plan writes nothing.
type Plan struct {
	// Ping are candidates to ask, by a pingTime; Collect are those to delete.
	Ping, Collect []*coordinationv1beta1.LeaseCandidate
	// Lease is the lock as it should be; nil: as it is. Its resourceVersion is that of the one it was decided on.
	Lease *coordinationv1.Lease
	// Again is when to plan anew if nothing changes until then; 0: never.
	Again time.Duration
	// Err says why nobody is named although somebody should be.
	Err error
	// Unreadable are candidates' labels that count as absent.
	Unreadable []error
}

func micros(t *metav1.MicroTime) int64 {
	if t == nil {
		return 0
	}
	return t.UnixMicro()
}

func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// Plan says what to write at now, which is the coordinator's clock and must not jump; wall is what pingTime and
// renewTime get, and may be wrong.
func (o *Observer) Plan(now time.Time, wall time.Time, e Election, strategies Registry) (p Plan) {
	o.observe(now, e)
	o.overdue(now, e.Lease)
	present := o.present(now, e, &p)
	if len(present) == 0 {
		if len(e.Candidates) > 0 && e.Lease != nil && value(e.Lease.Spec.HolderIdentity) == "" && strategyOf(e.Lease) != "" {
			p.Err = ErrNoCandidates // all are silent, or have refused
		}
		return p
	}
	candidates := p.read(present)
	if e.Lease == nil {
		if _, err := StrategyOf(candidates); errors.Is(err, ErrStrategies) {
			p.Err = err // for which reason nobody makes the lock either
		}
		return p
	}
	written := strategyOf(e.Lease)
	if _, known := strategies[written]; !known && !o.wiped(now, e, &p) {
		return p // another's election, or one that nobody coordinates
	}
	e.Situation.Holder = o.holder(now, e.Lease)
	best, strategy, err := strategies.Choose(e.Situation, candidates)
	switch {
	case errors.Is(err, ErrStrategies), err != nil && strategy == written:
		p.Err = err
	case written == "" && err == nil:
		p.Lease = e.Lease.DeepCopy()
		ask(p.Lease, strategy, e.Annotate)
		if p.Lease.Spec.HolderIdentity == nil {
			p.Lease.Spec.HolderIdentity = new("")
		}
	case strategy == written:
		best = o.willing(now, e, strategies[written], candidates, best)
		o.choose(now, wall, e, present, best, &p)
	} // else Kubernetes' controller has yet to write the strategy that counts now, or it was edited
	return p
}

// willing is best, or beside a live holder who goes first without those who would give the lock back: no term is ended for them.
func (o *Observer) willing(now time.Time, e Election, strategy Strategy, candidates []Candidate, best Candidate) Candidate {
	holder := o.holder(now, e.Lease)
	if !best.Unfit || holder == "" || preferred(e.Lease) != "" {
		return best
	}
	next, found := strategy(e.Situation, slices.DeleteFunc(slices.Clone(candidates), func(c Candidate) bool { return c.Unfit && c.Name != holder }))
	if !found {
		return Candidate{Name: holder}
	}
	return next
}

// choose plans that best leads.
func (o *Observer) choose(now, wall time.Time, e Election, present []*coordinationv1beta1.LeaseCandidate, best Candidate, p *Plan) {
	holder := o.holder(now, e.Lease)
	live := holder != ""
	if live {
		p.again(o.ends(e.Lease).Sub(now))
	}
	switch {
	case live && best.Name == holder:
		if preferred(e.Lease) != "" {
			p.Lease = e.Lease.DeepCopy()
			preferNobody(p.Lease)
		}
	case live && o.waits(now, best.Name, e.Lease, p):
	case e.Alive || o.poll(now, present, p):
		p.name(best.Name, live, wall, e)
	}
}

// wiped reports whether the strategy is to be written on a lock that has none: an elector that knows none has held it, or somebody has edited
// it. Where a candidate holds it that is at once: Kubernetes' controller does it a quarter of an hour later. On a free lock that controller does it,
// where it runs. A holder that is no candidate wipes it with each renewal, and nobody contends with that.
func (o *Observer) wiped(now time.Time, e Election, p *Plan) bool {
	holder := value(e.Lease.Spec.HolderIdentity)
	switch left := o.since.Add(ElectionDuration).Sub(now); {
	case strategyOf(e.Lease) != "":
		return false
	case holder == "" && left > 0 && !e.Annotate:
		p.again(left)
		return false
	case holder == "":
		return true
	}
	return slices.ContainsFunc(e.Candidates, func(c *coordinationv1beta1.LeaseCandidate) bool { return c.Name == holder })
}

// waits reports whether nothing is to be written beside a live holder now, but that one who has not come is no
// longer waited for. A preference stands for an election duration: two coordinators that disagree would change it as fast as
// the API server lets them.
func (o *Observer) waits(now time.Time, best string, l *coordinationv1.Lease, p *Plan) bool {
	spared := value(o.candidates[best]).sparedUntil
	switch stands := o.preference.since.Add(ElectionDuration); {
	case o.preference.who != "" && now.Before(stands):
		p.again(stands.Sub(now))
	case o.preference.who != "":
		// The holder may be draining: then the lock becomes free, and who is best is named at once.
		p.again(o.spare(now, o.preference.who))
		p.Lease = l.DeepCopy()
		preferNobody(p.Lease)
	case now.Before(spared):
		p.again(spared.Sub(now))
	case now.Before(stands) && best == o.preference.unanswered: // as another coordinator found out before
		p.again(o.spare(now, best))
	case now.Before(stands): // another coordinator has just withdrawn one
		p.again(stands.Sub(now))
	default:
		return false
	}
	return true
}

// again asks to be called in d at the latest.
func (p *Plan) again(d time.Duration) {
	if p.Again == 0 || d < p.Again {
		p.Again = max(d, time.Millisecond)
	}
}

// read gives the strategies what the objects say.
func (p *Plan) read(objects []*coordinationv1beta1.LeaseCandidate) (all []Candidate) {
	for _, object := range objects {
		c, err := FromLeaseCandidate(object)
		if err != nil {
			p.Unreadable = append(p.Unreadable, err)
		}
		if c.Name != "" {
			all = append(all, c)
		}
	}
	return all
}

// present are the candidates that may be named: not those that let a ping go by, nor those that have just refused. One that has
// just given the lock up is named if there is no other.
func (o *Observer) present(now time.Time, e Election, p *Plan) (all []*coordinationv1beta1.LeaseCandidate) {
	var gave []*coordinationv1beta1.LeaseCandidate
	for _, object := range e.Candidates {
		c := o.candidates[object.Name]
		silent := asked(object.Spec)
		switch {
		case silent && !now.Before(c.asked.Add(CandidateDuration)):
			p.Collect = append(p.Collect, object)
		case silent && !now.Before(c.asked.Add(ElectionDuration)):
			p.again(c.asked.Add(CandidateDuration).Sub(now))
		case now.Before(c.refusedUntil):
			p.again(c.refusedUntil.Sub(now))
		case !c.gave.IsZero() && now.Before(c.gave.Add(ElectionDuration)):
			p.again(c.gave.Add(ElectionDuration).Sub(now))
			gave = append(gave, object)
		default:
			all = append(all, object)
		}
	}
	if len(all) == 0 {
		return gave
	}
	return all
}

// poll asks those whose answers no longer count. It is complete when all have answered: nobody has to be waited for.
func (o *Observer) poll(now time.Time, present []*coordinationv1beta1.LeaseCandidate, p *Plan) (complete bool) {
	complete = true
	for _, object := range present {
		c := o.candidates[object.Name]
		switch fresh := !c.answered.IsZero() && now.Before(c.answered.Add(ElectionDuration)); {
		case asked(object.Spec):
			complete = false
			p.again(c.asked.Add(ElectionDuration).Sub(now))
		case !fresh && c.outdated(now, object):
			complete = false
			p.again(c.replacedAt.Add(ElectionDuration).Sub(now))
		case !fresh:
			complete = false
			p.Ping = append(p.Ping, object)
		}
	}
	return complete
}

// name has best lead: at once if nobody does, by the holder's handing over if somebody does.
func (p *Plan) name(best string, live bool, wall time.Time, e Election) {
	l := e.Lease.DeepCopy()
	p.Lease = l
	if live {
		prefer(l, best, e.Annotate)
		p.again(ElectionDuration)
		return
	}
	preferNobody(l)
	seconds, at := int32(nominationSeconds), After(wall, e.Lease.Spec.RenewTime)
	l.Spec.HolderIdentity, l.Spec.AcquireTime = &best, nil
	l.Spec.LeaseDurationSeconds, l.Spec.RenewTime = &seconds, &at
}

// After is wall, or a moment above last where the wall clock is behind it: what is written must change the object.
func After(wall time.Time, last *metav1.MicroTime) metav1.MicroTime {
	if last != nil && !wall.After(last.Time) {
		wall = last.Add(time.Second)
	}
	return metav1.NewMicroTime(wall.Truncate(time.Microsecond))
}

// Pinged is the candidate with a pingTime above its renewTime, so that it answers and the answer is seen.
func Pinged(object *coordinationv1beta1.LeaseCandidate, wall time.Time) *coordinationv1beta1.LeaseCandidate {
	ping := object.DeepCopy()
	at := After(wall, object.Spec.RenewTime)
	ping.Spec.PingTime = &at
	return ping
}

// String is for logs.
func (p Plan) String() string {
	names := func(all []*coordinationv1beta1.LeaseCandidate) (s []string) {
		for _, object := range all {
			s = append(s, object.Name)
		}
		slices.Sort(s)
		return s
	}
	lease := "unchanged"
	if p.Lease != nil {
		lease = fmt.Sprintf("holder %q, preferred %q", value(p.Lease.Spec.HolderIdentity), preferred(p.Lease))
	}
	return fmt.Sprintf("ping %v, collect %v, lease %s, error %v", names(p.Ping), names(p.Collect), lease, p.Err)
}
