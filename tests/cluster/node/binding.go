package node

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// bind binds the Pod to this node unless it is. It reports false when the Pod is not
// ours to run.
func (w *worker) bind() bool {
	if w.latest.Load().Spec.NodeName != "" {
		return true
	}
	return retry(w.wanted, w.complain("binding"), func(ctx context.Context) error {
		binding := &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: w.name, Namespace: w.namespace, UID: w.uid},
			Target:     corev1.ObjectReference{Kind: "Node", Name: w.node.options.Name},
		}
		err := w.node.client.CoreV1().Pods(w.namespace).Bind(ctx, binding, metav1.CreateOptions{})
		switch {
		case apierrors.IsConflict(err):
			return w.checkBound(ctx)
		case apierrors.IsNotFound(err):
			return fmt.Errorf("%w (%w)", err, errFinal)
		}
		return err
	})
}

// checkBound looks whether an earlier try, whose answer was lost, has bound the Pod.
func (w *worker) checkBound(ctx context.Context) error {
	pod, err := w.node.client.CoreV1().Pods(w.namespace).Get(ctx, w.name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%w (%w)", err, errFinal)
	case err != nil:
		return err
	case pod.UID != w.uid || pod.Spec.NodeName != w.node.options.Name:
		return fmt.Errorf("the Pod went to node %q (%w)", pod.Spec.NodeName, errFinal)
	}
	return nil
}

// deleteObject removes the object of a Pod whose process has ended, which is what the
// API server waits for.
func (w *worker) deleteObject() {
	now := int64(0)
	options := metav1.DeleteOptions{GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &w.uid}}
	retry(w.exists, w.complain("deleting"), func(ctx context.Context) error {
		err := w.node.client.CoreV1().Pods(w.namespace).Delete(ctx, w.name, options)
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return nil // it, or this one of its name, is gone
		}
		return err
	})
}

func (w *worker) complain(doing string) func(error) {
	return func(err error) {
		w.logger.Warn("a Pod waits for the API server", "doing", doing, "err", err)
	}
}
