package bootstrap

import (
	"context"
	"log/slog"
	"testing"

	"go.uber.org/atomic"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"incumbent.dev/incumbent/pkg/revisions"
)

// pastTags are tags whose watch has broken off: all objects are the revision's, as far as they know.
type pastTags struct {
	asked   atomic.Int32
	current chan struct{}
}

func (*pastTags) Run(<-chan struct{})               {}
func (*pastTags) HasSynced() bool                   { return true }
func (*pastTags) AddHandler(h revisions.TagHandler) { h(sets.New[string]()) }
func (*pastTags) GetMyTags() sets.Set[string]       { return nil }
func (*pastTags) IsMine(metav1.ObjectMeta) bool     { return true }
func (p *pastTags) AwaitCurrent(ctx context.Context) {
	p.asked.Inc()
	select {
	case <-p.current:
	case <-ctx.Done():
	}
}

// After the API server was away, no controller writes by tags from before: two revisions that both call a Gateway theirs write
// over each other.
func TestNothingIsWrittenByTagsOfThePast(t *testing.T) {
	e := newEnvironment(t)
	client := e.gateways(t)
	if _, err := client.Gateways(e.home).Create(t.Context(), newGateway("gw"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	rows := 0
	for _, row := range table {
		if !row.tagged {
			continue
		}
		rows++
		t.Run(row.id, func(t *testing.T) {
			before, err := client.Gateways(e.home).Get(t.Context(), "gw", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			changed := func() bool {
				now, err := client.Gateways(e.home).Get(t.Context(), "gw", metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				return now.ResourceVersion != before.ResourceVersion
			}
			tags := &pastTags{current: make(chan struct{})}
			log := slog.New(slog.DiscardHandler)
			j, err := row.guards(e.admin, Config{Namespace: e.home, Revision: e.home, DisableGatewayClass: true}, tools{log: log, events: &events{}, tags: tags})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- j.Run(ctx) }()
			await(t, "it asks", func() bool { return tags.asked.Load() > 0 })
			if changed() {
				t.Error("it writes before the tags are current")
			}
			close(tags.current)
			await(t, "it writes", changed)
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
	if rows != 2 {
		t.Errorf("%d rows of the table look at tags", rows)
	}
}
