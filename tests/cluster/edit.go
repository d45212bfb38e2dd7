package cluster

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
)

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
