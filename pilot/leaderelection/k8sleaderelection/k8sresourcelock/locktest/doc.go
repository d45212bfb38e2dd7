// Package locktest provides a lock in memory that behaves as one on an API server
// does, ways to disturb it, and the conformance suite that all locks pass.
//
// A Store is one lock object with true compare-and-swap, resourceVersions from one
// counter, and watches with history. Its locks are the real ConfigMapLock and
// LeaseLock: only the API server behind them is replaced, so a test sees the
// same records, notes and errors as production.
//
//	store := locktest.NewStore(locktest.Lease)
//	a, b := store.Lock("pod-a", "stable"), store.Lock("pod-b", "canary")
//	a.SetLatency(time.Second, 0)                       // each request travels for a second
//	a.FailNext(locktest.Update, locktest.Fault{Lose: locktest.TheReply, Hang: true})
//	store.Delete()                                     // as kubectl delete would
//
// Everything works inside a testing/synctest bubble, provided that the store is made
// inside it: time comes from the time package alone, and nothing blocks while it holds
// a mutex. A watch's goroutine ends with the watch.
package locktest
