package simulation

import (
	"time"

	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// try is one attempt to acquire or renew. A client-go leader first writes without a read.
func (q *peer) try(limit time.Duration, done func(bool)) {
	at := q.mono()
	ends := at.After(limit)
	if q.kind.fast && q.observed.Holder == q.id && q.observedAt.After(q.observed.Lease) > at {
		q.put(ends, q.record(q.observed), false, func(ok bool) {
			if ok {
				done(true)
				return
			}
			q.look(ends, at, done)
		})
		return
	}
	q.look(ends, at, done)
}

// look reads the lock and decides.
func (q *peer) look(ends, at core.Instant, done func(bool)) {
	q.get(ends, func(ok bool) {
		found := q.object.snap
		switch {
		case !ok || found.Exists && found.Content == record.Unreadable:
			done(false) // it reports an error and retries forever
			return
		case !found.Exists:
			q.put(ends, q.record(core.Record{}), false, done)
			return
		}
		if found.Sum != q.raw {
			q.raw, q.observed, q.observedAt = found.Sum, found.Record, q.mono()
		}
		if q.mustLeave(found.Record, at) {
			done(false)
			return
		}
		q.put(ends, q.record(found.Record), q.takesExpired(found.Record), done)
	})
}

// mustLeave reports whether another holder must not be overwritten.
func (q *peer) mustLeave(r core.Record, at core.Instant) bool {
	lease := q.timing.lease
	if q.kind.fast {
		lease = r.Lease
	}
	live := r.Holder != "" && q.observedAt.After(lease) > at && r.Holder != q.id
	return live && !(q.kind.keyed && q.steals(r.Key))
}

// takesExpired reports whether the peer relies on the lock being expired or free.
func (q *peer) takesExpired(r core.Record) bool {
	return r.Holder != q.id && !(r.Holder != "" && q.kind.keyed && q.steals(r.Key))
}

// record returns the record of the peer to write over old.
func (q *peer) record(old core.Record) core.Record {
	stamp := core.Stamp(q.n.clocks.wall(q.w.now)/int64(time.Second)) * 1e6
	r := core.Record{
		Holder: q.id, Key: q.key, Lease: q.timing.lease,
		Acquired: stamp, Renewed: stamp, Transitions: old.Transitions,
	}
	switch {
	case old.Holder == q.id:
		r.Acquired = old.Acquired
	case old != core.Record{}:
		r.Transitions++
	}
	return r
}

// release writes an empty holder with the known transitions.
func (q *peer) release(work *peerWork, done func(bool)) {
	ends := q.mono().After(q.timing.validity)
	write := func(transitions int) {
		r := q.record(core.Record{Holder: q.id, Transitions: transitions})
		r.Holder, r.Key, r.Lease, r.Acquired = "", "", time.Second, r.Renewed
		work.let = true // it may arrive without a reply
		q.put(ends, r, false, done)
	}
	if !q.kind.fast {
		write(q.observed.Transitions)
		return
	}
	q.get(ends, func(ok bool) {
		if !ok || !q.object.snap.Exists {
			done(false)
			return
		}
		write(q.object.snap.Record.Transitions)
	})
}

func (q *peer) get(ends core.Instant, done func(bool)) {
	q.request(ends, func() (core.Result, view) { return core.OK, q.w.store.now }, func(r core.Result, v view) {
		if r == core.OK {
			q.object = v
		}
		done(r == core.OK)
	})
}

// put writes the record to the last known object.
func (q *peer) put(ends core.Instant, r core.Record, expired bool, done func(bool)) {
	base, sentAt := q.object, q.w.now
	arrive := func() (core.Result, view) { return q.w.store.peerWrite(q, base, r, expired, sentAt) }
	q.request(ends, arrive, func(result core.Result, v view) {
		if result == core.OK {
			q.object, q.observed, q.observedAt = v, r, q.mono()
		}
		done(result == core.OK)
	})
}

// request is one call. It is answered exactly once.
func (q *peer) request(ends core.Instant, arrive func() (core.Result, view), done func(core.Result, view)) {
	w := q.w
	if w.choosing.on {
		r, v := core.Unknown, view{}
		if q.hindrance != loseRequest {
			r, v = arrive()
		}
		if q.hindrance != 0 {
			r, v, q.hindrance = core.Unknown, view{}, 0
		}
		done(r, v)
		return
	}
	q.turn++
	turn := q.turn
	answer := func(r core.Result, v view) {
		q.n.run(func() {
			if q.turn == turn && !q.ended {
				q.turn++
				done(r, v)
			}
		})
	}
	w.at(q.n.clocks.when(ends), func() { answer(core.Unknown, view{}) })
	there := w.latency(q.timing.validity)
	if w.lost() {
		return
	}
	w.after(there, func() {
		if w.now < w.apiDown || w.now < q.n.apiDown {
			if w.chance(w.refuses) {
				w.after(refused, func() { answer(core.Unknown, view{}) })
			}
			return
		}
		r, v := arrive()
		if back := w.latency(q.timing.validity); !w.lost() && w.now >= q.n.muted {
			w.after(back, func() { answer(r, v) })
		}
	})
}

// peerWrite applies a write of a peer. expired: the peer relied on an expired or free lock.
func (s *store) peerWrite(q *peer, base view, r core.Record, expired bool, sentAt Time) (core.Result, view) {
	now := s.now
	if !s.accepts(base.snap) {
		return core.Conflict, view{}
	}
	next := now
	next.snap.Exists, next.snap.Content, next.snap.Record = true, record.Readable, r
	next.released = false
	if !now.snap.Exists {
		s.uids++
		next = view{snap: core.Snapshot{Exists: true, UID: uid(s.uids), Content: record.Readable, Record: r}}
	}
	if next.snap.Sum = sum(next.snap); now.snap.Exists && next.snap.Sum == now.snap.Sum {
		// A PUT that changes nothing. A process that replaced one of its name within a second leads all the
		// same.
		if q.term == nil {
			q.term, q.wroteAt = now.term, sentAt
		}
		return core.OK, now
	}
	s.w.checks.peerWrites(q, now, expired)
	switch {
	case r.Holder == "":
		s.letGo(now.term, q)
		next.term = &term{}
	case now.term == nil || now.term.q != q || now.snap.Record.Holder != q.id:
		next.term = &term{q: q, id: q.id}
	}
	if r.Holder != "" {
		next.term.namesake = names(next.snap.Annotations.Marker, r)
		q.term, q.wroteAt = next.term, sentAt
	}
	v := s.foreignEdit(next, false)
	s.w.tracef("  the store: %v writes %s", q, shown(v.snap))
	return core.OK, v
}

// letGo marks the terms that a release of a peer hides from candidates that did not see them.
func (s *store) letGo(t *term, by *peer) {
	if t != nil && t.q != nil && t.q != by {
		t.wiped = true
	}
	for ; t != nil; t = t.prev {
		t.letGo = true
		t.hidden = t.hidden || s.now.snap.Annotations.Marker == (core.Marker{})
	}
}
