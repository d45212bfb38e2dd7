package electors

import (
	"context"

	"k8s.io/client-go/kubernetes"

	"incumbent.dev/incumbent/internal/fence"
	"incumbent.dev/incumbent/internal/fence/install"
	"incumbent.dev/incumbent/internal/record"
)

// Fence installs a fence for the candidates of an account, as the chart does. remove removes it.
func Fence(ctx context.Context, admin kubernetes.Interface, namespace, election, account string, lock Lock, guard fence.Guard) (remove func(context.Context) error, err error) {
	guard.Namespaces = []string{namespace}
	set, err := fence.Render(namespace, fence.Declaration{
		Election: election, Namespace: namespace, Lock: map[Lock]record.Kind{ConfigMap: record.ConfigMap, Lease: record.Lease}[lock],
		ServiceAccounts: []string{namespace + "/" + account}, Guards: []fence.Guard{guard},
	})
	if err != nil {
		return nil, err
	}
	_, err = install.Apply(ctx, admin, set)
	return func(ctx context.Context) error {
		_, err := install.Remove(ctx, admin, set.Name)
		return err
	}, err
}
