// Package simulation plays elections, many times faster than real, and checks what
// they promise. It drives the very core.Step that production runs; everything around
// it is a model: true time, machines with clocks of their own, a store with real
// compare-and-swap, slow and lossy calls, watches that are late, reordered or down,
// pauses, crashes, and people who edit the lock by hand.
//
// A run is a function of its seed: the same seed plays the same run. After a stretch
// of faults comes a calm, in which nothing goes wrong any more and the election has
// to come to rest.
//
// The modes (Modes) say what can go wrong and who takes part. Beside our candidates run,
// in some of them, peers: two deliberately dumb models of istiod's and client-go's
// electors (peer.go), which poll, overwrite, work on after they were overwritten, release
// before their work has stopped, and carry our annotations along unread. Ambushes
// (ambush.go) let something go wrong right after a step of a handover. An operator gives
// orders (operator.go), and processes become unfit.
//
// The checks read only the model's ground truth (who really runs, what was really
// written, what the store really answered, what a process was shown and told), so that a
// mistake in the core's own bookkeeping cannot hide itself. Each is named by what it
// belongs to in a Check constant. A check that cannot fail proves nothing: AllBugs lists
// defects that are planted by wrapping Step, and the tests demand that each is caught by
// its check.
//
// The tests play 2,000 seeds, spread over the modes:
//
//	SIM_SEEDS=20000 go test ./pilot/leaderelection/k8sleaderelection/internal/simulation
//	SIM_FIRST=20000 with it: begins with that seed
//	SIM_SEED=1234   go test -v -run TestSimulation ...    plays one seed and prints every step
//	SIM_MODE=mixed  with either of them: plays that mode alone
//	SIM_SEED=12 SIM_BUG=half-lease go test -v -run TestPlantedBugs ...
//
// What lies outside the promises lies outside the checks, and only that:
//
//   - Functions of a process that was paused may outlive its cover and drain limit.
//     Their gate may not.
//   - A candidate that saw neither a term's record, nor any that came after it, before
//     somebody removed the record, cannot know of it, and does not wait for it.
//   - A record that somebody emptied by hand while it carried no marker says exactly what
//     a drained release says.
//   - A restore from a backup may undo the very write that a leader acts by. A candidate
//     that had seen nothing of what was undone cannot tell that anything happened.
//     Nor can it when a leader whose clock stands still writes what was undone again,
//     byte for byte; such a run ends there.
//   - A store restored from a backup begins a new history. Tokens grow within one.
//     Versions of different histories are never equal here: a request that was
//     delayed across a restore, and then meets the very version it was meant for with
//     another content, would defeat compare-and-swap itself.
//   - Two live processes of one name: identities have to be unique. Towards each other,
//     and while the one that lost the lock to its twin drains, nothing is promised but
//     that both step down when they see it, and that they do not take it back and forth.
//
// Towards peers one-at-a-time is checked with a PeerGrace that covers the longest that
// they can work on: RetryPeriod + 2×RenewDeadline + the time their functions take to
// return + a second, less the lease. Ours must not start while theirs run, and they
// must find nobody of ours acting in a lock that is free or has run out. Outside of it:
//
//   - A peer that has released the lock itself, before its functions returned.
//   - A peer that overwrites ours: both run until ours has seen it and has drained.
//   - A peer whose record another peer emptied: client-go's release can clear what it did
//     not write, and then says what the holder's own release would say.
//   - Peers overwritten by peers that then released, towards one that has seen no record
//     of theirs.
//   - Peers that were paused: they have no gate.
//   - Their clocks run and tick: a peer whose wall clock stands still writes no renewal
//     that anybody could see.
package simulation
