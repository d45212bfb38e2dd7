package reconcile

import (
	"context"
	"fmt"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// With a server that refuses connections for long, the end of the context ends the
// informer at once.
func TestInformersEndAtOnceWhileTheServerIsAway(t *testing.T) {
	refused := fmt.Errorf("get: %w", &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED})
	for name, err := range map[string]error{"refused": refused, "too many": apierrors.NewTooManyRequests("slow down", 1)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStore()
				s.refuse = err
				c, _ := newController(t, &looks{}, s, nil, nil)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
				defer cancel()
				if err := c.Warm(ctx); err == nil {
					t.Error("it is warm")
				}
				if tries := len(s.reads()); tries < 10 || tries > 80 {
					t.Errorf("%d tries in ten minutes", tries)
				}
				stopped := time.Now()
				c.Close()
				if took := time.Since(stopped); took > time.Second {
					t.Errorf("it took %v to end", took)
				}
			})
		})
	}
}

// What client-go's reflector would wait for is hidden from it, in every run of the test above.
func TestInterruptible(t *testing.T) {
	refused := fmt.Errorf("get: %w", &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED})
	for _, err := range []error{refused, apierrors.NewTooManyRequests("slow down", 1)} {
		if got := interruptible(err); got == nil || got.Error() != err.Error() || utilnet.IsConnectionRefused(got) || apierrors.IsTooManyRequests(got) {
			t.Errorf("%v stays %T: %v", err, got, got)
		}
	}
	expired := apierrors.NewResourceExpired("old")
	if got := interruptible(expired); got != error(expired) {
		t.Errorf("%v became %T: %v", expired, got, got)
	}
	if got := interruptible(nil); got != nil {
		t.Errorf("nothing became %v", got)
	}
}
