// Package simulation plays elections with simulated time and checks the promises of docs/safety.md. It calls
// the same core.Step as production. Everything around Step is a model: machines with their own clocks, a
// store with compare-and-swap, slow and lost calls, late and lost watch events, pauses, crashes, and users
// who edit the lock.
//
// A run depends only on its seed. After a time with faults comes a calm without faults, and the
// election has to settle.
//
// Modes list the possible faults and participants. Some modes add peers: simple models of the electors of
// istiod and client-go (peer.go), which poll, overwrite, continue to act after they were overwritten, and
// release before their run functions have returned. Other modes add ambushes (ambush.go), operator commands
// (operator.go), unfit processes, coordinators (coordinator.go), a user who writes annotations (forger.go), witnesses that
// release the lock of an ended process (releaser.go), or nodes whose
// writes as holder are rejected.
//
// In the mode strangers, a user writes records with any lease, and the leases of peers are 5 s, 2 minutes or an hour. A user replaces such
// a record after its holder has ended. The time without a leader afterwards has the bound of other modes plus PeerGrace, and a released
// lock is acquired immediately.
//
// In the slow modes (slow.go), the API server answers late and connections die. The model sends a call again over another
// connection, as the elector does. In the steady ones no leader loses its term.
//
// In the mode herd, some forty candidates react to each event. A check counts their rejected writes (checkherd.go).
//
// In modes with held nodes, a process campaigns for a second lock inside the terms of the first one (held.go), next to processes that use
// only the first lock or only the second.
//
// The checks read only the truth of the model: the running functions, the stored writes, and the
// snapshots shown to a process. So they do not depend on the state of the core. Each check is named by a promise.
// Planted bugs (bugs.go, handoverbugs.go) wrap Step. TestPlantedBugs requires that each bug is found by its
// check.
//
// Explore (explore.go) plays every schedule of a small world instead of random ones, with the same store, processes, checks, bugs and
// trace. What happens next is a choice (choices.go): the store serves a call, an answer or a watch event arrives, a timer fires, run
// functions return, time passes by a second, or a fault occurs. Its bounds:
//
//   - What can arrive arrives before time passes, unless a fault makes it late. A watch shows the newest version only.
//   - Processes start again or continue after a pause, and witnesses act, only when nothing else can happen before time passes.
//   - A watch event with a version that the process knows arrives immediately, unless a call is in flight.
//   - A timer within a second fires at its end. So a leader that pauses after two conflicts may lose its term. Jitter is zero, and candidates take no turns (core.Herd).
//   - All clocks are equal. A stranger writes 16 forms of annotations, a user 3 edits, and an operator 4 commands.
//   - Processes with a second lock can take part, next to one with only the first or only the second lock. Then no stranger writes
//     annotations, no operator acts, and no process is unfit.
//   - A coordinator can take part. It sees a change and writes immediately, unless a fault makes it restart, pause, want
//     another leader, or treat a live holder as expired. One peer can take part, an istiod. The store answers its calls immediately, unless a fault loses
//     the request or the answer. Next to a peer, users do not edit the lock and no stranger writes annotations.
//   - The checks Effort, Reports and Changes count events over time, so only random runs have them. Prompt and Quiet check the calm
//     continuations from a share of the states.
//
// Of the orders of moves of different nodes that lead to the same world, one is played (reduce.go). TestExplore_Reduced compares that
// with all orders.
//
// Worlds are compared by a fingerprint (graph.go): times relative to now, transitions relative to those in the lock, times in records and
// versions among themselves, and processes of one revision exchanged. What neither Step nor a check reads any more is left out
// (canonical.go); TestExplore_EqualFutures checks that.
// Times farther from now than two leases are equal. So a world without further faults returns to a known state, and an
// exploration ends without a bound in time.
//
//	SIM_SEEDS=20000 go test ./pilot/leaderelection/k8sleaderelection/internal/simulation
//	SIM_FIRST=20000 begins with that seed
//	SIM_SEED=1234   go test -v -run TestSimulation ...    plays one seed and prints every step
//	EXPLORE_STATES=1000000 go test -v -run TestExplore ...  explores up to that number of states with each set of faults
//	SIM_MODE=mixed  plays only that mode
//	SIM_SEED=12 SIM_BUG=half-lease go test -v -run TestPlantedBugs ...
//
// The checks exclude cases that the promises do not cover:
//
//   - The run functions of a paused process may outlive validity and drain limit. The gate may not.
//   - A candidate cannot detect a term if the record was removed before the candidate saw this term or a
//     later one. If it leads, the other candidates rely on its marker.
//   - A record that was emptied by hand, or overwritten by hand and released by a peer, and has no marker looks like a drained release. The marker may have been removed later.
//   - A process that ended before another one of its name acquired the lock, for candidates that saw that.
//   - Two live processes with one identity only have to step down, and must not alternate.
//
// For peers, one-at-a-time is checked with a PeerGrace that covers the longest time that they can act
// after their last write (timing.grace). Excluded are:
//
//   - a peer that released the lock before its run functions returned
//   - a peer that overwrites an incumbent leader, until that leader has seen it and drained
//   - a peer whose record another peer cleared, as the release of client-go can do
//   - peers overwritten by peers that then released, for a candidate that saw no record of theirs
//   - peers overwritten by a user who then emptied the record, for such a candidate if the only marker that is left is its own
//   - paused peers, which have no gate
//   - peers with a stopped wall clock, whose renewals change nothing
//   - an istiod with a shorter lease than the leader, because it judges the leader by its own lease
package simulation
