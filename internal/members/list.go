package members

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// List reads the members of a namespace in one request; "" means all namespaces. It returns the valid members even if the error is not nil.
// The error names each invalid member.
func List(ctx context.Context, client kubernetes.Interface, namespace string) ([]Member, error) {
	list, err := client.CoordinationV1().Leases(namespace).List(ctx, metav1.ListOptions{LabelSelector: Selector})
	if err != nil {
		return nil, fmt.Errorf("list members: %w", err)
	}
	var all []Member
	var errs []error
	for i := range list.Items {
		m, err := Parse(&list.Items[i])
		if err != nil {
			errs = append(errs, err)
			continue
		}
		all = append(all, m)
	}
	return all, errors.Join(errs...)
}
