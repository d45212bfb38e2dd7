package cluster

import (
	"context"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"

	"incumbent.dev/incumbent/internal/tagging"
)

// SetRevision sets the revision of a tag. It returns when its last request was sent.
func SetRevision(ctx context.Context, client kubernetes.Interface, webhook, revision string) (sent time.Time, err error) {
	hook := &admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: webhook}}
	err = Edit(ctx, client.AdmissionregistrationV1().MutatingWebhookConfigurations(), hook, func(hook *admissionv1.MutatingWebhookConfiguration) {
		hook.Labels = map[string]string{tagging.Label: revision}
		sent = time.Now()
	})
	return sent, err
}

// SetRevision sets the revision of a tag until the test ends.
func (c *Cluster) SetRevision(t testing.TB, webhook, revision string) {
	t.Helper()
	client := c.Client(t).Kube()
	if _, err := SetRevision(t.Context(), client, webhook, revision); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = client.AdmissionregistrationV1().MutatingWebhookConfigurations().Delete(context.WithoutCancel(t.Context()), webhook, metav1.DeleteOptions{})
	})
}

// patiently retries often enough for a lock that another process renews continuously.
var patiently = wait.Backoff{Steps: 50, Duration: 10 * time.Millisecond, Jitter: 1}

// Objects is a typed client of one kind.
type Objects[T metav1.Object] interface {
	Get(ctx context.Context, name string, options metav1.GetOptions) (T, error)
	Create(ctx context.Context, object T, options metav1.CreateOptions) (T, error)
	Update(ctx context.Context, object T, options metav1.UpdateOptions) (T, error)
}

// Edit changes the object with the name of blank, guarded by its resourceVersion. It retries if another client was
// faster. If there is no object, it creates the changed blank.
func Edit[T metav1.Object](ctx context.Context, client Objects[T], blank T, change func(T)) error {
	overtaken := func(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }
	return retry.OnError(patiently, overtaken, func() error {
		object, err := client.Get(ctx, blank.GetName(), metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			change(blank)
			_, err = client.Create(ctx, blank, metav1.CreateOptions{})
			return err
		}
		if err != nil {
			return err
		}
		change(object)
		_, err = client.Update(ctx, object, metav1.UpdateOptions{})
		return err
	})
}
