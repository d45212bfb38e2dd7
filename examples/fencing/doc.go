// Package fencing shows how a system outside Kubernetes rejects the writes of a former leader.
//
// A run function reads its term from its context. The token of the term is the resourceVersion of the leader's first
// write to the lock. It grows from term to term within one etcd history. The store keeps the largest token that it has
// seen, and rejects writes with a smaller one. So a leader that was stopped, disconnected or delayed cannot write
// after the first write of the next leader. This does not depend on clocks.
//
//	term, _ := k8sleaderelection.TermFromContext(ctx)
//	err := store.Put(ctx, term.Token, "route", "canary")   // ErrStale: a later leader has written
//
// The store must compare the token and write in one transaction, as this package does with SQL and etcd. If it compares
// first and writes later, a write of a former leader can still be stored. Until the first write of a new leader,
// the store accepts writes of the previous one. A new leader that must not see them calls Raise before it reads.
//
// After etcd was restored from a backup, tokens can be smaller than before. Delete the stored tokens then.
package fencing

import "errors"

// ErrStale is the error of a write with a token that is smaller than an earlier token.
var ErrStale = errors.New("a later term has written")
