package locktest

import "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"

// Pair is the two objects of a MultiLock, in one etcd: a ConfigMap and a Lease.
type Pair struct{ Primary, Secondary *Store }

// NewPair makes two empty stores. Inside a bubble, make them there.
func NewPair() Pair {
	primary := NewStore(ConfigMap)
	return Pair{primary, primary.Beside(Lease)}
}

// PairLock is one candidate's MultiLock on a Pair, with its ways there.
type PairLock struct {
	*k8sresourcelock.MultiLock
	Primary, Secondary *Lock
}

// Lock makes a candidate's MultiLock.
func (p Pair) Lock(identity, key string) *PairLock {
	l := &PairLock{Primary: p.Primary.Lock(identity, key), Secondary: p.Secondary.Lock(identity, key)}
	l.MultiLock = &k8sresourcelock.MultiLock{Primary: l.Primary.Locker, Secondary: l.Secondary.Locker}
	return l
}

// Delete removes both objects.
func (p Pair) Delete() {
	p.Primary.Delete()
	p.Secondary.Delete()
}

// Harness gives the two objects to Conformance as one.
func (p Pair) Harness() Harness {
	return Harness{
		Lock: func(identity, key string) Subject { return p.Lock(identity, key) },
		Mutate: func(change func(obj Object)) {
			p.Primary.Mutate(change)
			p.Secondary.Mutate(change)
		},
		Delete: p.Delete,
		Neighbour: func() {
			p.Primary.Neighbour()
			p.Secondary.Neighbour()
		},
		Merged: true,
	}
}

// objects are those that a snapshot was made of.
func objects(snap k8sresourcelock.Snapshot) []Object {
	pair, ok := snap.Object.(*k8sresourcelock.Pair)
	if !ok {
		return []Object{snap.Object.(Object)}
	}
	return append(objects(pair.Primary), objects(pair.Secondary)...)
}
