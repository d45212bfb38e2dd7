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
	content, namespace := c.bundle.current(), caches.namespace(name)
	if content == "" || c.excluded.Has(name) || !lives(namespace) {
		return nil
	}
	have, known := caches.latest(namespace)
	switch {
	case !known:
		return nil
	case have == nil:
		return c.create(ctx, caches, namespace, content)
	case have.DeletionTimestamp == nil && !carries(have, content):
		return c.patch(ctx, caches, namespace, have, content)
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

func (c *Controller) create(ctx context.Context, caches *caches, namespace *corev1.Namespace, content string) error {
	wanted := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: ConfigMapName, Namespace: namespace.Name, Labels: map[string]string{configLabel: "true"}},
		Data:       map[string]string{BundleKey: content},
	}
	made, err := c.client.Kube().CoreV1().ConfigMaps(namespace.Name).Create(ctx, wanted, metav1.CreateOptions{})
	switch {
	case apierrors.IsAlreadyExists(err), // the cache will show the object, and what to repair in it
		apierrors.IsNotFound(err), apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause): // or that the namespace is going
		caches.behind(namespace, "")
		return nil
	case err != nil:
		return fmt.Errorf("creating ConfigMap %s/%s: %w", namespace.Name, ConfigMapName, err)
	}
	caches.wrote(namespace, made)
	return nil
}

// patch sets the one key. All else stays, whatever the version of the object: the
// bundle is right for each of them.
func (c *Controller) patch(ctx context.Context, caches *caches, namespace *corev1.Namespace, have *corev1.ConfigMap, content string) error {
	body, _ := json.Marshal(map[string]any{ // which cannot fail
		"data":       map[string]string{BundleKey: content},
		"binaryData": map[string]any{BundleKey: nil}, // a key may stand in one of the two
	})
	repaired, err := c.client.Kube().CoreV1().ConfigMaps(have.Namespace).
		Patch(ctx, ConfigMapName, types.MergePatchType, body, metav1.PatchOptions{})
	switch {
	case apierrors.IsNotFound(err):
		caches.behind(namespace, have.ResourceVersion) // it will show that there is none
		return nil
	case err != nil && have.Immutable != nil && *have.Immutable:
		return fmt.Errorf("repairing ConfigMap %s/%s, which somebody made immutable: delete it to have it made anew: %w", have.Namespace, ConfigMapName, err)
	case err != nil:
		return fmt.Errorf("repairing ConfigMap %s/%s: %w", have.Namespace, ConfigMapName, err)
	}
	caches.wrote(namespace, repaired)
	return nil
}
