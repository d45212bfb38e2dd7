package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	typed "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"incumbent.dev/incumbent/tests/peers/electors"
)

// inFlight is the number of concurrent handovers.
const inFlight = 8

// limit measures the lower bound of a handover without an elector: a guarded write, its watch event at another client,
// and a guarded write of that client.
func (l *lab) limit(namespace, name string, until time.Time, row *row) error {
	from, err := l.leases(namespace)
	if err != nil {
		return err
	}
	to, err := l.leases(namespace)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(l.ctx)
	defer cancel()
	lease, err := from.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	events, err := to.Watch(ctx, metav1.ListOptions{
		ResourceVersion: lease.ResourceVersion, FieldSelector: fields.OneTermEqualSelector("metadata.name", name).String(),
	})
	if err != nil {
		return err
	}
	defer events.Stop()
	for n := int32(1); time.Now().Before(until); n += 2 {
		if err := l.pause(200*time.Millisecond + rand.N(800*time.Millisecond)); err != nil {
			return err
		}
		began := time.Now()
		if _, err := claim(ctx, from, lease, "a", n); err != nil {
			return err
		}
		seen, err := next(events)
		if err != nil {
			return err
		}
		if lease, err = claim(ctx, to, seen, "b", n+1); err != nil {
			return err
		}
		row.time(time.Since(began))
		if _, err := next(events); err != nil {
			return err
		}
	}
	return nil
}

// leases returns a client with its own connection.
func (l *lab) leases(namespace string) (typed.LeaseInterface, error) {
	client, err := kubernetes.NewForConfig(electors.Protobuf(electors.Separate(l.cluster.Admin())))
	if err != nil {
		return nil, err
	}
	return client.CoordinationV1().Leases(namespace), nil
}

// claim does the write of an elector, guarded by resourceVersion.
func claim(ctx context.Context, leases typed.LeaseInterface, read *coordinationv1.Lease, holder string, n int32) (*coordinationv1.Lease, error) {
	lease := read.DeepCopy()
	seconds, now := int32(30), metav1.NowMicro()
	lease.Spec = coordinationv1.LeaseSpec{
		HolderIdentity: &holder, LeaseDurationSeconds: &seconds, AcquireTime: &now, RenewTime: &now, LeaseTransitions: &n,
	}
	return leases.Update(ctx, lease, metav1.UpdateOptions{})
}

func next(w watch.Interface) (*coordinationv1.Lease, error) {
	event, ok := <-w.ResultChan()
	if lease, is := event.Object.(*coordinationv1.Lease); ok && is {
		return lease, nil
	}
	return nil, fmt.Errorf("watch of limit ended: %v", event)
}
