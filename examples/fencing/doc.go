// Package fencing shows how a leader's writes are refused by systems outside Kubernetes,
// once another one leads.
//
// A run function finds its term in its context. The term's token is the resourceVersion
// of the term's first own write of the lock: it grows from term to term, as long as the
// API server's etcd has one history. The store keeps the largest token that it has seen
// and takes no write with a smaller one. So a leader that was stopped, or cut off, or whose
// write was held up on the way, changes nothing after its successor's first write,
// regardless of clocks.
//
//	term, _ := k8sleaderelection.TermFromContext(ctx)
//	err := store.Put(ctx, term.Token, "route", "canary")   // ErrStale: lead no more
//
// Comparing and writing have to be one step of the store: a transaction's condition, as
// here in SQL and in etcd. A token that is compared first and written later fences nothing. Until
// the successor's first write the store takes its predecessor's: a new leader that must
// not see them raises the token (Raise) before it reads.
//
// An etcd that was restored from a backup starts another history, with smaller numbers.
// After that, delete what the stores remember.
package fencing

import "errors"

// ErrStale is the error of a write with a token that is smaller than an earlier token.
var ErrStale = errors.New("a later term has written: this one is over")
