package bootstrap

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/util/sets"

	"incumbent.dev/incumbent/pkg/revisions"
)

// tags are the names under which a server's revision is reachable, for the controllers whose
// objects choose a revision.
type tags struct {
	watcher revisions.TagWatcher
	known   chan struct{} // closed once they are
}

// followTags makes the watcher of tags, if one of the rows needs it.
func (s *site) followTags(rows []election) {
	for _, row := range rows {
		if row.tagged {
			s.tags = newTags(revisions.NewTags(s.own, revisions.Config{
				Revision: s.config.Revision, Namespace: s.config.Namespace, Logger: s.log,
			}))
			return
		}
	}
}

func newTags(watcher revisions.TagWatcher) *tags {
	t := &tags{watcher: watcher, known: make(chan struct{})}
	once := sync.OnceFunc(func() { close(t.known) })
	watcher.AddHandler(func(sets.Set[string]) { once() })
	return t
}

// run follows them until ctx ends.
func (t *tags) run(ctx context.Context) error {
	t.watcher.Run(ctx.Done())
	return nil
}

// await waits until they are known: before, all objects of a tag would look like another revision's. What
// keeps them from being known, the watcher reports.
func (t *tags) await(ctx context.Context) error {
	select {
	case <-t.known:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for the tags of revisions: %w", context.Cause(ctx))
	}
}
