package page

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"incumbent.dev/incumbent/internal/apirequest"
	"incumbent.dev/incumbent/internal/inspect"
	"incumbent.dev/incumbent/internal/members"
	"incumbent.dev/incumbent/internal/watch"
	"incumbent.dev/incumbent/pkg/kube"
)

// CandidateWatch watches the member Leases of a namespace, for the page's list of candidates.
type CandidateWatch struct {
	leases  watch.Objects[*coordinationv1.Lease]
	changed func()

	mu      sync.Mutex
	members map[string]seenMember // by the name of the Lease; nil before the first list
}

// seenMember is a member and the version of its Lease.
type seenMember struct {
	members.Member
	version string
}

// longestPause is the longest pause between two watches, and the interval of lists while watching is forbidden.
const longestPause = 30 * time.Second

// NewCandidateWatch returns a watch of the namespace. It calls changed after each event.
func NewCandidateWatch(client kube.Client, namespace string, changed func(), log *slog.Logger) *CandidateWatch {
	const unseen, polled = "the elections page cannot show the candidates", "the elections page shows changes of candidates late"
	const of = " the Leases of members"
	trouble := apirequest.NewTrouble(log, map[string]string{"list" + of: unseen, "watch" + of: polled})
	w := &CandidateWatch{changed: changed}
	w.leases = watch.Objects[*coordinationv1.Lease]{
		Source: watch.SourceOf(client.Kube().CoordinationV1().Leases(namespace), func(list *coordinationv1.LeaseList) []coordinationv1.Lease { return list.Items }),
		Label:  members.Selector, LongestPause: longestPause,
		Tried:   func(verb string, err error) { trouble.Tried(verb+of, err) },
		Changed: w.update,
	}
	return w
}

// Run watches until ctx ends.
func (w *CandidateWatch) Run(ctx context.Context) error {
	w.leases.Run(ctx)
	return nil
}

// update stores the members. A Lease that cannot be parsed counts as absent.
func (w *CandidateWatch) update(leases []*coordinationv1.Lease) {
	w.mu.Lock()
	before := w.members
	w.members = map[string]seenMember{}
	for _, lease := range leases {
		seen, known := before[lease.Name]
		if !known || seen.version != lease.ResourceVersion {
			member, err := members.Parse(lease)
			if err != nil {
				continue
			}
			if known {
				member.Renewed = time.Now() // by the clock of ByLock, because other clocks may differ
			}
			seen = seenMember{member, lease.ResourceVersion}
		}
		w.members[lease.Name] = seen
	}
	w.mu.Unlock()
	w.changed()
}

// ByLock returns the candidates of each election by the name of its lock. It is nil for a nil watch and before the first list.
func (w *CandidateWatch) ByLock(now time.Time) map[string][]inspect.Candidate {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.members == nil {
		return nil
	}
	var all []members.Member
	for _, seen := range w.members {
		all = append(all, seen.Member)
	}
	slices.SortFunc(all, func(a, b members.Member) int { return strings.Compare(a.Name, b.Name) })
	byLock := map[string][]inspect.Candidate{}
	for _, candidate := range inspect.Candidates(all, now) {
		byLock[candidate.Election] = append(byLock[candidate.Election], candidate)
	}
	return byLock
}
