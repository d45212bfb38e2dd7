package k8sresourcelock

import (
	"context"

	"incumbent.dev/incumbent/internal/apirequest"
)

// SendTwice returns a Lock for an API server that may be slow, and for connections that may be dead. If a request has no answer after
// the usual time, the same request is sent once more, and the first answer counts. A client of pkg/kube uses another connection for
// it. If only one attempt was answered, and was rejected, the error is neither a conflict nor a refusal: the other attempt may have
// been stored. The context of a request should have a deadline.
func SendTwice(lock Lock) Lock {
	if twice, ok := lock.(*sentTwice); ok {
		return twice
	}
	return &sentTwice{Lock: lock}
}

type sentTwice struct {
	Lock
	latency apirequest.Latency
}

func rejected(err error) bool { return IsConflict(err) || IsRefused(err) }

func (l *sentTwice) Read(ctx context.Context) (Snapshot, error) {
	return apirequest.Twice(ctx, &l.latency, rejected, l.Lock.Read)
}

func (l *sentTwice) Write(ctx context.Context, base Snapshot, record LeaderElectionRecord, annotations map[string]string) (Snapshot, error) {
	return apirequest.Twice(ctx, &l.latency, rejected, func(ctx context.Context) (Snapshot, error) {
		return l.Lock.Write(ctx, base, record, annotations)
	})
}

func (l *sentTwice) DryRun(ctx context.Context, base Snapshot, record LeaderElectionRecord, annotations map[string]string) error {
	_, err := apirequest.Twice(ctx, &l.latency, rejected, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, l.Lock.DryRun(ctx, base, record, annotations)
	})
	return err
}

func (l *sentTwice) Annotate(ctx context.Context, base Snapshot, annotations map[string]string) (Snapshot, error) {
	return apirequest.Twice(ctx, &l.latency, rejected, func(ctx context.Context) (Snapshot, error) {
		return l.Lock.Annotate(ctx, base, annotations)
	})
}
