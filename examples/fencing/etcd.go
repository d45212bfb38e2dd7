package fencing

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Etcd writes keys to etcd. Another key contains the largest token.
type Etcd struct {
	client clientv3.KV
	// fence is the key of the token.
	fence string
}

// NewEtcd returns a store for the leader of one election.
func NewEtcd(client clientv3.KV, election string) *Etcd {
	return &Etcd{client: client, fence: "fence/" + election}
}

// Put writes a key. The error wraps ErrStale if the token is outdated.
func (e *Etcd) Put(ctx context.Context, token uint64, key, value string) error {
	return e.fenced(ctx, token, clientv3.OpPut(key, value))
}

// Raise stores the token, so that writes of earlier terms are rejected. It writes no other key.
func (e *Etcd) Raise(ctx context.Context, token uint64) error { return e.fenced(ctx, token) }

// encode returns a token with a fixed length, because etcd compares values byte by byte.
func encode(token uint64) string { return fmt.Sprintf("%020d", token) }

// fenced executes writes in the transaction that raises the token. One condition of etcd cannot express "absent or
// not larger", so the case of an absent token is a separate branch.
func (e *Etcd) fenced(ctx context.Context, token uint64, writes ...clientv3.Op) error {
	if token == 0 || token+1 == 0 {
		return fmt.Errorf("token %d is invalid: use the token of TermFromContext", token)
	}
	write := append([]clientv3.Op{clientv3.OpPut(e.fence, encode(token))}, writes...)
	unlessLater := clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.Value(e.fence), "<", encode(token+1))}, write, nil)
	answer, err := e.client.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(e.fence), "=", 0)).
		Then(write...).
		Else(unlessLater).
		Commit()
	if err != nil {
		return fmt.Errorf("write with token %s: %w", e.fence, err)
	}
	if answer.Succeeded {
		return nil
	}
	if len(answer.Responses) != 1 || answer.Responses[0].GetResponseTxn() == nil {
		return errors.New("unexpected response of etcd to a transaction")
	}
	if !answer.Responses[0].GetResponseTxn().Succeeded {
		return fmt.Errorf("%s, token %d: %w", e.fence, token, ErrStale)
	}
	return nil
}

// Get returns the value of a key, or "" if it does not exist.
func (e *Etcd) Get(ctx context.Context, key string) (string, error) {
	answer, err := e.client.Get(ctx, key)
	if err != nil || len(answer.Kvs) == 0 {
		return "", err
	}
	return string(answer.Kvs[0].Value), nil
}
