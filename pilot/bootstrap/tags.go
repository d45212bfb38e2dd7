package bootstrap

import (
	"context"
	"fmt"
	"hash/fnv"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"incumbent.dev/incumbent/internal/apirequest"
	"incumbent.dev/incumbent/internal/tagging"
	"incumbent.dev/incumbent/pkg/revisions"
)

const (
	// conflictDelay is the time before a conflict is reported. A change of a tag can pass through one, if both a Service and a
	// webhook have the tag.
	conflictDelay = 5 * time.Second
	// reasonTagConflict is the reason of the Event on a webhook or Service whose tag belongs to another revision.
	reasonTagConflict = "TagConflict"
)

// tags watches the tags of the server's revision for controllers of objects that select a revision.
type tags struct {
	watcher revisions.Tags
	known   chan struct{} // closed after the first sync
	changed apirequest.Signal
	log     *slog.Logger
	// event records an Event about a claim, once for all processes.
	event    func(ctx context.Context, about tagging.Claim, name, message string)
	reported apirequest.Reported[string] // the conflicts, by tag
}

// followTags creates the tag watcher if a row needs it.
func (s *site) followTags(rows []election) {
	for _, row := range rows {
		if row.tagged {
			s.tags = newTags(revisions.NewTags(s.own, revisions.Config{
				Revision: s.config.Revision, Namespace: s.config.Namespace, Logger: s.log,
			}), s.log, s.claimEvent)
			s.metrics.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
				Name: "incumbent_tag_conflicts",
				Help: "Number of tags that several revisions claim. The log and an Event TagConflict name them.",
			}, func() float64 { return float64(len(s.tags.watcher.Conflicts())) }))
			return
		}
	}
}

func newTags(watcher revisions.Tags, log *slog.Logger, event func(context.Context, tagging.Claim, string, string)) *tags {
	t := &tags{
		watcher: watcher, known: make(chan struct{}), changed: apirequest.NewSignal(),
		log: log, event: event,
	}
	once := sync.OnceFunc(func() { close(t.known) })
	watcher.AddHandler(func(sets.Set[string]) {
		once()
		t.changed.Send()
	})
	return t
}

// run watches until ctx ends.
func (t *tags) run(ctx context.Context) error {
	var ended sync.WaitGroup
	defer ended.Wait()
	ended.Go(func() { t.report(ctx) })
	t.watcher.Run(ctx.Done())
	return nil
}

// report reports each conflict once, conflictDelay after a change, until ctx ends.
func (t *tags) report(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.changed:
		}
		if apirequest.Pause(ctx, conflictDelay) == nil {
			t.reportNow(ctx)
		}
	}
}

func (t *tags) reportNow(ctx context.Context) {
	now := sets.New[string]()
	for _, conflict := range t.watcher.Conflicts() {
		tag, text := conflict.Used.Tag, conflict.String()
		now.Insert(tag)
		if _, changed := t.reported.Change(tag, text); !changed {
			continue
		}
		t.log.Warn("several revisions claim a tag", "tag", tag, "used", conflict.Used.String(), "conflict", text)
		for _, other := range conflict.Others {
			sum := fnv.New64a()
			_, _ = sum.Write([]byte(text))
			t.event(ctx, other, fmt.Sprintf("tag-conflict.%s.%x", other.UID, sum.Sum64()), fmt.Sprintf("%s. Correct its label istio.io/rev, or end its claim: %s", text, other.EndCommand()))
		}
	}
	for _, tag := range t.reported.Keys() {
		if !now.Has(tag) {
			t.reported.Change(tag, "")
			t.log.Info("only one revision claims the tag now", "tag", tag)
		}
	}
}

// claimEvent records an Event about a claim.
func (s *site) claimEvent(ctx context.Context, about tagging.Claim, name, message string) {
	version := admissionv1.SchemeGroupVersion
	if about.Kind == tagging.ServiceKind {
		version = corev1.SchemeGroupVersion
	}
	s.events.once(ctx, name, &corev1.ObjectReference{
		APIVersion: version.String(), Kind: about.Kind, Namespace: about.Namespace, Name: about.Name, UID: about.UID,
	}, reasonTagConflict, message)
}

// await waits until the tags are known. Before, all objects of a tag would appear to belong to another revision. The
// watcher reports errors.
func (t *tags) await(ctx context.Context) error {
	select {
	case <-t.known:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the tags of revisions: %w", context.Cause(ctx))
	}
}
