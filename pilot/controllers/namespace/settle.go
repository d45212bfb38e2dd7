package namespace

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// settle makes one namespace's ConfigMap carry the bundle, if it should and does not.
func (c *Controller) settle(ctx context.Context, caches *caches, name string) error {
	content := c.bundle.current()
	if content == "" || c.excluded.Has(name) || !lives(caches.namespace(name)) {
		return nil
	}
	have := caches.configMap(name)
	switch {
	case have == nil:
		return c.create(ctx, name, content)
	case have.DeletionTimestamp == nil && !carries(have, content):
		return c.patch(ctx, have, content)
	}
	return nil
}

// lives reports whether a namespace exists and will go on to.
func lives(namespace *corev1.Namespace) bool {
	return namespace != nil && namespace.DeletionTimestamp == nil && namespace.Status.Phase != corev1.NamespaceTerminating
}

func carries(configMap *corev1.ConfigMap, content string) bool {
	return configMap.Data[BundleKey] == content
}

func (c *Controller) create(ctx context.Context, namespace, content string) error {
	wanted := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: ConfigMapName, Namespace: namespace, Labels: map[string]string{configLabel: "true"}},
		Data:       map[string]string{BundleKey: content},
	}
	_, err := c.client.Kube().CoreV1().ConfigMaps(namespace).Create(ctx, wanted, metav1.CreateOptions{})
	switch {
	case apierrors.IsAlreadyExists(err):
		// The cache is behind; it will show the object and what to repair in it.
		return nil
	case apierrors.IsNotFound(err), apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return nil // the namespace is going
	case err != nil:
		return fmt.Errorf("creating ConfigMap %s/%s: %w", namespace, ConfigMapName, err)
	}
	return nil
}

// patch sets the one key. All else stays, whatever the version of the object: the
// bundle is right for each of them.
func (c *Controller) patch(ctx context.Context, have *corev1.ConfigMap, content string) error {
	change := map[string]any{"data": map[string]string{BundleKey: content}}
	if _, binary := have.BinaryData[BundleKey]; binary {
		change["binaryData"] = map[string]any{BundleKey: nil} // a key may stand in one of the two
	}
	body, err := json.Marshal(change)
	if err != nil {
		return fmt.Errorf("repairing ConfigMap %s/%s: %w", have.Namespace, ConfigMapName, err)
	}
	_, err = c.client.Kube().CoreV1().ConfigMaps(have.Namespace).
		Patch(ctx, ConfigMapName, types.MergePatchType, body, metav1.PatchOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil // the cache is behind; it will show that there is none
	case err != nil && have.Immutable != nil && *have.Immutable:
		return fmt.Errorf("repairing ConfigMap %s/%s, which somebody made immutable: delete it to have it made anew: %w", have.Namespace, ConfigMapName, err)
	case err != nil:
		return fmt.Errorf("repairing ConfigMap %s/%s: %w", have.Namespace, ConfigMapName, err)
	}
	return nil
}
