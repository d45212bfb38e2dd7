// Package locktest provides one lock object on the in-memory API server of package apiserver, and the conformance suite for locks.
//
// The locks of a Store are the real ConfigMapLock and LeaseLock. Only the API server is replaced, so records, annotations and errors are
// the same as in production.
//
//	store := locktest.NewStore(locktest.Lease)
//	a, b := store.Lock("pod-a", "stable"), store.Lock("pod-b", "canary")
//	a.On(func(apiserver.Request) apiserver.Fault { return apiserver.Fault{Before: time.Second} }) // each request takes a second to arrive
//	a.FailNext(locktest.Update, apiserver.Fault{Lose: apiserver.TheReply, Hang: true})
//	store.Delete()                                     // as kubectl delete does
//
// A Store works in a testing/synctest bubble if it is created in the bubble.
package locktest
