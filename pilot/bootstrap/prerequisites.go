package bootstrap

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"

	"incumbent.dev/incumbent/pkg/revisions"
)

// kindsEvery is how often a row looks whether the API server knows its kinds. Nothing tells.
const kindsEvery = 5 * time.Second

// olderLooks is in how many looks, after a first one that found none, older definitions must be there to be spoken of: of those that
// are installed just now, the API server may serve one version a moment before the other.
const olderLooks = 2

// known waits until the API server knows all kinds, and says once which are missing, and once which are served in
// other versions alone. What it cannot find out because the server does not answer, or refuses, is for the controller's
// caches to report.
func (s *site) awaitKinds(ctx context.Context, lock string, kinds []schema.GroupVersionResource, log *slog.Logger) error {
	ticker := time.NewTicker(kindsEvery)
	defer ticker.Stop()
	said, older := false, 0
	for {
		missing := s.missing(kinds)
		if len(kinds) > 0 {
			s.metrics.missing.WithLabelValues(lock).Set(float64(len(missing)))
		}
		if len(missing) == 0 {
			if said {
				log.Info("all CustomResourceDefinitions are served")
			}
			return nil
		}
		names, others := s.described(ctx, missing, older < olderLooks)
		if others {
			older++
		}
		if !said || others && older == olderLooks {
			log.Warn("waiting for missing CustomResourceDefinitions", "missing", names)
			if others {
				older = olderLooks
			}
			said = true
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the definitions of %v: %w", names, context.Cause(ctx))
		case <-ticker.C:
		}
	}
}

// missing are the kinds that the API server says it does not know.
func (s *site) missing(kinds []schema.GroupVersionResource) (all []schema.GroupVersionResource) {
	for _, kind := range kinds {
		if served, known := s.serves(kind); known && !served {
			all = append(all, kind)
		}
	}
	return all
}

// serves asks the API server whether it serves a kind; known is false where it does not say.
func (s *site) serves(kind schema.GroupVersionResource) (served, known bool) {
	list, err := s.own.Kube().Discovery().ServerResourcesForGroupVersion(kind.GroupVersion().String())
	if err != nil {
		return false, apierrors.IsNotFound(err)
	}
	return slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == kind.Resource }), true
}

// described names kinds. With look it adds what the API server serves of them in their place, and reports whether
// there is any: whoever looks for a missing definition then finds one, which is too old.
func (s *site) described(ctx context.Context, kinds []schema.GroupVersionResource, look bool) (names []string, others bool) {
	for _, kind := range kinds {
		name := kind.Resource + "." + kind.Group
		if look {
			if versions := s.versions(ctx, kind); len(versions) > 0 {
				others = true
				name = fmt.Sprintf("%s/%s (only %s is served: install a newer definition)", name, kind.Version, strings.Join(versions, ", "))
			}
		}
		names = append(names, name)
	}
	return names, others
}

// versions are those in which the API server serves a kind. Where it does not say, there is none.
func (s *site) versions(ctx context.Context, kind schema.GroupVersionResource) (all []string) {
	body, err := s.own.Kube().Discovery().RESTClient().Get().AbsPath("/apis", kind.Group).Do(ctx).Raw()
	var group metav1.APIGroup
	if err != nil || json.Unmarshal(body, &group) != nil {
		return nil
	}
	for _, v := range group.Versions {
		if served, _ := s.serves(kind.GroupResource().WithVersion(v.Version)); served {
			all = append(all, v.Version)
		}
	}
	return all
}

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
