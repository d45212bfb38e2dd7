package page

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"incumbent.dev/incumbent/internal/inspect"
)

const (
	// listTimeout bounds the request for Events, maxEvents the number of Events.
	listTimeout = 10 * time.Second
	maxEvents   = 1000
	// electionReason is the reason of Events about locks, of incumbent, istiod and client-go.
	electionReason = "LeaderElection"
)

// RecordEvents adds the terms before the start of the process to the history of elections. It reads them from the
// Events in the namespace of their locks.
func (p *Page) RecordEvents(ctx context.Context, client kubernetes.Interface, namespace string, elections []inspect.Election) error {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	events, err := client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "reason=" + electionReason, Limit: maxEvents})
	if err != nil {
		return fmt.Errorf("list Events: %w", err)
	}
	for _, e := range elections {
		if err := p.Record(ctx, e, changesOf(events.Items, e)); err != nil {
			return err
		}
	}
	return nil
}

// termEvent is one Event about the start or end of a term.
type termEvent struct {
	at       time.Time
	identity string
	started  bool
}

// changesOf returns the changes of an election that Events describe. Events do not contain the key of a holder.
func changesOf(events []corev1.Event, e inspect.Election) (changes []Change) {
	var terms []termEvent
	for _, event := range events {
		object := event.InvolvedObject
		if object.Name != e.Name || object.Namespace != e.Namespace || object.Kind != e.Lock {
			continue
		}
		identity, text, _ := strings.Cut(event.Message, " ")
		started := strings.HasPrefix(text, "became leader")
		if started || strings.HasPrefix(text, "stopped leading") {
			terms = append(terms, termEvent{at: cmp.Or(event.LastTimestamp.Time, event.EventTime.Time, event.CreationTimestamp.Time), identity: identity, started: started})
		}
	}
	slices.SortStableFunc(terms, func(a, b termEvent) int {
		if byTime := a.at.Compare(b.at); byTime != 0 || a.started == b.started {
			return byTime
		} else if b.started {
			return -1 // Events have a resolution of a second: the end of a term precedes the next start
		}
		return 1
	})
	leader := ""
	for _, term := range terms {
		switch {
		case term.started:
			leader = term.identity
		case term.identity == leader:
			leader = ""
		default:
			continue // another candidate has acquired the lock before
		}
		changes = append(changes, Change{At: term.at, Leader: leader, Acting: leader != ""})
	}
	return changes
}
