package fencing

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Etcd is keys in an etcd, fenced by a key with the largest token.
type Etcd struct {
	client clientv3.KV
	// fence is the token's key.
	fence string
}

// NewEtcd is for the writes of one election's leader.
func NewEtcd(client clientv3.KV, election string) *Etcd {
	return &Etcd{client: client, fence: "fence/" + election}
}

// Put writes a key, or fails with ErrStale.
func (e *Etcd) Put(ctx context.Context, token uint64, key, value string) error {
	return e.fenced(ctx, token, clientv3.OpPut(key, value))
}

// Raise refuses all earlier terms from now on, and writes nothing.
func (e *Etcd) Raise(ctx context.Context, token uint64) error { return e.fenced(ctx, token) }

// written is a token as etcd compares it: byte by byte, so that all have one length.
func written(token uint64) string { return fmt.Sprintf("%020d", token) }

// fenced does writes in the transaction that raises the token. etcd cannot ask for "none,
// or none larger" in one condition, so that the first one is a branch of its own.
func (e *Etcd) fenced(ctx context.Context, token uint64, writes ...clientv3.Op) error {
	if token == 0 || token+1 == 0 {
		return fmt.Errorf("the token %d is none: take it from TermFromContext", token)
	}
	write := append([]clientv3.Op{clientv3.OpPut(e.fence, written(token))}, writes...)
	unlessLater := clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.Value(e.fence), "<", written(token+1))}, write, nil)
	answer, err := e.client.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(e.fence), "=", 0)).
		Then(write...).
		Else(unlessLater).
		Commit()
	if err != nil {
		return fmt.Errorf("writing below %s: %w", e.fence, err)
	}
	if answer.Succeeded {
		return nil
	}
	if len(answer.Responses) != 1 || answer.Responses[0].GetResponseTxn() == nil {
		return errors.New("etcd answered a transaction with something else")
	}
	if !answer.Responses[0].GetResponseTxn().Succeeded {
		return fmt.Errorf("%s, token %d: %w", e.fence, token, ErrStale)
	}
	return nil
}

// Get reads a key; "" when there is none.
func (e *Etcd) Get(ctx context.Context, key string) (string, error) {
	answer, err := e.client.Get(ctx, key)
	if err != nil || len(answer.Kvs) == 0 {
		return "", err
	}
	return string(answer.Kvs[0].Value), nil
}
