package simulation

import (
	"fmt"
	"strings"
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// peerKind is another elector that shares the lock with ours. Both kinds poll, judge a
// record by whether its bytes changed, keep on an update whatever annotations they
// found, and know nothing of ours.
type peerKind struct {
	name string
	// keyed: a higher key overwrites a live holder, as istiod does.
	keyed bool
	// fast: a leader writes without a look first, and looks before it releases; the
	// look renews the guard, so that the release can clear a record that somebody else
	// has written meanwhile. As client-go does.
	fast bool
}

var (
	istiod   = &peerKind{name: "istiod", keyed: true}
	clientGo = &peerKind{name: "client-go", fast: true}
)

// peer is one run of such a candidate: deliberately simpler than ours, and written
// independently of the core.
type peer struct {
	w               *world
	n               *node
	kind            *peerKind
	id              string
	key             string
	serial          int
	defaultRevision core.DefaultRevision // as its own watcher has told it
	ended           bool
	stops           bool // told to end
	pausedAt        Time // the last true time at which it was paused
	turn            int  // callbacks of an earlier turn do not count

	// What its elector keeps.
	leads      bool
	observed   core.Record
	raw        uint64 // of the bytes that a look showed last
	observedAt core.Instant
	object     view // what its lock keeps of the object, and guards the next write by
	roundEnds  core.Instant

	// The truth.
	term    *term // of its newest write
	wroteAt Time  // when that was sent
	works   []*peerWork
}

// peerWork is the run functions of one of a peer's cycles, while they run.
type peerWork struct {
	term *term // whose record says so
	over bool  // they have returned
	// let: its own elector released the lock although they had not.
	let bool
}

func (q *peer) String() string { return fmt.Sprintf("%s#%d(%s)", q.id, q.serial, q.kind.name) }

func (n *node) startPeer() {
	w := n.w
	w.peers++
	q := &peer{w: w, n: n, kind: n.kind, id: n.name, key: n.key, serial: w.peers}
	if !q.kind.keyed {
		q.key = ""
	}
	n.q = q
	w.tracef("%s starts, key %q, rate %.4f", q, q.key, n.clocks.rate)
	w.tellDefault(n, w.within(time.Second))
	n.run(q.campaign)
}

// wind is the longest that a peer's run functions take to return once told.
func (t timing) wind() time.Duration { return t.retry / 2 }

// grace covers the longest that a peer can work on after its last write took place: a
// reply that came at the last moment, a RetryPeriod, a round of renewals that fail,
// and functions that have to return; by a slow clock, and in whole seconds.
func (t timing) grace() time.Duration {
	longest := t.retry + 2*t.cover + t.wind() + time.Second
	return time.Duration(float64(longest)*(1+delta)/(1-delta)) - t.lease
}

func (q *peer) mono() core.Instant { return q.n.clocks.mono(q.w.now) }

// later does something on the peer's own clock, unless something else came first.
func (q *peer) later(d time.Duration, what func()) {
	q.turn++
	turn := q.turn
	q.w.at(q.n.clocks.when(q.mono().After(d)), func() {
		q.n.run(func() {
			if q.turn == turn && !q.ended {
				what()
			}
		})
	})
}

// campaign is a cycle's beginning: nothing is remembered, whatever still runs.
func (q *peer) campaign() {
	q.leads = false
	q.observed, q.raw, q.observedAt, q.object = core.Record{}, 0, 0, view{}
	q.attempt()
}

func (q *peer) attempt() {
	q.try(q.w.timing.cover, func(won bool) {
		if won {
			q.lead()
			return
		}
		wait := float64(q.w.timing.retry) * (1 + 1.2*q.w.rng.Float64())
		q.later(time.Duration(wait), q.attempt)
	})
}

// lead starts the functions, and the rounds of renewals.
func (q *peer) lead() {
	q.leads = true
	q.works = append(q.works, &peerWork{term: q.term})
	q.w.result.PeerTerms++
	q.w.tracef("%s: functions start", q)
	q.w.checks.leaderChanged()
	q.round()
}

// round renews, and tries again until its end is reached.
func (q *peer) round() {
	q.roundEnds = q.mono().After(q.w.timing.cover)
	q.renew()
}

func (q *peer) renew() {
	began := q.mono()
	q.try(began.Until(q.roundEnds), func(renewed bool) {
		if renewed {
			q.work().term = q.term
			q.later(q.w.timing.retry, q.round)
			return
		}
		next := max(q.mono(), began.After(q.w.timing.retry))
		if next >= q.roundEnds {
			q.later(q.mono().Until(q.roundEnds), q.lose)
			return
		}
		q.later(q.mono().Until(next), q.renew)
	})
}

func (q *peer) work() *peerWork { return q.works[len(q.works)-1] }

// lose tells the functions to stop, gives the lock up if it seems to be its own,
// whether they have returned or not, and begins the next cycle.
func (q *peer) lose() {
	q.leads = false
	q.w.tracef("%s: functions are told to stop", q)
	q.w.checks.leaderChanged()
	work := q.work()
	q.w.at(q.n.clocks.when(q.mono().After(q.w.within(q.w.timing.wind()))), func() {
		q.n.run(func() {
			work.over = true
			q.w.tracef("%s: functions have returned", q)
		})
	})
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

// end is the process's, once its functions have returned; they end with it at the latest.
func (q *peer) end() { q.later(q.w.within(q.w.timing.wind()), func() { q.n.kill("has ended") }) }

// stop asks the process to end: contexts are cancelled wherever it is.
func (q *peer) stop() {
	q.n.run(func() {
		if q.ended || q.stops {
			return
		}
		q.w.tracef("%s is told to stop", q)
		q.stops = true
		if q.leads {
			q.lose()
		} else {
			q.end()
		}
	})
}

// steals is Istio's comparison: the default revision before the others, and local
// before remote.
func (q *peer) steals(held string) bool {
	mine, theirs := strings.TrimPrefix(q.key, "^"), strings.TrimPrefix(held, "^")
	if mine != theirs && q.defaultRevision.Revision != "" && q.defaultRevision.Revision == mine {
		return true
	}
	return mine == theirs && q.key == mine && held != theirs
}
