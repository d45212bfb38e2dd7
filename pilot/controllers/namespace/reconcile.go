package namespace

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"incumbent.dev/incumbent/pilot/controllers/reconcile"
)

// target is a namespace's ConfigMap.
type target = reconcile.Target[string, *corev1.ConfigMap]

// reconcile makes one namespace's ConfigMap carry the bundle, if it should and does not.
func (c *Controller) reconcile(ctx context.Context, name string) error {
	content, namespace := c.bundle.current(), c.namespaces.Get("", name)
	if content == "" || c.excluded.Has(name) || !lives(namespace) {
		return nil
	}
	target := c.configMaps.At(name, reconcile.Ref{Namespace: name, Name: ConfigMapName, In: namespace.UID})
	have, known := target.Latest()
	switch {
	case !known:
		return nil
	case have == nil:
		return c.create(ctx, target, name, content)
	case have.DeletionTimestamp == nil && !carries(have, content):
		return c.patch(ctx, target, have, content)
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

func (c *Controller) create(ctx context.Context, target target, namespace, content string) error {
	wanted := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: ConfigMapName, Namespace: namespace, Labels: map[string]string{configLabel: "true"}},
		Data:       map[string]string{BundleKey: content},
	}
	made, err := c.loop.Client().Kube().CoreV1().ConfigMaps(namespace).Create(ctx, wanted, metav1.CreateOptions{})
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		target.Behind(nil) // the cache will show that the namespace is going
		return nil
	}
	if err := target.Answered(nil, made, err); err != nil {
		return fmt.Errorf("creating ConfigMap %s/%s: %w", namespace, ConfigMapName, err)
	}
	return nil
}

// patch sets the one key. All else stays, whatever the version of the object: the
// bundle is right for each of them.
func (c *Controller) patch(ctx context.Context, target target, have *corev1.ConfigMap, content string) error {
	body, _ := json.Marshal(map[string]any{ // which cannot fail
		"data":       map[string]string{BundleKey: content},
		"binaryData": map[string]any{BundleKey: nil}, // a key may stand in one of the two
	})
	repaired, err := c.loop.Client().Kube().CoreV1().ConfigMaps(have.Namespace).
		Patch(ctx, ConfigMapName, types.MergePatchType, body, metav1.PatchOptions{})
	switch {
	case apierrors.IsNotFound(err):
		target.Behind(have) // the cache will show that there is none
		return nil
	case err != nil && have.Immutable != nil && *have.Immutable:
		return fmt.Errorf("repairing ConfigMap %s/%s, which somebody made immutable: delete it to have it made anew: %w", have.Namespace, ConfigMapName, err)
	case err != nil:
		return fmt.Errorf("repairing ConfigMap %s/%s: %w", have.Namespace, ConfigMapName, err)
	}
	target.Wrote(have, repaired)
	return nil
}
