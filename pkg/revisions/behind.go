package revisions

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
)

// behindLimit limits the wait for objects that cannot be read. It is longer than a lease, so no leader from before the outage still
// leads.
const behindLimit = 2 * time.Minute

// behind has the kinds of objects that may have changed unseen.
type behind struct {
	mu    sync.Mutex
	kinds sets.Set[string]
	// resolved closes when kinds is empty, behindLimit after the first kind was added, or when the watcher ends. It is nil if kinds is
	// empty.
	resolved <-chan struct{}
	finish   context.CancelFunc
}

func newBehind() *behind { return &behind{kinds: sets.New[string]()} }

func (b *behind) add(ctx context.Context, kind string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.kinds) == 0 {
		limit, finish := context.WithTimeout(ctx, behindLimit)
		b.resolved = limit.Done()
		b.finish = finish
	}
	b.kinds.Insert(kind)
}

func (b *behind) remove(kind string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.kinds.Delete(kind)
	if len(b.kinds) == 0 && b.finish != nil {
		b.finish()
		b.resolved = nil
		b.finish = nil
	}
}

func (b *behind) await(ctx context.Context) {
	b.mu.Lock()
	resolved := b.resolved
	b.mu.Unlock()
	if resolved == nil {
		return
	}
	select {
	case <-resolved:
	case <-ctx.Done():
	}
}
