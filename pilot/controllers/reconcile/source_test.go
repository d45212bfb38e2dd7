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

func TestClose_WhileServerIsDown(t *testing.T) {
	refused := fmt.Errorf("get: %w", &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED})
	for name, err := range map[string]error{"refused": refused, "too many": apierrors.NewTooManyRequests("slow down", 1)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStore()
				s.readErr = err
				c, _ := newController(t, &recorder{}, s, nil)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
				defer cancel()
				if err := c.Warm(ctx); err == nil {
					t.Error("Warm returned no error")
				}
				if tries := len(s.reads()); tries < 10 || tries > 80 {
					t.Errorf("%d requests in ten minutes", tries)
				}
				started := time.Now()
				c.Close()
				if took := time.Since(started); took > time.Second {
					t.Errorf("Close took %v", took)
				}
			})
		})
	}
}

func TestInterruptible(t *testing.T) {
	refused := fmt.Errorf("get: %w", &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED})
	for _, err := range []error{refused, apierrors.NewTooManyRequests("slow down", 1)} {
		if got := interruptible(err); got == nil || got.Error() != err.Error() || utilnet.IsConnectionRefused(got) || apierrors.IsTooManyRequests(got) {
			t.Errorf("%v became %T: %v", err, got, got)
		}
	}
	expired := apierrors.NewResourceExpired("old")
	if got := interruptible(expired); got != error(expired) {
		t.Errorf("%v became %T: %v", expired, got, got)
	}
	if got := interruptible(nil); got != nil {
		t.Errorf("nil became %v", got)
	}
}
