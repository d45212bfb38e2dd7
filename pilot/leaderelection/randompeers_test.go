package leaderelection

import (
	"context"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"incumbent.dev/incumbent/internal/testutil/locktest"
)

// clientGoClient bounds each request of a client-go candidate, as the Timeout of a rest.Config does. The elector of client-go does
// not bound requests while it campaigns.
type clientGoClient struct{ *locktest.Client }

func (c clientGoClient) Leases(namespace string) coordinationv1client.LeaseInterface {
	return boundLeases{c.Client.Leases(namespace)}
}

type boundLeases struct {
	coordinationv1client.LeaseInterface
}

func bound(ctx context.Context, call func(ctx context.Context) (*coordinationv1.Lease, error)) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, playRenew/2)
	defer cancel()
	return call(ctx)
}

func (l boundLeases) Get(ctx context.Context, name string, opts metav1.GetOptions) (*coordinationv1.Lease, error) {
	return bound(ctx, func(ctx context.Context) (*coordinationv1.Lease, error) { return l.LeaseInterface.Get(ctx, name, opts) })
}

func (l boundLeases) Create(ctx context.Context, lease *coordinationv1.Lease, opts metav1.CreateOptions) (*coordinationv1.Lease, error) {
	return bound(ctx, func(ctx context.Context) (*coordinationv1.Lease, error) {
		return l.LeaseInterface.Create(ctx, lease, opts)
	})
}

func (l boundLeases) Update(ctx context.Context, lease *coordinationv1.Lease, opts metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	return bound(ctx, func(ctx context.Context) (*coordinationv1.Lease, error) {
		return l.LeaseInterface.Update(ctx, lease, opts)
	})
}
