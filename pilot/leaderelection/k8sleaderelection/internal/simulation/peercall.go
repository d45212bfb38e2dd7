package simulation

import (
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// try is one attempt to acquire or renew: a look, a judgement, a guarded write. A
// leader of client-go's kind first writes without a look.
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

// look reads the lock and goes on from what stands there.
func (q *peer) look(ends, at core.Instant, done func(bool)) {
	q.get(ends, func(ok bool) {
		found := q.object.snap
		switch {
		case !ok || found.Exists && found.Content == core.Unreadable:
			done(false) // it reports an error and tries again, for ever
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

// mustLeave reports whether somebody else holds the lock and is not to be overwritten.
func (q *peer) mustLeave(r core.Record, at core.Instant) bool {
	lease := q.w.timing.lease
	if q.kind.fast {
		lease = r.Lease
	}
	live := r.Holder != "" && q.observedAt.After(lease) > at && r.Holder != q.id
	return live && !(q.kind.keyed && q.steals(r.Key))
}

// takesExpired reports whether the record would be left alone if it had not run out:
// nobody was overwritten by a key.
func (q *peer) takesExpired(r core.Record) bool {
	return r.Holder != q.id && !(r.Holder != "" && q.kind.keyed && q.steals(r.Key))
}

// record is the peer's record to be written over old.
func (q *peer) record(old core.Record) core.Record {
	stamp := core.Stamp(q.n.clocks.wall(q.w.now)/int64(time.Second)) * 1e6
	r := core.Record{
		Holder: q.id, Key: q.key, Lease: q.w.timing.lease,
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

// release writes an empty holder, with the transitions that it remembers.
func (q *peer) release(work *peerWork, done func(bool)) {
	ends := q.mono().After(q.w.timing.cover)
	write := func(transitions int) {
		r := q.record(core.Record{Holder: q.id, Transitions: transitions})
		r.Holder, r.Key, r.Lease, r.Acquired = "", "", time.Second, r.Renewed
		work.let = true // it may arrive, answered or not
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

// get reads the object into what the lock keeps.
func (q *peer) get(ends core.Instant, done func(bool)) {
	q.request(ends, func() (core.Result, view) { return core.OK, q.w.store.now }, func(r core.Result, v view) {
		if r == core.OK {
			q.object = v
		}
		done(r == core.OK)
	})
}

// put writes the object that the lock keeps, with this record in it.
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

// request is one call: it arrives or does not, and is answered exactly once.
func (q *peer) request(ends core.Instant, arrive func() (core.Result, view), done func(core.Result, view)) {
	w := q.w
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
	there := w.latency(w.timing.cover)
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
		if back := w.latency(w.timing.cover); !w.lost() {
			w.after(back, func() { answer(r, v) })
		}
	})
}

// peerWrite is a peer's request that has arrived. expired says that it took the record
// for one that has run out, or for nobody's.
func (s *store) peerWrite(q *peer, base view, r core.Record, expired bool, sentAt Time) (core.Result, view) {
	now := s.now
	if base.snap.Exists != now.snap.Exists || base.snap.Exists && (base.snap.Version != now.snap.Version || base.snap.UID != now.snap.UID) {
		return core.Conflict, view{}
	}
	next := now
	next.snap.Exists, next.snap.Content, next.snap.Record = true, core.Readable, r
	next.released = false
	if !now.snap.Exists {
		s.uids++
		next = view{snap: core.Snapshot{Exists: true, UID: uid(s.uids), Content: core.Readable, Record: r}}
	}
	if next.snap.Sum = sum(next.snap); now.snap.Exists && next.snap.Sum == now.snap.Sum {
		// A PUT that changes nothing. A process that has taken the place of one of its name within a
		// second leads by it all the same.
		if q.term == nil {
			q.term, q.wroteAt = now.term, sentAt
		}
		return core.OK, now
	}
	s.w.checks.peerWrites(q, now, expired)
	switch {
	case r.Holder == "":
		s.letGo(now.term, q)
		next.term = &term{history: now.history}
	case now.term == nil || now.term.q != q || now.snap.Record.Holder != q.id:
		next.term = &term{q: q, id: q.id, history: now.history}
	}
	if r.Holder != "" {
		next.term.namesake = names(next.snap.Annotations.Marker, r)
		q.term, q.wroteAt = next.term, sentAt
	}
	v := s.foreignEdit(next, false)
	s.w.tracef("  the store: %v writes %s", q, shown(v.snap))
	return core.OK, v
}

// letGo: a peer's release says nothing of those that it overwrote. Who has not seen
// their records cannot know of them. And if the holder is another peer, it says what that
// one's own release would say.
func (s *store) letGo(t *term, by *peer) {
	if t != nil && t.q != nil && t.q != by {
		t.wiped = true
	}
	for ; t != nil; t = t.prev {
		t.letGo = true
	}
}
