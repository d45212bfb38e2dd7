package namespace

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"incumbent.dev/incumbent/pilot/controllers/reconcile"
)

// target is the ConfigMap of a namespace.
type target = reconcile.Target[string, *corev1.ConfigMap]

// reconcile creates or repairs the ConfigMap of one namespace.
func (c *Controller) reconcile(ctx context.Context, name string) error {
	content := c.bundle.current()
	namespace := c.namespaces.Get("", name)
	if content == "" || c.excluded.Has(name) || !active(namespace) || !c.selected(namespace) {
		return nil
	}
	target := c.configMaps.At(name, reconcile.Ref{Namespace: name, Name: ConfigMapName, In: namespace.UID})
	have, known := target.Latest()
	switch {
	case !known:
		return nil
	case have == nil:
		return c.create(ctx, target, name, content)
	case have.DeletionTimestamp == nil && have.Data[BundleKey] != content:
		return c.patch(ctx, target, have, content)
	}
	return nil
}

// selected reports whether a namespace matches a discovery selector. A namespace that stops matching keeps its ConfigMap, which is not
// updated any more, as with istiod.
func (c *Controller) selected(namespace *corev1.Namespace) bool {
	return len(c.selectors) == 0 || slices.ContainsFunc(c.selectors, func(s labels.Selector) bool { return s.Matches(labels.Set(namespace.Labels)) })
}

// active reports whether a namespace exists and is not terminating.
func active(namespace *corev1.Namespace) bool {
	return namespace != nil && namespace.DeletionTimestamp == nil && namespace.Status.Phase != corev1.NamespaceTerminating
}

func (c *Controller) create(ctx context.Context, target target, namespace, content string) error {
	wanted := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: ConfigMapName, Namespace: namespace, Labels: map[string]string{configLabel: "true"}},
		Data:       map[string]string{BundleKey: content},
	}
	created, err := c.Client().Kube().CoreV1().ConfigMaps(namespace).Create(ctx, wanted, metav1.CreateOptions{})
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		target.Behind(nil) // a later event will show the termination
		return nil
	}
	return target.Answered(nil, created, err, "create ConfigMap "+namespace+"/"+ConfigMapName)
}

// patch sets the bundle key without a resourceVersion, because the value does not depend on the
// other content.
func (c *Controller) patch(ctx context.Context, target target, have *corev1.ConfigMap, content string) error {
	body, _ := json.Marshal(map[string]any{ // cannot fail
		"data":       map[string]string{BundleKey: content},
		"binaryData": map[string]any{BundleKey: nil}, // the same key in both is invalid
	})
	patched, err := c.Client().Kube().CoreV1().ConfigMaps(have.Namespace).
		Patch(ctx, ConfigMapName, types.MergePatchType, body, metav1.PatchOptions{})
	switch {
	case apierrors.IsNotFound(err):
		target.Behind(have) // a later event will show the deletion
		return nil
	case err != nil && have.Immutable != nil && *have.Immutable:
		return fmt.Errorf("update ConfigMap %s/%s: it is immutable; delete it so that it can be recreated: %w", have.Namespace, ConfigMapName, err)
	case err != nil:
		return fmt.Errorf("update ConfigMap %s/%s: %w", have.Namespace, ConfigMapName, err)
	}
	target.Wrote(have, patched)
	return nil
}
