package simulation

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// peerKind is another elector for the same lock. Both kinds poll, detect renewals by changed bytes, and keep
// annotations that they find.
type peerKind struct {
	name string
	// keyed: a higher key overwrites a live holder, as in istiod.
	keyed bool
	// fast: a leader writes without a read, and reads before it releases, so that the release can clear a
	// record of another holder. As in client-go.
	fast bool
	// lease is its lease if it differs from the lease of the incumbent processes.
	lease time.Duration
}

var (
	istiod   = &peerKind{name: "istiod", keyed: true}
	clientGo = &peerKind{name: "client-go", fast: true}
	// otherLeases has peers with other leases. istiod judges each holder by its own lease, so a shorter one breaks what incumbent
	// leaders rely on. client-go uses the recorded lease.
	otherLeases = []*peerKind{
		{name: "istiod-2m", keyed: true, lease: 2 * time.Minute},
		{name: "istiod-1h", keyed: true, lease: time.Hour},
		{name: "client-go-2m", fast: true, lease: 2 * time.Minute},
		{name: "client-go-1h", fast: true, lease: time.Hour},
		{name: "client-go-5s", fast: true, lease: 5 * time.Second},
	}
)

// timing returns the timing of such a peer next to incumbent processes.
func (k *peerKind) timing(t timing) timing {
	if k.lease > 0 {
		t.lease = k.lease
		t.validity = min(t.validity, k.lease*2/3)
		t.retry = min(t.retry, k.lease/5)
	}
	return t
}

// peer is one run of such a candidate. It is simple on purpose and independent of the core.
type peer struct {
	w               *world
	n               *node
	kind            *peerKind
	timing          timing
	id              string
	key             string
	serial          int
	defaultRevision core.DefaultRevision // of its own watcher
	ended           bool
	stops           bool      // it is being stopped
	pausedAt        Time      // last true time at which it was paused
	turn            int       // number of the current callback
	hindrance       hindrance // of its next call, in an exploration
	next            turn      // its action at due
	due             core.Instant

	// State of the elector.
	leads      bool
	observed   core.Record
	raw        uint64 // hash of the bytes read last
	observedAt core.Instant
	object     view // last known object, which guards the next write
	roundEnds  core.Instant

	// Truth, for checks.
	term    *term // of its newest write
	wroteAt Time  // when that was sent
	works   []*peerWork
}

// peerWork is the run functions of one cycle of a peer.
type peerWork struct {
	term *term
	// let: the elector released the lock before they returned.
	let bool
}

func (q *peer) String() string { return fmt.Sprintf("%s#%d(%s)", q.id, q.serial, q.kind.name) }

func (n *node) startPeer() {
	w := n.w
	w.peers++
	q := &peer{w: w, n: n, kind: n.kind, timing: n.kind.timing(w.timing), id: n.name, key: n.key, serial: w.peers}
	if !q.kind.keyed {
		q.key = ""
	}
	n.q = q
	w.tracef("%s starts, key %q, rate %.4f", q, q.key, n.clocks.rate)
	w.sendDefault(n, w.within(time.Second))
	n.run(q.campaign)
}

// wind is the longest time that the run functions of a peer need to return after cancellation.
func (t timing) wind() time.Duration { return t.retry / 2 }

// grace returns the longest time that a peer can act after its last write: a late reply, a RetryPeriod, one
// round of failing renewals, and the return of its run functions.
func (t timing) grace() time.Duration {
	longest := t.retry + 2*t.validity + t.wind() + time.Second
	return time.Duration(float64(longest)*(1+delta)/(1-delta)) - t.lease
}

func (q *peer) mono() core.Instant { return q.n.clocks.mono(q.w.now) }

// hindrance is a fault of a call.
type hindrance uint8

const (
	loseRequest hindrance = 1 + iota
	loseAnswer
)

// turn is the next action of a peer.
type turn uint8

const (
	attempts turn = iota
	rounds
	renews
	loses
	ends
)

// later plans a turn on the clock of the peer, which replaces another one.
func (q *peer) later(d time.Duration, next turn) {
	q.next, q.due = next, q.mono().After(d)
	q.plan()
}

func (q *peer) plan() {
	q.turn++
	turn := q.turn
	q.w.at(q.n.clocks.when(q.due), func() {
		q.n.run(func() {
			if q.turn == turn && !q.ended {
				q.play()
			}
		})
	})
}

func (q *peer) play() {
	switch q.next {
	case attempts:
		q.attempt()
	case rounds:
		q.round()
	case renews:
		q.renew()
	case loses:
		q.lose()
	case ends:
		q.n.kill("has ended")
	}
}

// campaign begins a cycle. The elector forgets everything.
func (q *peer) campaign() {
	q.leads = false
	q.observed, q.raw, q.observedAt, q.object = core.Record{}, 0, 0, view{}
	q.attempt()
}

func (q *peer) attempt() {
	q.try(q.timing.validity, func(won bool) {
		if won {
			q.lead()
			return
		}
		wait := float64(q.timing.retry) * (1 + 1.2*q.w.rng.Float64())
		q.later(time.Duration(wait), attempts)
	})
}

func (q *peer) lead() {
	q.leads = true
	q.works = append(q.works, &peerWork{term: q.term})
	q.w.tracef("%s: run functions start", q)
	q.w.happened(1)
	q.w.checks.leaderChanged()
	q.round()
}

// round renews and retries until its end.
func (q *peer) round() {
	q.roundEnds = q.mono().After(q.timing.validity)
	q.renew()
}

func (q *peer) renew() {
	began := q.mono()
	q.try(began.Until(q.roundEnds), func(renewed bool) {
		if renewed {
			q.work().term = q.term
			q.later(q.timing.retry, rounds)
			return
		}
		next := max(q.mono(), began.After(q.timing.retry))
		if next >= q.roundEnds {
			q.later(q.mono().Until(q.roundEnds), loses)
			return
		}
		q.later(q.mono().Until(next), renews)
	})
}

func (q *peer) work() *peerWork { return q.works[len(q.works)-1] }

// lose cancels the run functions, releases the lock without waiting for them, and begins the next cycle.
func (q *peer) lose() {
	q.leads = false
	q.w.tracef("%s: run functions are cancelled", q)
	q.w.checks.leaderChanged()
	work := q.work()
	q.w.at(q.n.clocks.when(q.mono().After(q.w.within(q.timing.wind()))), func() { q.n.run(func() { q.returned(work) }) })
	then := q.campaign
	if q.stops {
		then = q.end
	}
	if q.observed.Holder != q.id {
		then()
		return
	}
	q.release(work, func(bool) { then() })
}

// returned removes run functions that have returned.
func (q *peer) returned(work *peerWork) {
	q.works = slices.DeleteFunc(q.works, func(x *peerWork) bool { return x == work })
	q.w.tracef("%s: run functions returned", q)
}

// cancelled returns run functions that have not returned since they were cancelled.
func (q *peer) cancelled() *peerWork {
	if len(q.works) == 0 || q.leads && len(q.works) == 1 {
		return nil
	}
	return q.works[0]
}

// end ends the process after its run functions have returned.
func (q *peer) end() { q.later(q.w.within(q.timing.wind()), ends) }

func (q *peer) stop() {
	q.n.run(func() {
		if q.ended || q.stops {
			return
		}
		q.w.tracef("%s: stop", q)
		q.stops = true
		if q.leads {
			q.lose()
		} else {
			q.end()
		}
	})
}

// steals is the comparison of Istio: default revision first, local before remote.
func (q *peer) steals(held string) bool {
	mine, theirs := strings.TrimPrefix(q.key, "^"), strings.TrimPrefix(held, "^")
	if mine != theirs && q.defaultRevision.Revision != "" && q.defaultRevision.Revision == mine {
		return true
	}
	return mine == theirs && q.key == mine && held != theirs
}
