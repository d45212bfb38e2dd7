// Package reconcile contains the common parts of the controllers: caches, a queue of keys with
// back-off, and protection against repeated writes from a stale cache.
//
// A controller declares its kinds with Watch, and computes the desired object from the caches in a pure function. The example of
// New shows both.
//
// Warm fills the caches, which stay until Close. Run reconciles until its context is done and
// returns after all writes have ended. Both can be called again. All writes use Client, so that Run
// can wait for them.
//
// A key is reconciled when Run starts and when a kept field of an object changes. Namespaces take
// turns, so that a namespace with many keys does not delay the others. Fields that Keep
// drops use no memory and do not bypass the back-off of a failing key. Failures are logged once per
// reason. If another writer keeps reverting an object, the controller repairs it less and less
// often. If the API server does not serve a kind, the controller logs this once and waits for the
// CustomResourceDefinition.
package reconcile
