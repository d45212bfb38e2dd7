package bootstrap

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

	"incumbent.dev/incumbent/internal/inspect"
	"incumbent.dev/incumbent/internal/members"
	"incumbent.dev/incumbent/pkg/kube"
)

// candidates follows the members' Leases of the control plane's namespace, for who looks at the elections page.
// Elections do without.
type candidates struct {
	informer cache.SharedIndexInformer
	changed  func()

	mu  sync.Mutex
	all map[string]members.Member // by the Lease's name
}

func newCandidates(client kube.Client, namespace string, log *slog.Logger) *candidates {
	c := &candidates{changed: func() {}, all: map[string]members.Member{}}
	leases := client.Kube().CoordinationV1().Leases(namespace)
	trouble := kube.NewTrouble(log, map[string]string{memberVerb: "the elections page does not know who could lead"})
	c.informer = cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector = members.Selector
			list, err := leases.List(ctx, o)
			trouble.Tried(memberVerb, err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = members.Selector
			w, err := leases.Watch(ctx, o)
			trouble.Tried(memberVerb, err)
			return w, err
		},
	}, &coordinationv1.Lease{}, 0, cache.Indexers{})
	// None of these fails before the informer runs.
	_ = c.informer.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {}) // trouble has reported it
	_, _ = c.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: c.meet, UpdateFunc: func(_, lease any) { c.meet(lease) }, DeleteFunc: c.forget,
	})
	return c
}

// memberVerb is what the log calls these requests.
const memberVerb = "watch the Leases of members"

func (c *candidates) run(ctx context.Context) error {
	c.informer.RunWithContext(ctx)
	return nil
}

// meet takes in a Lease. One that cannot be read is nobody's: electionctl names it.
func (c *candidates) meet(obj any) {
	lease, ok := obj.(*coordinationv1.Lease)
	if !ok {
		return
	}
	member, err := members.Parse(lease)
	c.mu.Lock()
	if err == nil {
		c.all[lease.Name] = member
	} else {
		delete(c.all, lease.Name)
	}
	c.mu.Unlock()
	c.changed()
}

func (c *candidates) forget(obj any) {
	if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = last.Obj
	}
	if lease, ok := obj.(*coordinationv1.Lease); ok {
		c.mu.Lock()
		delete(c.all, lease.Name)
		c.mu.Unlock()
		c.changed()
	}
}

// at are those of each election, by its lock; nil while nothing is known.
func (c *candidates) at(now time.Time) map[string][]inspect.Candidate {
	if c == nil || !c.informer.HasSynced() {
		return nil
	}
	c.mu.Lock()
	all := slices.Collect(maps.Values(c.all))
	c.mu.Unlock()
	slices.SortFunc(all, func(a, b members.Member) int { return strings.Compare(a.Name, b.Name) })
	by := map[string][]inspect.Candidate{}
	for _, candidate := range inspect.Candidates(all, now) {
		by[candidate.Election] = append(by[candidate.Election], candidate)
	}
	return by
}
