package bootstrap

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"incumbent.dev/incumbent/internal/tagging"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pkg/revisions"
)

// fakeTags is a tag watcher that the test controls. It reports that all objects belong to the revision.
type fakeTags struct {
	revisions.Tags
	handlers []revisions.TagHandler
	now      atomic.Pointer[[]tagging.Conflict]
	asked    atomic.Int32
	current  chan struct{} // closed when the tags are current
}

func (w *fakeTags) Run(stop <-chan struct{})          { <-stop }
func (w *fakeTags) HasSynced() bool                   { return true }
func (w *fakeTags) AddHandler(h revisions.TagHandler) { w.handlers = append(w.handlers, h) }
func (w *fakeTags) IsMine(metav1.ObjectMeta) bool     { return true }
func (w *fakeTags) HasTag(string) bool                { return true }
func (w *fakeTags) Conflicts() []tagging.Conflict     { return *w.now.Load() }
func (w *fakeTags) AwaitCurrent(ctx context.Context) {
	w.asked.Add(1)
	select {
	case <-w.current:
	case <-ctx.Done():
	}
}

// A conflict that lasts is reported once, and its end once. A conflict during a change is not reported.
func TestTags_ReportConflict(t *testing.T) {
	claim := func(revision, name string) tagging.Claim {
		return tagging.Claim{Tag: "default", Revision: revision, Kind: tagging.WebhookKind, Name: name, UID: "u"}
	}
	conflict := []tagging.Conflict{{Used: claim("stable", "a"), Others: []tagging.Claim{claim("canary", "b")}}}
	synctest.Test(t, func(t *testing.T) {
		var log harness.Log
		var events []string
		watcher := &fakeTags{}
		watcher.now.Store(new([]tagging.Conflict))
		tags := newTags(watcher, slog.New(slog.NewTextHandler(&log, nil)), func(_ context.Context, about tagging.Claim, name, message string) {
			events = append(events, about.Name+" "+name+" "+message)
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- tags.run(ctx) }()
		change := func(now []tagging.Conflict, lasts time.Duration) {
			watcher.now.Store(&now)
			watcher.handlers[0](sets.New("stable"))
			<-time.After(lasts)
			synctest.Wait()
		}
		change(conflict, time.Second)
		change(nil, time.Minute)
		if log.String() != "" || len(events) > 0 {
			t.Errorf("a conflict of 1 s: log %q, Events %q", log.String(), events)
		}
		for range 3 {
			change(conflict, time.Minute)
		}
		if log.Count("several revisions claim a tag", "used=\"stable (MutatingWebhookConfiguration a)\"") != 1 {
			t.Errorf("log:\n%s", log.String())
		}
		if len(events) != 1 || !strings.HasPrefix(events[0], "b tag-conflict.u.") || !strings.Contains(events[0], "kubectl label mutatingwebhookconfiguration b istio.io/tag-") {
			t.Errorf("Events: %q", events)
		}
		if change(nil, time.Minute); log.Count("only one revision claims the tag now") != 1 {
			t.Errorf("log:\n%s", log.String())
		}
		if change(conflict, time.Minute); len(events) != 2 || events[0] != events[1] {
			t.Errorf("Events: %q", events)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
