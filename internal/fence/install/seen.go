package install

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"incumbent.dev/incumbent/internal/apirequest"
	"incumbent.dev/incumbent/internal/fence"
)

const (
	// seenWithin limits the wait for the API servers, which load policies every second.
	seenWithin = time.Minute
	// seenPause is the time between two attempts.
	seenPause = 200 * time.Millisecond
	// barrierNamespace is a namespace that always exists, for the dry-run write of the barrier.
	barrierNamespace = "default"
)

// ErrNotSeen is the error of an API server that does not enforce the installed policies.
var ErrNotSeen = errors.New("the API server does not enforce the policies")

func barrierPrefix(set string) string { return fence.PolicyPrefix + set + ".barrier-" }

// seen returns after every API server enforces all objects that were written before. It writes a policy with a new name
// (the barrier) and waits until each server rejects a write by it. API servers load objects in order. The barrier belongs
// to the set and is removed with the old objects.
func seen(ctx context.Context, set string, client kubernetes.Interface, o Options) error {
	ctx, cancel := context.WithTimeoutCause(ctx, seenWithin, fmt.Errorf("%w after %v. Check that its admission plugin ValidatingAdmissionPolicy is enabled", ErrNotSeen, seenWithin))
	defer cancel()
	var nonce [8]byte
	_, _ = rand.Read(nonce[:]) // never fails
	p, try := fence.Barrier(set, hex.EncodeToString(nonce[:]), barrierNamespace)
	a := applier{ctx: ctx, client: client}
	a.policy(p)
	a.binding(p)
	if a.err != nil {
		return a.err
	}
	for i, server := range append([]kubernetes.Interface{client}, o.Servers...) {
		last := errors.New("no request was sent")
		for {
			_, err := server.CoreV1().ConfigMaps(barrierNamespace).Create(ctx, try, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if err != nil && strings.Contains(err.Error(), "'"+p.Name()+"'") {
				break
			}
			if apierrors.IsForbidden(err) && !fence.IsRefusal(err) {
				return fmt.Errorf("check whether API server %d enforces the policies: %w", i+1, err)
			}
			switch {
			case err == nil:
				last = errors.New("it admitted a write that the policy rejects")
			case ctx.Err() == nil:
				last = err
			}
			if failed := apirequest.Pause(ctx, seenPause); failed != nil {
				return fmt.Errorf("API server %d: %w (last response: %w)", i+1, failed, last)
			}
		}
	}
	return nil
}
