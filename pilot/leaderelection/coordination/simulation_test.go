package coordination

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"incumbent.dev/incumbent/internal/record"
)

const (
	simTick         = 100 * time.Millisecond
	simLeaseSeconds = 15
	simStorm        = 3 * time.Minute // random acts
	simCalm         = 9 * time.Minute // no acts; longer than any back-off
)

var simRevisions = []string{"stable", "canary"}

// simWorld is one random run of an election: a store with compare-and-swap, two coordinators that execute observer.plan on a delayed
// view, and candidates. It advances in ticks and depends only on its seed.
type simWorld struct {
	rng          *rand.Rand
	now          time.Duration
	version      int
	lease        *coordinationv1.Lease
	state        leaseState    // of the lease
	leaseSince   time.Duration // of its state
	objects      map[string]*coordinationv1beta1.LeaseCandidate
	processes    []*simProcess
	coordinators [2]*simCoordinator
	revision     string
	actedAt      time.Duration   // of the last act
	pairAt       time.Duration   // when both coordinators were last active
	namedBy      *simCoordinator // nil after a handover
	bug          simBug
	violations   map[string]string
	preferences  []time.Duration
}

func (w *simWorld) violate(check, format string, args ...any) {
	if _, known := w.violations[check]; !known {
		w.violations[check] = fmt.Sprintf("%v: ", w.now) + fmt.Sprintf(format, args...)
	}
}

func (w *simWorld) chance(percent int) bool { return w.rng.IntN(100) < percent }

func (w *simWorld) time() time.Time { return epoch.Add(w.now) }

// put stores a changed lock.
func (w *simWorld) put(l *coordinationv1.Lease) {
	w.version++
	l.ResourceVersion = strconv.Itoa(w.version)
	if state := stateOf(l); state != w.state {
		w.state = state
		w.leaseSince = w.now
	}
	w.lease = l
}

func (w *simWorld) putCandidate(c *coordinationv1beta1.LeaseCandidate) {
	w.version++
	c.ResourceVersion = strconv.Itoa(w.version)
	w.objects[c.Name] = c
}

func (w *simWorld) process(name string) *simProcess {
	for _, p := range w.processes {
		if p.name == name {
			return p
		}
	}
	return nil
}

// simProcess is a candidate: it answers pings, acquires the lock when it is named, renews, and hands over on request.
type simProcess struct {
	w         *simWorld
	name      string
	labels    map[string]string
	alive     bool
	silent    bool          // does not answer pings
	refuses   bool          // releases the lock when it is named
	drainedAt time.Duration // 0: not draining
	wroteAt   time.Duration
	askedAt   time.Duration
	answered  time.Duration
	refusedAt time.Duration
	refused   *simCoordinator // whose nomination it refused last; nil after it led
	noticed   bool            // refused has seen the refusal
}

func (w *simWorld) start() {
	p := &simProcess{
		w: w, name: fmt.Sprintf("pod-%d", len(w.processes)), alive: true,
		labels: map[string]string{RevisionLabel: simRevisions[w.rng.IntN(2)]},
	}
	w.processes = append(w.processes, p)
}

func (p *simProcess) step() {
	if !p.alive || p.w.chance(70) {
		return
	}
	object := p.w.objects[p.name]
	switch {
	case object == nil:
		p.publish()
	case isPinged(object.Spec) && !p.silent:
		object = object.DeepCopy()
		object.Spec.RenewTime = object.Spec.PingTime
		p.answered = p.w.now
		p.w.putCandidate(object)
	}
	if l := p.w.lease; ptr.Deref(l.Spec.HolderIdentity, "") == p.name {
		p.hold(l.DeepCopy())
	} else {
		p.drainedAt = 0
	}
}

func (p *simProcess) publish() {
	at := metav1.NewMicroTime(p.w.time())
	p.w.version++
	p.w.putCandidate(&coordinationv1beta1.LeaseCandidate{
		ObjectMeta: metav1.ObjectMeta{
			Name: p.name, Labels: p.labels, UID: types.UID(strconv.Itoa(p.w.version)), CreationTimestamp: metav1.NewTime(p.w.time().Truncate(time.Second)),
		},
		Spec: coordinationv1beta1.LeaseCandidateSpec{LeaseName: "x", BinaryVersion: "1.0.0", Strategy: DefaultRevision, RenewTime: &at},
	})
}

// hold writes what a holder writes.
func (p *simProcess) hold(l *coordinationv1.Lease) {
	preferred := preferredHolder(l)
	nominee := p.w.state.nominated
	switch {
	case nominee && p.refuses:
		p.refusedAt = p.w.now
		p.refused = p.w.namedBy
		p.noticed = false
		p.write(l, "", 1)
		l.Spec.AcquireTime = l.Spec.RenewTime
	case nominee:
		p.refused = nil
		p.write(l, p.name, simLeaseSeconds)
		l.Spec.AcquireTime = l.Spec.RenewTime
		l.Spec.LeaseTransitions = new(ptr.Deref(l.Spec.LeaseTransitions, 0) + 1)
	case p.drainedAt == 0 && preferred != "" && preferred != p.name:
		p.drainedAt = p.w.now + time.Duration(1+p.w.rng.IntN(30000))*time.Millisecond
		return
	case p.drainedAt != 0 && p.w.now > p.drainedAt:
		p.release(l, preferred)
	case p.w.now-p.wroteAt > 2*time.Second:
		p.write(l, p.name, simLeaseSeconds)
	default:
		return
	}
	p.wroteAt = p.w.now
	p.w.put(l)
}

func (p *simProcess) write(l *coordinationv1.Lease, holder string, seconds int32) {
	at := laterThan(p.w.time(), l.Spec.RenewTime)
	l.Spec.HolderIdentity = &holder
	l.Spec.LeaseDurationSeconds = &seconds
	l.Spec.RenewTime = &at
	delete(l.Annotations, record.NominatedAnnotation)
}

// release ends a drained term, by a handover if the lock has a preferred holder.
func (p *simProcess) release(l *coordinationv1.Lease, preferred string) {
	p.drainedAt = 0
	to := p.w.process(preferred)
	if to == nil {
		p.write(l, "", 1)
		l.Spec.AcquireTime = l.Spec.RenewTime
		return
	}
	p.w.namedBy = nil
	// A preference may remain for an election duration after a change (mustWait), and after a second coordinator with an older view.
	if p.w.now-max(p.w.actedAt, p.w.pairAt) > electionDuration && p.better(to) {
		p.w.violate("handover", "%s hands over to %s, which is worse", p.name, to.name)
	}
	p.write(l, preferred, simLeaseSeconds)
	clearPreferredHolder(l)
	l.Spec.AcquireTime = l.Spec.RenewTime
	l.Spec.LeaseTransitions = new(ptr.Deref(l.Spec.LeaseTransitions, 0) + 1)
	metav1.SetMetaDataAnnotation(&l.ObjectMeta, record.NominatedAnnotation, preferred)
}

// better reports whether p, as the holder, is better than q for an active coordinator.
func (p *simProcess) better(q *simProcess) bool {
	a := p.w.objects[p.name]
	b := p.w.objects[q.name]
	coordinated := strategyOf(p.w.lease) == DefaultRevision && (p.w.coordinators[0].active || p.w.coordinators[1].active)
	if !coordinated || a == nil || b == nil || isPinged(a.Spec) {
		return false
	}
	return p.w.best([]*coordinationv1beta1.LeaseCandidate{a, b}, p.name) == p.name
}

func (w *simWorld) best(objects []*coordinationv1beta1.LeaseCandidate, holder string) string {
	var p plan
	best, _ := Best(CompareDefaultRevision)(Situation{DefaultRevision: w.revision, Holder: holder}, p.parse(objects))
	return best.Name
}

// simCoordinator executes plans on a delayed view, with a clock of its own.
type simCoordinator struct {
	w        *simWorld
	active   bool
	rate     float64
	observer *observer
	view     election
	seen     int // version of the view
	wake     time.Duration
	began    time.Duration
	requests []time.Duration
	notes    map[string]time.Duration // for planted bugs
}

func (c *simCoordinator) begin() {
	*c = simCoordinator{w: c.w, active: true, rate: 0.97 + 0.06*c.w.rng.Float64(), observer: &observer{}, began: c.w.now, notes: map[string]time.Duration{}}
}

// since returns how long a planted bug has been in a state.
func (c *simCoordinator) since(state string) time.Duration {
	if _, noted := c.notes[state]; !noted {
		c.notes[state] = c.w.now
	}
	return c.w.now - c.notes[state]
}

func (c *simCoordinator) step() {
	if !c.active {
		return
	}
	if changed := c.seen != c.w.version; changed && !c.w.chance(40) {
		c.seen = c.w.version
		c.view = election{Lease: c.w.lease}
		for _, p := range c.w.processes {
			if object := c.w.objects[p.name]; object != nil {
				c.view.Candidates = append(c.view.Candidates, object)
			}
			p.noticed = p.noticed || p.refused == c && c.w.leaseSince == p.refusedAt && ptr.Deref(c.w.lease.Spec.HolderIdentity, "") == ""
		}
	} else if c.wake == 0 || c.w.now < c.wake {
		return
	}
	if c.view.Lease == nil {
		return
	}
	c.view.Situation.DefaultRevision = c.w.revision
	now := epoch.Add(time.Duration(c.rate * float64(c.w.now)))
	e := c.view
	p := c.w.bug.plan(c, e, func(e election) plan { return c.observer.plan(now, c.w.time(), e, Own()) })
	c.wake = 0
	if p.Again > 0 {
		c.wake = c.w.now + p.Again
	}
	c.execute(now, e, p)
}

func (c *simCoordinator) execute(now time.Time, e election, p plan) {
	for _, object := range p.Ping {
		c.request()
		if current := c.w.objects[object.Name]; current != nil && current.ResourceVersion == object.ResourceVersion {
			c.w.process(object.Name).askedAt = c.w.now
			c.w.putCandidate(pinged(current, c.w.time()))
		}
		c.observer.markStale(now, object)
	}
	for _, object := range p.Delete {
		c.request()
		if asked := c.w.process(object.Name).askedAt; c.w.now-max(asked, c.began) < candidateDuration*96/100 {
			c.w.violate("deleted early", "%s", object.Name)
		}
		delete(c.w.objects, object.Name)
		c.w.version++
	}
	if p.Lease == nil {
		return
	}
	c.request()
	c.check(e, p.Lease)
	if version := p.Lease.ResourceVersion; version != "" && version != c.w.lease.ResourceVersion {
		return
	}
	c.checkStored(p.Lease)
	stored := p.Lease.DeepCopy()
	c.w.put(stored)
	c.observer.wrote(now, e.Lease.ResourceVersion, stored)
}

// request counts a request.
func (c *simCoordinator) request() {
	c.requests = append(c.requests, c.w.now)
	if n := count(c.requests, c.w.now-10*time.Second); n > 40 {
		c.w.violate("effort", "%d requests in 10 s", n)
	}
	if c.w.now > simStorm+simCalm-time.Minute && c.w.now < simStorm+simCalm {
		c.w.violate("quiet", "a request although nothing changed")
	}
}

func count(times []time.Duration, since time.Duration) (n int) {
	for i := len(times) - 1; i >= 0 && times[i] >= since; i-- {
		n++
	}
	return n
}

// check checks a write against the state on which it was decided.
func (c *simCoordinator) check(e election, l *coordinationv1.Lease) {
	if l.ResourceVersion != e.Lease.ResourceVersion {
		c.w.violate("guard", "version %q, decided on %q", l.ResourceVersion, e.Lease.ResourceVersion)
	}
	if l.Spec.HolderIdentity == nil {
		c.w.violate("nil holder", "the holder is nil")
	}
}

// checkStored checks a write against the true state.
func (c *simCoordinator) checkStored(l *coordinationv1.Lease) {
	w := c.w
	holder := ptr.Deref(l.Spec.HolderIdentity, "")
	former := ptr.Deref(w.lease.Spec.HolderIdentity, "")
	lease := time.Duration(ptr.Deref(w.lease.Spec.LeaseDurationSeconds, 0)) * time.Second
	if w.state.nominated {
		lease = min(lease, electionDuration)
	}
	if former != "" && holder != former && w.now-w.leaseSince < lease*93/100 {
		w.violate("live holder", "named %s %v after a write of %s", holder, w.now-w.leaseSince, former)
	}
	if former == "" {
		lease = 0
	}
	if written := strategyOf(w.lease); written != "" && written != DefaultRevision && w.now-w.leaseSince < (lease+electionDuration)*93/100 {
		w.violate("strategy", "changed the lock of strategy %q", written)
	}
	chosen := preferredHolder(l)
	if chosen == preferredHolder(w.lease) {
		chosen = ""
	}
	if chosen != "" {
		w.preferences = append(w.preferences, w.now)
		if n := count(w.preferences, w.now-30*time.Second); n > 14 {
			w.violate("preferences", "%d in 30 s", n)
		}
	}
	if holder != former && holder != "" {
		chosen = holder
		w.namedBy = c
	}
	if p := w.process(chosen); p != nil {
		if p.answered == 0 || w.now-p.answered > 2*electionDuration+time.Second {
			w.violate("unanswered", "chose %s", p.name)
		}
		// Of two coordinators, one misses a refusal if the other names a candidate immediately afterwards.
		if p.refused == c && p.noticed && p.refusedAt > c.began && float64(w.now-p.refusedAt)*c.rate < float64(2*electionDuration) {
			w.violate("refused", "chose %s %v after it refused", p.name, w.now-p.refusedAt)
		}
	}
}

// act changes something.
func (w *simWorld) act() {
	w.actedAt = w.now
	p := w.processes[w.rng.IntN(len(w.processes))]
	relabel := func(label, text string) {
		p.labels = map[string]string{RevisionLabel: p.labels[RevisionLabel], label: text}
		if object := w.objects[p.name]; object != nil {
			object = object.DeepCopy()
			object.Labels = p.labels
			w.putCandidate(object)
		}
	}
	c := w.coordinators[w.rng.IntN(2)]
	switch w.rng.IntN(10) {
	case 0:
		w.start()
	case 1:
		p.alive = p.name == "pod-0" // at least one process lives
	case 2:
		p.silent = !p.silent
	case 3, 4:
		p.refuses = !p.refuses
	case 5:
		w.revision = simRevisions[w.rng.IntN(2)]
	case 6:
		relabel(RevisionLabel, simRevisions[w.rng.IntN(2)])
	case 7:
		relabel([]string{PriorityLabel, FitLabel}[w.rng.IntN(2)], "1")
	case 8:
		l := w.lease.DeepCopy()
		clearPreferredHolder(l)
		l.Spec.Strategy = []*coordinationv1.CoordinatedLeaseStrategy{nil, new(coordinationv1.CoordinatedLeaseStrategy("example.com/Other"))}[w.rng.IntN(2)]
		w.put(l)
	default:
		if c.active = !c.active; c.active {
			c.begin()
		}
	}
	w.version++
}

// calm ends the storm: all living processes can lead, and a coordinator is active. An operator corrects the strategy if a
// candidate holds the lock.
func (w *simWorld) calm() {
	w.actedAt = w.now
	for _, p := range w.processes {
		p.silent = false
		p.refuses = false
	}
	if !w.coordinators[0].active {
		w.coordinators[0].begin()
	}
	if s := strategyOf(w.lease); s != DefaultRevision && s != "" && ptr.Deref(w.lease.Spec.HolderIdentity, "") != "" {
		l := w.lease.DeepCopy()
		setStrategy(l, DefaultRevision, false)
		w.put(l)
	}
}

func (w *simWorld) runFor(d time.Duration, acts bool) {
	for end := w.now + d; w.now < end; w.now += simTick {
		if acts && w.rng.IntN(40) == 0 {
			w.act()
		}
		if w.coordinators[0].active && w.coordinators[1].active {
			w.pairAt = w.now
		}
		for _, p := range w.processes {
			p.step()
		}
		for _, c := range w.coordinators {
			c.step()
		}
	}
}

// checkEnd checks the state after the calm.
func (w *simWorld) checkEnd() {
	holder := ptr.Deref(w.lease.Spec.HolderIdentity, "")
	var able []*coordinationv1beta1.LeaseCandidate
	for _, p := range w.processes {
		if object := w.objects[p.name]; p.alive && object != nil && (p.labels[FitLabel] != "false" || p.name == holder) {
			able = append(able, object)
		}
	}
	leader := w.process(holder)
	switch best := w.best(able, holder); {
	case leader == nil || !leader.alive || w.state.nominated:
		w.violate("no leader", "%q holds the lock, %s could lead", holder, best)
	case best != holder:
		w.violate("best leads", "%s leads, %s is better", holder, best)
	}
	if strategyOf(w.lease) != DefaultRevision {
		w.violate("restored", "the lock has strategy %q", strategyOf(w.lease))
	}
}

// checkDeleted checks that unanswered candidates were deleted.
func (w *simWorld) checkDeleted() {
	for name, object := range w.objects {
		if isPinged(object.Spec) && !w.process(name).alive {
			w.violate("not deleted", "%s", name)
		}
	}
}

func simulate(seed uint64, bug simBug) *simWorld {
	w := &simWorld{
		rng: rand.New(rand.NewPCG(seed, 41)), bug: bug, revision: simRevisions[0], violations: map[string]string{},
		objects: map[string]*coordinationv1beta1.LeaseCandidate{},
	}
	w.put(&coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "x", UID: "l"},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: new(""), Strategy: new(coordinationv1.CoordinatedLeaseStrategy(DefaultRevision))},
	})
	for i := range w.coordinators {
		w.coordinators[i] = &simCoordinator{w: w}
	}
	w.coordinators[0].begin()
	for range 3 {
		w.start()
	}
	w.runFor(simStorm, true)
	w.calm()
	w.runFor(simCalm, false)
	w.checkEnd()
	if seed%20 == 0 {
		w.runFor(candidateDuration*11/10, false)
		w.checkDeleted()
	}
	return w
}

// TestPlan_Random runs random elections. SIM_SEEDS sets their number and SIM_FIRST the first one. SIM_SEED selects one.
func TestPlan_Random(t *testing.T) {
	number := func(name string, otherwise uint64) uint64 {
		if n, err := strconv.ParseUint(os.Getenv(name), 10, 64); err == nil {
			return n
		}
		return otherwise
	}
	first, seeds := number("SIM_FIRST", 0), number("SIM_SEEDS", 200)
	if os.Getenv("SIM_SEED") != "" {
		first, seeds = number("SIM_SEED", 0), 1
	}
	t.Logf("seeds %d to %d", first, first+seeds-1)
	for seed := first; seed < first+seeds && !t.Failed(); seed++ {
		for check, text := range simulate(seed, simBug{}).violations {
			t.Errorf("SIM_SEED=%d: %s: %s", seed, check, text)
		}
	}
}

// simBug changes a plan, or replaces it.
type simBug struct {
	name   string
	check  string // that must detect it
	change func(c *simCoordinator, e election, p *plan)
	replan func(c *simCoordinator, e election) election
}

func (b simBug) plan(c *simCoordinator, e election, plan func(election) plan) plan {
	if b.replan != nil {
		e = b.replan(c, e)
	}
	p := plan(e)
	if b.change != nil {
		b.change(c, e, &p)
	}
	return p
}

// named returns a plan's lock with a holder.
func (c *simCoordinator) named(e election, holder string) *coordinationv1.Lease {
	var p plan
	p.name(holder, false, c.w.time(), e)
	return p.Lease
}

func (c *simCoordinator) bestOf(e election) string {
	return c.w.best(e.Candidates, ptr.Deref(e.Lease.Spec.HolderIdentity, ""))
}

func ours(e election) bool { return strategyOf(e.Lease) == DefaultRevision && len(e.Candidates) > 0 }

var simBugs = []simBug{
	{name: "no resourceVersion", check: "guard", change: func(_ *simCoordinator, _ election, p *plan) {
		if p.Lease != nil {
			p.Lease.ResourceVersion = ""
		}
	}},
	{name: "ignores leases", check: "live holder", change: func(c *simCoordinator, e election, p *plan) {
		if preferred := preferredHolder(p.Lease); preferred != "" && preferredHolder(e.Lease) == "" {
			p.Lease = c.named(e, preferred)
		}
	}},
	{name: "names before answers", check: "unanswered", change: func(c *simCoordinator, e election, p *plan) {
		if len(p.Ping) > 0 && ptr.Deref(e.Lease.Spec.HolderIdentity, "") == "" && ours(e) {
			p.Lease = c.named(e, c.bestOf(e))
		}
	}},
	{name: "forgets refusals", check: "refused", replan: func(c *simCoordinator, e election) election {
		for _, candidate := range c.observer.candidates {
			candidate.refused.until = time.Time{}
		}
		c.observer.pending = pendingWrite{}
		c.observer.lease = leaseState{}
		return e
	}},
	{name: "nil holder", check: "nil holder", change: func(_ *simCoordinator, e election, p *plan) {
		if p.Lease != nil && preferredHolder(e.Lease) != "" {
			p.Lease.Spec.HolderIdentity = nil
		}
	}},
	{name: "all strategies", check: "strategy", replan: func(_ *simCoordinator, e election) election {
		e.Lease = e.Lease.DeepCopy()
		setStrategy(e.Lease, DefaultRevision, false)
		return e
	}},
	{name: "waits for all answers", check: "no leader", change: func(_ *simCoordinator, e election, p *plan) {
		for _, object := range e.Candidates {
			if isPinged(object.Spec) {
				p.Lease = nil
			}
		}
	}},
	{name: "never prefers", check: "best leads", change: func(_ *simCoordinator, _ election, p *plan) {
		if preferredHolder(p.Lease) != "" {
			p.Lease = nil
		}
	}},
	{name: "never withdraws", check: "handover", change: func(_ *simCoordinator, e election, p *plan) {
		if p.Lease != nil && preferredHolder(p.Lease) == "" && preferredHolder(e.Lease) != "" && stateOf(p.Lease) == stateOf(e.Lease) {
			p.Lease = nil
		}
	}},
	{name: "alternates preferences", check: "preferences", change: func(c *simCoordinator, e election, p *plan) {
		best := c.bestOf(e)
		if !ours(e) || ptr.Deref(e.Lease.Spec.HolderIdentity, "") == "" || best == ptr.Deref(e.Lease.Spec.HolderIdentity, "") {
			return
		}
		p.Lease = e.Lease.DeepCopy()
		if preferredHolder(e.Lease) == "" {
			setPreferredHolder(p.Lease, best, false)
		} else {
			clearPreferredHolder(p.Lease)
		}
	}},
	{name: "strategy not restored", check: "restored", change: func(_ *simCoordinator, e election, p *plan) {
		if strategyOf(e.Lease) == "" {
			p.Lease = nil
		}
	}},
	{name: "pings without need", check: "quiet", change: func(c *simCoordinator, e election, p *plan) {
		if len(p.Ping) == 0 && p.Lease == nil && c.since(fmt.Sprint(c.w.now/time.Minute)) == 0 {
			p.Ping = e.Candidates
		}
	}},
	{name: "writes without change", check: "effort", change: func(_ *simCoordinator, e election, p *plan) {
		if p.Lease == nil {
			p.Lease = e.Lease.DeepCopy()
		}
		p.within(time.Millisecond)
	}},
	{name: "deletes immediately", check: "deleted early", change: func(c *simCoordinator, e election, p *plan) {
		for _, object := range e.Candidates {
			if isPinged(object.Spec) && c.since(object.Name+object.ResourceVersion) > electionDuration {
				p.Delete = append(p.Delete, object)
			}
		}
	}},
	{name: "never deletes", check: "not deleted", change: func(_ *simCoordinator, _ election, p *plan) { p.Delete = nil }},
}

// TestPlan_RandomBugs shows that each check of the simulation can fail.
func TestPlan_RandomBugs(t *testing.T) {
	for _, bug := range simBugs {
		t.Run(bug.name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(200) {
				if simulate(seed, bug).violations[bug.check] != "" {
					t.Logf("found with seed %d", seed)
					return
				}
			}
			t.Errorf("not found by check %q", bug.check)
		})
	}
}
