package locktest

import "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"

// Pair contains the ConfigMap and the Lease of a MultiLock, in the same etcd.
type Pair struct{ Primary, Secondary *Store }

// NewPair returns two empty stores. Call it in the bubble that uses them.
func NewPair() Pair {
	primary := NewStore(ConfigMap)
	return Pair{primary, primary.InSameEtcd(Lease)}
}

// PairLock is the MultiLock of one candidate on a Pair, with its clients.
type PairLock struct {
	*k8sresourcelock.MultiLock
	Primary, Secondary *Lock
}

// Lock returns the MultiLock of a new candidate.
func (p Pair) Lock(identity, key string) *PairLock {
	l := &PairLock{Primary: p.Primary.Lock(identity, key), Secondary: p.Secondary.Lock(identity, key)}
	l.MultiLock = &k8sresourcelock.MultiLock{Primary: l.Primary.Locker, Secondary: l.Secondary.Locker}
	return l
}

// Harness returns a Harness for both objects.
func (p Pair) Harness() Harness { return Both(p.Primary.Harness(), p.Secondary.Harness()) }

// Both returns a Harness for the MultiLock of two objects.
func Both(primary, secondary Harness) Harness {
	return Harness{
		Lock: func(identity, key string) Subject {
			return &k8sresourcelock.MultiLock{Primary: primary.Lock(identity, key), Secondary: secondary.Lock(identity, key)}
		},
		Mutate: func(change func(obj Object)) {
			primary.Mutate(change)
			secondary.Mutate(change)
		},
		Delete: func() {
			primary.Delete()
			secondary.Delete()
		},
		WriteOther: func() {
			primary.WriteOther()
			secondary.WriteOther()
		},
		Owner:      primary.Owner,
		TwoObjects: true,
	}
}

// objects returns the objects of a snapshot.
func objects(snap k8sresourcelock.Snapshot) []Object {
	pair, ok := snap.Object.(*k8sresourcelock.Pair)
	if !ok {
		return []Object{snap.Object.(Object)}
	}
	return append(objects(pair.Primary), objects(pair.Secondary)...)
}
