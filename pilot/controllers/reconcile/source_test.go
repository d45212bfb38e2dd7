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
)

func TestClose_WhileServerIsDown(t *testing.T) {
	refused := fmt.Errorf("get: %w", &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED})
	for name, err := range map[string]error{"refused": refused, "too many": apierrors.NewTooManyRequests("slow down", 1)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStore()
				s.failReads(err)
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
