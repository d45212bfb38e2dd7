package install

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"incumbent.dev/incumbent/internal/apirequest"
	"incumbent.dev/incumbent/internal/watch"
)

const (
	// watchLongest is the longest pause between two watches.
	watchLongest = time.Minute
	// loadTime is how long API servers may take to load a change.
	loadTime = 1500 * time.Millisecond
)

// Watch calls changed after a policy or binding of any fence was created, changed or deleted, and again when API servers
// should have loaded the change. It returns when ctx ends. While a watch fails, changes are not reported, so the caller
// has to poll.
func Watch(ctx context.Context, client kubernetes.Interface, changed func(), log *slog.Logger) {
	events := apirequest.NewSignal()
	const instead = "changes of the fence are detected by the next periodic test"
	trouble := apirequest.NewTrouble(log, map[string]string{
		"list " + policyKind: instead, "list " + bindingKind: instead, "watch " + policyKind: instead, "watch " + bindingKind: instead,
	})
	var all sync.WaitGroup
	defer all.Wait()
	for _, of := range bindingsFirst(client) {
		objects := of.followed(trouble, events.Send)
		all.Go(func() { objects.Run(ctx) })
	}
	later := time.NewTimer(0)
	later.Stop()
	defer later.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-events:
			changed()
			later.Reset(loadTime)
		case <-later.C:
			changed()
		}
	}
}

// followed returns the objects of one kind. changed is called after a change of the fence.
func (s store) followed(trouble *apirequest.Trouble, changed func()) *watch.Objects[storable] {
	var known map[string]string // version of the content, by name
	return &watch.Objects[storable]{
		Source:       watch.Source[storable]{List: s.list, Watch: s.watch},
		LongestPause: watchLongest,
		Tried:        func(verb string, err error) { trouble.Tried(verb+" "+s.kind, err) },
		Changed: func(all []storable) {
			now := map[string]string{}
			for _, o := range all {
				if ofAFence(o) {
					now[o.GetName()] = contentVersion(o)
				}
			}
			if known != nil && !maps.Equal(known, now) {
				changed()
			}
			known = now
		},
	}
}

// contentVersion changes with the content of an object, but not with its status.
func contentVersion(o metav1.Object) string { return fmt.Sprint(o.GetUID(), "/", o.GetGeneration()) }
