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

	"incumbent.dev/incumbent/internal/fence"
	"incumbent.dev/incumbent/pkg/kube"
)

const (
	// seenWithin bounds the wait for the API servers. They take policies in every second, a
	// stalled one when it goes on.
	seenWithin = time.Minute
	// seenPause is the time between two looks at one of them.
	seenPause = 200 * time.Millisecond
	// barrierNamespace is where the barrier's write is tried, dry; it is always there.
	barrierNamespace = "default"
)

// ErrNotSeen: an API server has not taken in what was installed, or never will because it
// does not judge by policies.
var ErrNotSeen = errors.New("the API server does not act on the policies")

func barrierPrefix(set string) string { return fence.PolicyPrefix + set + ".barrier-" }

// seen returns when every API server acts on all that was written before. What it
// leaves behind, interrupted or not, is of the set and goes with what is obsolete.
func seen(ctx context.Context, set string, client kubernetes.Interface, o Options) error {
	ctx, cancel := context.WithTimeoutCause(ctx, seenWithin, fmt.Errorf("%w within %v: is its admission plugin ValidatingAdmissionPolicy off?", ErrNotSeen, seenWithin))
	defer cancel()
	var nonce [8]byte
	_, _ = rand.Read(nonce[:]) // it never fails
	p, try := fence.Barrier(set, hex.EncodeToString(nonce[:]), barrierNamespace)
	a := applier{ctx: ctx, client: client}
	a.policy(p)
	a.binding(p)
	if a.err != nil {
		return a.err
	}
	for i, server := range o.servers(client) {
		last := errors.New("it was not asked")
		for {
			_, err := server.CoreV1().ConfigMaps(barrierNamespace).Create(ctx, try, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if err != nil && strings.Contains(err.Error(), "'"+p.Name()+"'") {
				break
			}
			if apierrors.IsForbidden(err) && !fence.IsRefusal(err) {
				return fmt.Errorf("whether API server %d acts on the policies cannot be tried: %w", i+1, err)
			}
			switch {
			case err == nil:
				last = errors.New("it admitted what the policy refuses")
			case ctx.Err() == nil:
				last = err
			}
			if failed := kube.Pause(ctx, seenPause); failed != nil {
				return fmt.Errorf("API server %d: %w (the last answer: %w)", i+1, failed, last)
			}
		}
	}
	return nil
}
