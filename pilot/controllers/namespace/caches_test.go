package namespace

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"incumbent.dev/incumbent/pkg/kube"
)

// With a server that refuses connections for long, the end of the context ends the
// informer at once.
func TestInformersEndAtOnceWhileTheServerIsAway(t *testing.T) {
	refused := fmt.Errorf("get: %w", &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED})
	for name, err := range map[string]error{"refused": refused, "too many": apierrors.NewTooManyRequests("slow down", 1)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				trouble := kube.NewTrouble(slog.New(slog.DiscardHandler), nil)
				tries := 0
				list := func(context.Context, metav1.ListOptions) (*corev1.NamespaceList, error) { return nil, err }
				follow := func(context.Context, metav1.ListOptions) (watch.Interface, error) { tries++; return nil, err }
				i := informer(&corev1.Namespace{}, slimNamespace, listWatch(trouble, "namespaces", metav1.ListOptions{}, list, follow))
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					i.RunWithContext(ctx)
				}()
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				if tries < 10 || tries > 60 {
					t.Errorf("%d tries in ten minutes", tries)
				}
				cancel()
				stopped := time.Now()
				<-ended
				if took := time.Since(stopped); took > time.Second {
					t.Errorf("it took %v to end", took)
				}
			})
		})
	}
}
