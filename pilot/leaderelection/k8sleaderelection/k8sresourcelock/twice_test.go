package k8sresourcelock

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"incumbent.dev/incumbent/internal/apirequest"
)

// lateLock answers no first attempt. It answers a second attempt with err after 100 ms.
type lateLock struct {
	Lock
	err  error
	mu   sync.Mutex
	sent []string
}

func (l *lateLock) answer(ctx context.Context, method string) (Snapshot, error) {
	l.mu.Lock()
	l.sent = append(l.sent, method)
	l.mu.Unlock()
	takes := time.Hour
	if apirequest.IsSecond(ctx) {
		takes = 100 * time.Millisecond
	}
	if err := apirequest.Pause(ctx, takes); err != nil {
		return Snapshot{}, err
	}
	return Snapshot{Exists: true}, l.err
}

func (l *lateLock) Read(ctx context.Context) (Snapshot, error) { return l.answer(ctx, "read") }

func (l *lateLock) Write(ctx context.Context, _ Snapshot, _ LeaderElectionRecord, _ map[string]string) (Snapshot, error) {
	return l.answer(ctx, "write")
}

func (l *lateLock) Annotate(ctx context.Context, _ Snapshot, _ map[string]string) (Snapshot, error) {
	return l.answer(ctx, "annotate")
}

func (l *lateLock) DryRun(ctx context.Context, _ Snapshot, _ LeaderElectionRecord, _ map[string]string) error {
	_, err := l.answer(ctx, "dry run")
	return err
}

// Each request is sent twice. A rejection of one attempt is no rejection of the request.
func TestSendTwice(t *testing.T) {
	for name, call := range map[string]func(context.Context, Lock) error{
		"read": func(ctx context.Context, l Lock) error {
			_, err := l.Read(ctx)
			return err
		},
		"write": func(ctx context.Context, l Lock) error {
			_, err := l.Write(ctx, Snapshot{}, LeaderElectionRecord{}, nil)
			return err
		},
		"annotate": func(ctx context.Context, l Lock) error {
			_, err := l.Annotate(ctx, Snapshot{}, nil)
			return err
		},
		"dry run": func(ctx context.Context, l Lock) error { return l.DryRun(ctx, Snapshot{}, LeaderElectionRecord{}, nil) },
	} {
		for _, rejection := range []error{nil, ErrConflict, apierrors.NewForbidden(schema.GroupResource{}, "l", nil)} {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 9*time.Second)
				defer cancel()
				lock := &lateLock{err: rejection}
				err := call(ctx, SendTwice(lock))
				if len(lock.sent) != 2 || lock.sent[0] != name || lock.sent[1] != name {
					t.Errorf("%s: sent %q", name, lock.sent)
				}
				if (err == nil) != (rejection == nil) || IsConflict(err) || IsRefused(err) || err != nil && !errors.Is(err, apirequest.ErrOneAnswer) {
					t.Errorf("%s: %v after %v", name, err, rejection)
				}
			})
		}
	}
}
