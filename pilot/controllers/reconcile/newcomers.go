package reconcile

import (
	"context"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// Newcomers confirms the revision of new objects. An object can arrive before a change of the label of its
// namespace that was made earlier, because they have different watches.
type Newcomers struct {
	client kubernetes.Interface

	mu    sync.Mutex
	known map[cache.ObjectName]types.UID
}

// NewNewcomers returns a Newcomers that knows no objects.
func NewNewcomers(client kubernetes.Interface) *Newcomers {
	return &Newcomers{client: client, known: map[cache.ObjectName]types.UID{}}
}

// Know adds an object that is old enough to need no confirmation.
func (n *Newcomers) Know(o metav1.Object) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.known[cache.MetaObjectToName(o)] = o.GetUID()
}

// Forget removes an object that does not exist.
func (n *Newcomers) Forget(namespace, name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.known, cache.NewObjectName(namespace, name))
}

func (n *Newcomers) knows(o metav1.Object) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	uid, known := n.known[cache.MetaObjectToName(o)]
	return known && uid == o.GetUID()
}

// Confirm reports whether the cached namespace of an object has the same revision as in the API server. It
// reads the namespace for a new object without a revision label, and only until it returned true.
func (n *Newcomers) Confirm(ctx context.Context, o metav1.Object, cached *corev1.Namespace) (bool, error) {
	if _, own := o.GetLabels()[revisionLabel]; own || n.knows(o) {
		return true, nil
	}
	if cached == nil { // deleted by now
		return false, nil
	}
	// The controllers may list namespaces, but not get them.
	list, err := n.client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + o.GetNamespace()})
	if err != nil {
		return false, fmt.Errorf("read the revision of namespace %s: %w", o.GetNamespace(), err)
	}
	current := slices.ContainsFunc(list.Items, func(space corev1.Namespace) bool {
		return space.Name == o.GetNamespace() && space.Labels[revisionLabel] == cached.Labels[revisionLabel]
	})
	if current {
		n.Know(o)
	}
	return current, nil
}
