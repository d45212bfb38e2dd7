package node

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// bind binds the Pod to this node. It returns false if another node runs the Pod.
func (w *worker) bind() bool {
	return retry(w.wanted, w.logger, "bind Pod", func(ctx context.Context) error {
		switch name := w.latest.Load().Spec.NodeName; name {
		case "":
		case w.node.options.Name:
			return nil
		default:
			return fmt.Errorf("Pod is bound to node %q (%w)", name, errFinal)
		}
		binding := &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: w.name, Namespace: w.namespace, UID: w.uid},
			Target:     corev1.ObjectReference{Kind: "Node", Name: w.node.options.Name},
		}
		err := w.node.client.CoreV1().Pods(w.namespace).Bind(ctx, binding, metav1.CreateOptions{})
		if apierrors.IsNotFound(err) {
			return fmt.Errorf("%w (%w)", err, errFinal)
		}
		return err // after a conflict, the watch shows the node of the Pod
	})
}

// deleteObject deletes the object of a Pod whose process has ended.
func (w *worker) deleteObject() {
	now := int64(0)
	options := metav1.DeleteOptions{GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &w.uid}}
	retry(w.exists, w.logger, "delete Pod", func(ctx context.Context) error {
		err := w.node.client.CoreV1().Pods(w.namespace).Delete(ctx, w.name, options)
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return nil // the Pod is gone, or another Pod has its name
		}
		return err
	})
}
