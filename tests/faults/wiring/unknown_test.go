package wiring

import (
	"context"
	"errors"
	"net/http"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/fence"
)

// late keeps the answers of the work's writes until their context has ended, which is as if
// the API server took that long to answer.
type late struct{ next http.RoundTripper }

func (l late) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := l.next.RoundTrip(req.WithContext(context.WithoutCancel(req.Context())))
	if err != nil {
		return nil, err
	}
	<-req.Context().Done()
	return nil, errors.Join(context.Cause(req.Context()), resp.Body.Close())
}

func TestLateResponse_UnknownAndApplied(t *testing.T) {
	t.Parallel()
	s := newStage(t, leaderelection.LockTypeLease)
	s.prepare()
	a := s.enter("pilot-0", "stable", nil)
	a.leads()
	a.wire.delay()
	written := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	// In a key of its own: a write of the work that was under way may come after it.
	go func() {
		maps := a.Client().Kube().CoreV1().ConfigMaps(s.namespace)
		_, err := maps.Patch(ctx, work, types.MergePatchType, []byte(`{"data":{"late":"yes"}}`), metav1.PatchOptions{})
		written <- err
	}()
	eventually(t, "the API server has applied it", func() bool {
		cm, err := s.admin.CoreV1().ConfigMaps(s.namespace).Get(ctx, work, metav1.GetOptions{})
		return err == nil && cm.Data["late"] == "yes"
	})
	overwrite(a)
	err := <-written
	var unknown *fence.OutcomeUnknownError
	if !errors.As(err, &unknown) || errors.Is(err, fence.ErrNotLeader) || unknown.Election != election || unknown.Term.Token == 0 {
		t.Errorf("the write was applied, and its sender is told: %v", err)
	}
	a.isTold()
	a.mayReturn()
}
