// Package locktest provides an in-memory API server for one lock object, faults for its clients, and the conformance
// suite for locks.
//
// A Store is one lock object with compare-and-swap, resourceVersions from one counter, and watches with history. Its
// locks are the real ConfigMapLock and LeaseLock. Only the API server is replaced, so records, annotations and
// errors are the same as in production.
//
//	store := locktest.NewStore(locktest.Lease)
//	a, b := store.Lock("pod-a", "stable"), store.Lock("pod-b", "canary")
//	a.SetFault(func(locktest.Verb) locktest.Fault { return locktest.Fault{Before: time.Second} }) // each request takes a second to arrive
//	a.FailNext(locktest.Update, locktest.Fault{Lose: locktest.TheReply, Hang: true})
//	store.Delete()                                     // as kubectl delete does
//
// A Store works in a testing/synctest bubble if it is created in the bubble. It takes the time only from package
// time and does not block while it holds a mutex. The goroutine of a watch ends with the watch.
package locktest
