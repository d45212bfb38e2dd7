package interop

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	watchtools "k8s.io/client-go/tools/watch"

	istiolock "istio.io/istio/pilot/pkg/leaderelection/k8sleaderelection/k8sresourcelock"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/tests/peers/electors"
)

// journal contains every version of the lock object in order.
type journal struct {
	watch watch.Interface
	ended sync.WaitGroup
	mu    sync.Mutex
	all   []entry
	// broken is the error that made the history incomplete.
	broken  error
	stopped bool
}

// entry is one version as incumbent reads it.
type entry struct {
	at      time.Time // time of the watch event
	deleted bool
	meta    metav1.ObjectMeta
	snap    k8sresourcelock.Snapshot
	object  runtime.Object
}

func (s *stage) watch() *journal {
	s.t.Helper()
	ctx := context.WithoutCancel(s.t.Context()) // members release their locks after the test
	object, err := s.locks(rest.Interface.Get).Do(ctx).Get()
	harness.Must(s.t, err)
	found, err := meta.ListAccessor(object)
	harness.Must(s.t, err)
	// It continues after a connection has ended.
	w, err := watchtools.NewRetryWatcherWithContext(ctx, found.GetResourceVersion(), &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.Watch, options.FieldSelector = true, "metadata.name="+s.election
			return s.locks(rest.Interface.Get).VersionedParams(&options, scheme.ParameterCodec).Watch(ctx)
		},
	})
	harness.Must(s.t, err)
	j := &journal{watch: w}
	j.ended.Go(func() {
		for event := range w.ResultChan() {
			j.note(event)
		}
		j.mu.Lock()
		defer j.mu.Unlock()
		if !j.stopped {
			j.broken = errors.Join(j.broken, errors.New("the watch ended before the test"))
		}
	})
	return j
}

func (j *journal) note(event watch.Event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	e := entry{at: time.Now(), deleted: event.Type == watch.Deleted, object: event.Object}
	switch object := event.Object.(type) {
	case *coordinationv1.Lease:
		e.meta, e.snap = object.ObjectMeta, k8sresourcelock.LeaseSnapshot(object)
	case *corev1.ConfigMap:
		e.meta, e.snap = object.ObjectMeta, k8sresourcelock.ConfigMapSnapshot(object)
	default:
		if !j.stopped {
			j.broken = errors.Join(j.broken, fmt.Errorf("unexpected watch event %s %v", event.Type, event.Object))
		}
		return
	}
	j.all = append(j.all, e)
}

func (j *journal) entries() []entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	return append([]entry{}, j.all...)
}

// whole returns an error if the history is incomplete.
func (j *journal) whole() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.all) == 0 {
		return errors.Join(j.broken, errors.New("the history is empty"))
	}
	return j.broken
}

func (j *journal) stop() {
	j.mu.Lock()
	j.stopped = true
	j.mu.Unlock()
	j.watch.Stop()
	j.ended.Wait()
}

// holder returns the holder of the newest version.
func (j *journal) holder() string {
	all := j.entries()
	if len(all) == 0 || all[len(all)-1].deleted {
		return ""
	}
	return all[len(all)-1].snap.Record.HolderIdentity
}

// recreated reports whether the lock was deleted and has a holder again.
func (j *journal) recreated() bool {
	deleted := false
	for _, e := range j.entries() {
		deleted = deleted || e.deleted
	}
	return deleted && j.holder() != ""
}

// fromIstio converts the record of Istio's package.
func fromIstio(r istiolock.LeaderElectionRecord) k8sresourcelock.LeaderElectionRecord {
	return k8sresourcelock.LeaderElectionRecord{
		HolderIdentity: r.HolderIdentity, HolderKey: r.HolderKey, LeaseDurationSeconds: r.LeaseDurationSeconds,
		AcquireTime: r.AcquireTime, RenewTime: r.RenewTime, LeaderTransitions: r.LeaderTransitions,
	}
}

// readByPeers compares how the electors read a version, from an API with only this object.
func (e entry) readByPeers(ctx context.Context, writer electors.Library) error {
	api := fake.NewClientset(e.object)
	if _, is := e.object.(*corev1.ConfigMap); is {
		theirs, _, err := (&istiolock.ConfigMapLock{Client: api.CoreV1(), ConfigMapMeta: e.meta}).Get(ctx)
		if err != nil {
			return err
		}
		return same("Istio", fromIstio(*theirs), e.snap.Record)
	}
	istios, _, err := (&istiolock.LeaseLock{Client: api.CoordinationV1(), LeaseMeta: e.meta}).Get(ctx)
	if err != nil {
		return err
	}
	goes, _, err := (&resourcelock.LeaseLock{Client: api.CoordinationV1(), LeaseMeta: e.meta}).Get(ctx)
	if err != nil {
		return err
	}
	if writer == electors.ClientGo {
		// client-go has no key and preserves the key of an earlier holder. istiod uses it; incumbent does not.
		istios.HolderKey = ""
	}
	return errors.Join(same("Istio", fromIstio(*istios), e.snap.Record),
		same("client-go", k8sresourcelock.LeaderElectionRecord{
			HolderIdentity: goes.HolderIdentity, HolderKey: istios.HolderKey, // client-go's record has no key
			LeaseDurationSeconds: goes.LeaseDurationSeconds, AcquireTime: goes.AcquireTime,
			RenewTime: goes.RenewTime, LeaderTransitions: goes.LeaderTransitions,
		}, e.snap.Record))
}
