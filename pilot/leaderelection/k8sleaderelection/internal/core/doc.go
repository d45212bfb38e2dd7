// Package core decides what a candidate of an election does next. It is pure:
// Step takes a state and one input and gives back the next state and the whole of
// what should now be true. It reads no clock, starts nothing and calls nobody, so
// the simulation drives exactly what production runs.
//
// A step has three parts:
//
//	absorb   learn from the input; choose nothing
//	advance  make the phase changes that follow from what is now known
//	decide   say what should be done; total, and it reads only its arguments
//
// docs/phases.md draws the phases, and why each is entered. TestDecideEnumerated derives the drawing.
//
// A challenger that outranks a leader of ours asks it (request.go); the leader accepts,
// drains, and in place of a release writes the challenger in, which acts on its own
// first write. From Releasing it is a release, or that handover.
//
// A holder's marker says that it can be asked, but a marker may be another's: a peer that
// starts under the identity of one of ours renews the same term, and leaves our
// annotations as they are. A leader of ours that renews also answers: in Leading and in
// Draining it accepts or refuses what it was asked, at the latest after its Patience, and one
// that has accepted stops renewing at its StopLimit. A holder that has renewed for a lease beside
// requests that stood, without an answer (and for that StopLimit, once a request is accepted), is
// therefore taken for a peer: who outranks it preempts it and settles, until its lease and
// PeerGrace have run out. Should that be a mistake, two of ours still do not act at once; a
// term has ended early. See Config.ignoresRequests.
//
// Invariants, which the simulation checks at each step:
//
//   - Work is wanted only in Leading, and Leading is entered only on the
//     acknowledgement of an own write that carries this term's marker.
//   - The gate ends with the cover: RenewDeadline after the last acknowledged own
//     write was sent, whenever its reply came.
//   - What earlier holders may still do is bounded by the own clock and by what was
//     seen, never by a time that somebody wrote into the record.
//   - No new term starts before the functions of the former one have returned.
package core
