// Package k8sleaderelection is leader election by a lock in Kubernetes, in place of client-go's leaderelection package:
// one LeaderElector is one candidate of one election. It can be used alone.
//
// What its words mean:
//
//   - The record in the lock object names the holder. A leader is a holder whose run functions may run, a follower any
//     other candidate. To campaign is to take the lock, or to ask for it, as soon as the rules allow.
//   - A candidate of ours is one of this package, in whichever program. A peer is a candidate of another implementation,
//     such as istiod or client-go's elector.
//   - A term is one unbroken time of leadership, and its token the version of the lock that its first own write has made.
//   - The cover is the time for which a leader may act without another write: RenewDeadline from when its last
//     acknowledged one was sent. The Gate admits writes of the work until its end.
//   - The key is the candidate's rank, written beside its name: its revision, with "^" in front when it is remote, which
//     is to say that it runs outside the cluster of the lock. The default revision goes first; see Outranks.
//   - To preempt is to overwrite a live holder of lower rank, to hand over is to write a challenger in that has asked for
//     the lock. One that somebody else has written in is nominated: it acts only on a write of its own.
//   - Notes are annotations of this project on the lock object, beside the record. By its marker, one of them, a leader
//     says that it acts. Peers write none.
//   - A hold is a note by which an operator keeps the holder there (package orders): while it counts, no candidate asks or
//     preempts by rank.
//   - An unfit process should not lead if another can (LeaderElectionConfig.Fit).
//   - To settle is to hold the lock without acting, while an earlier holder may still act.
//   - To drain is to wait until run functions that were told to stop have returned.
//
// Run functions start only on the acknowledgement of an own write, and their contexts end with the cover at the latest.
// A release goes out after they have returned, and clears no other candidate's term. A follower is woken by the watch and
// by the exact expiry of the lease. It polls while it has no watch; beside one, when the watch has shown nothing of a held
// lock for two to three RetryPeriods, and while a request of its own stands. docs/handover.md shows what is written, and
// docs/safety.md what is not promised.
//
//	following ─▶ settling ─▶ leading ─▶ draining ─▶ releasing ─▶ following … done
//
// docs/phases.md shows each way from one phase to another. The decisions are a pure function of package internal/core;
// this package is the loop around it, on the goroutine that called Run or Campaign. Watch events, replies, run functions and
// a timer give it inputs. In each pass it stamps the time, steps the core, and makes true what the core wants: the
// gate first, then the run functions, then at most one API call, then the timer. It never waits for the network.
package k8sleaderelection
