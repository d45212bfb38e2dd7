package leaderelection

import (
	"context"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"incumbent.dev/incumbent/internal/testutil/locktest"
)

// clientGoClient bounds each request of a client-go candidate, as its users do by the rest.Config's
// Timeout: while it wants the lock the elector itself bounds none, and with a reply that
// never comes it would wait for ever. This is NewFromKubeconfig's timeout.
type clientGoClient struct{ *locktest.Client }

const clientGoTimeout = playRenew / 2

func (c clientGoClient) Leases(namespace string) coordinationv1client.LeaseInterface {
	return boundLeases{c.Client.Leases(namespace)}
}

type boundLeases struct {
	coordinationv1client.LeaseInterface
}

func (l boundLeases) Get(ctx context.Context, name string, opts metav1.GetOptions) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, clientGoTimeout)
	defer cancel()
	return l.LeaseInterface.Get(ctx, name, opts)
}

func (l boundLeases) Create(ctx context.Context, lease *coordinationv1.Lease, opts metav1.CreateOptions) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, clientGoTimeout)
	defer cancel()
	return l.LeaseInterface.Create(ctx, lease, opts)
}

func (l boundLeases) Update(ctx context.Context, lease *coordinationv1.Lease, opts metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, clientGoTimeout)
	defer cancel()
	return l.LeaseInterface.Update(ctx, lease, opts)
}
