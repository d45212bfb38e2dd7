// Package core decides the next step of a candidate in an election. It is pure: Step takes a state and one
// input and returns the next state and the complete desired state (Action). It reads no clock and starts
// nothing, so the simulation runs the same code as production.
//
// A step has three parts:
//
//   - absorb updates the knowledge from the input.
//   - advance makes the phase changes that follow.
//   - decide returns the action. It reads only its arguments.
//
// A State has more than a kilobyte. So a function that only reads a State gets a pointer. A function that returns a State
// changes its own copy.
//
// Each part calls the topics, in the order that step.go states. The file of a topic has a part of State, what the
// topic learns from an input, what it decides, and tests:
//
//	sight         the lock as this candidate sees it
//	own           recognizes own records
//	claim         when this candidate may acquire the lock, and when it may act
//	handover      requests of challengers and the answers of leaders
//	hold          commands of an operator to keep the holder
//	coordination  the coordinator of a coordinated election
//	term          the phases of a term, from the acquisition to the release
//	call          the call in flight, and until when its answer is of use
//	effort        the pauses after failed calls
//	herd          the waits before a write that many candidates send
//
// The state diagram in docs shows the phases and the reasons for each transition. TestDecideEnumerated
// generates it.
//
// A challenger that outranks an incumbent leader sends it a handover request. The leader accepts,
// drains, and then writes the challenger as holder instead of releasing. The challenger acts only after its
// own first write.
//
// A marker may be stale: another elector that starts with the identity of an incumbent leader renews the same
// term and keeps the annotations. An incumbent leader that renews also answers requests. So a holder that
// renews for a lease without an answer counts as another elector. The challenger preempts it and settles. See
// Config.ignoresRequests.
//
// A user with the verb patch may write the annotations of a lock. So an annotation that can end a term or block
// a candidate has an owner, a term and a bound:
//
//	annotation          owner        counts for                  bound
//	leader (other term) leader       the next acquisition        settles a lease
//	leader (own term)   leader       a record with its lease     a next process reclaims only after a term that acted
//	leader (unfit)      leader       requests to the leader      the leader corrects it and judges by itself
//	leader (uncoordinated)  leader   the default revision        the challenger requests by rank; a leader that has seen a coordinator refuses
//	handover-request    challenger   the addressed term          ends one term; refused for 10 s to 5 min after a failed nominee
//	step-down           operator     the addressed term          its cool-down ends after the lock was free for a lease
//	nominated           leader       its record, until a change  a RetryPeriod
//	hold                operator     the term of the hold        7 days; it blocks rank only
//	strategy            coordinator  a known coordinator         a RetryPeriod of a free lock
//	preferred-holder    coordinator  the term in which it begins ends one term, or delays a free lock by a lease; removed after 5 s
//
// In a coordinated election, candidates wait three leases for a coordinator that does not act. Then the election runs by rank until a
// coordinator writes: see Coordination.Alone.
//
// The simulation checks these invariants at each step:
//
//   - Run functions run only in Leading. Leading begins only after the acknowledgement of an own write
//     with the marker of this term, and with at least half of the validity left.
//   - The gate closes RenewDeadline after the last acknowledged own write was sent.
//   - The wait for earlier holders depends on the own clock and on observations, never on a time in a
//     record.
//   - A new term begins only after the run functions of the previous term have returned.
package core
