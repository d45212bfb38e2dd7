package revisions

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
)

// behindLimit bounds the wait for objects that cannot be read again. It is longer than leases are: after an outage of this
// length no leader of before leads any more.
const behindLimit = 2 * time.Minute

// behind knows which kinds of objects may have changed unseen.
type behind struct {
	mu    sync.Mutex
	kinds sets.Set[string]
	// resolved closes when there are none again, behindLimit after the first was added, or with the watcher; nil when there are none.
	resolved <-chan struct{}
	finish   context.CancelFunc
}

func newBehind() *behind { return &behind{kinds: sets.New[string]()} }

func (b *behind) add(ctx context.Context, kind string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.kinds) == 0 {
		limit, finish := context.WithTimeout(ctx, behindLimit)
		b.resolved, b.finish = limit.Done(), finish
	}
	b.kinds.Insert(kind)
}

func (b *behind) remove(kind string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.kinds.Delete(kind)
	if len(b.kinds) == 0 && b.finish != nil {
		b.finish()
		b.resolved, b.finish = nil, nil
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
