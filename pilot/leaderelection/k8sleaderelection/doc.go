// Package k8sleaderelection is the elector: one candidate's loop around the pure
// core, its terms, its observation of the lock, its health and its metrics hooks. It
// can be used alone, in place of client-go's leaderelection package.
//
// The goroutine that called Run or Campaign owns the candidate's state. Watch events, replies,
// run functions and a timer give it inputs. In each pass it stamps the time, steps the core, and
// makes true what the core wants: the gate first, then the run functions, then at most one API
// call, then the timer. It never waits for the network.
//
// What holds (DESIGN.md, promises): run functions start only on the acknowledgement
// of an own write; their contexts end with the cover at the latest, which counts
// from when that write was sent; a release goes out after they have returned and
// clears nobody else's term; a follower is woken by the watch and by the exact expiry
// of the lease, and polls only while it has no watch. A challenger of higher rank asks
// the leader, which drains and writes it in; docs/handover.md shows the protocol.
//
//	following ─▶ settling ─▶ leading ─▶ draining ─▶ releasing ─▶ following … done
package k8sleaderelection
