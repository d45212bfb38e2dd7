package page

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"incumbent.dev/incumbent/internal/apirequest"
	"incumbent.dev/incumbent/internal/inspect"
	"incumbent.dev/incumbent/internal/members"
	"incumbent.dev/incumbent/pkg/kube"
)

// CandidateWatch watches the member Leases of a namespace, for the page's list of candidates.
type CandidateWatch struct {
	informer cache.SharedIndexInformer
	changed  func()

	mu      sync.Mutex
	members map[string]members.Member // by the name of the Lease
}

// watchMembers is the name of these requests in the log.
const watchMembers = "watch the Leases of members"

// NewCandidateWatch returns a watch of the namespace. It calls changed after each event.
func NewCandidateWatch(client kube.Client, namespace string, changed func(), log *slog.Logger) *CandidateWatch {
	w := &CandidateWatch{changed: changed, members: map[string]members.Member{}}
	leases := client.Kube().CoordinationV1().Leases(namespace)
	trouble := apirequest.NewTrouble(log, map[string]string{watchMembers: "the elections page cannot show the candidates"})
	w.informer = cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector = members.Selector
			list, err := leases.List(ctx, o)
			trouble.Tried(watchMembers, err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = members.Selector
			events, err := leases.Watch(ctx, o)
			trouble.Tried(watchMembers, err)
			return events, err
		},
	}, &coordinationv1.Lease{}, 0, cache.Indexers{})
	// Both calls cannot fail before the informer runs.
	_ = w.informer.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {}) // trouble has reported it
	_, _ = w.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: w.update, UpdateFunc: func(_, lease any) { w.update(lease) }, DeleteFunc: w.remove,
	})
	return w
}

// Run watches until ctx ends.
func (w *CandidateWatch) Run(ctx context.Context) error {
	w.informer.RunWithContext(ctx)
	return nil
}

// update stores a Lease. A Lease that cannot be parsed counts as deleted.
func (w *CandidateWatch) update(obj any) {
	lease, ok := obj.(*coordinationv1.Lease)
	if !ok {
		return
	}
	member, err := members.Parse(lease)
	w.mu.Lock()
	if _, known := w.members[lease.Name]; known {
		member.Renewed = time.Now() // by the clock of ByLock, because other clocks may differ
	}
	if err == nil {
		w.members[lease.Name] = member
	} else {
		delete(w.members, lease.Name)
	}
	w.mu.Unlock()
	w.changed()
}

func (w *CandidateWatch) remove(obj any) {
	if lease, err := cache.DeletionHandlingObjectToName(obj); err == nil {
		w.mu.Lock()
		delete(w.members, lease.Name)
		w.mu.Unlock()
		w.changed()
	}
}

// ByLock returns the candidates of each election by the name of its lock. It is nil for a nil watch and before the first list.
func (w *CandidateWatch) ByLock(now time.Time) map[string][]inspect.Candidate {
	if w == nil || !w.informer.HasSynced() {
		return nil
	}
	w.mu.Lock()
	all := slices.Collect(maps.Values(w.members))
	w.mu.Unlock()
	slices.SortFunc(all, func(a, b members.Member) int { return strings.Compare(a.Name, b.Name) })
	byLock := map[string][]inspect.Candidate{}
	for _, candidate := range inspect.Candidates(all, now) {
		byLock[candidate.Election] = append(byLock[candidate.Election], candidate)
	}
	return byLock
}
