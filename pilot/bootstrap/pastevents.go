package bootstrap

import (
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/inspect"
	"incumbent.dev/incumbent/pilot/debug"
)

const (
	// recallTimeout bounds the request for the Events of the time before, and recallMost what it brings.
	recallTimeout = 10 * time.Second
	recallMost    = 1000
	// electionReason is that of electors' Events about locks: ours, istiod's and client-go's.
	electionReason = "LeaderElection"
)

// recall tells the page who led before it began to look, as far as Events about the locks say so. Without them it shows
// what it sees.
func (p *electionsPage) recall(ctx context.Context) {
	for i, at := range p.sites {
		listCtx, cancel := context.WithTimeout(ctx, recallTimeout)
		events, err := at.own.Kube().CoreV1().Events(at.config.Namespace).List(listCtx, metav1.ListOptions{
			FieldSelector: "reason=" + electionReason, Limit: recallMost,
		})
		cancel()
		if err != nil {
			if ctx.Err() == nil {
				at.log.Warn("the elections page begins without what was before", "err", err)
			}
			continue
		}
		for _, e := range p.state().Elections {
			if (e.Cluster == "") != (i == 0) {
				continue
			}
			if err := p.page.Record(ctx, e, termsOf(events.Items, e)); err != nil {
				return // the page ends
			}
		}
	}
}

// said is one Event, taken apart.
type said struct {
	at             time.Time
	who            string
	began, stopped bool
}

// termsOf are the changes of an election that Events tell. They do not tell of which revision a holder was.
func termsOf(events []corev1.Event, e debug.Election) (changes []debug.Change) {
	var all []said
	for _, event := range events {
		about := event.InvolvedObject
		if about.Name != e.Lock || about.Namespace != e.Namespace || about.Kind != e.Kind && e.Kind != inspect.Both {
			continue
		}
		who, what, _ := strings.Cut(event.Message, " ")
		s := said{at: dateOf(event), who: who, began: strings.HasPrefix(what, "became leader"), stopped: strings.HasPrefix(what, "stopped leading")}
		if s.began || s.stopped {
			all = append(all, s)
		}
	}
	slices.SortStableFunc(all, func(a, b said) int {
		if byTime := a.at.Compare(b.at); byTime != 0 || a.stopped == b.stopped {
			return byTime
		} else if a.stopped {
			return -1 // within a second, one ends before the next begins
		}
		return 1
	})
	leader := ""
	for _, s := range all {
		switch {
		case s.began:
			leader = s.who
		case s.who == leader:
			leader = ""
		default:
			continue // it was taken over before it said so
		}
		changes = append(changes, debug.Change{At: s.at, Leader: leader, Acting: leader != ""})
	}
	return changes
}

// dateOf is when what an Event tells happened last.
func dateOf(event corev1.Event) time.Time {
	switch {
	case !event.LastTimestamp.IsZero():
		return event.LastTimestamp.Time
	case !event.EventTime.IsZero():
		return event.EventTime.Time
	}
	return event.CreationTimestamp.Time
}
