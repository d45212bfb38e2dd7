package inspect

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/admin"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// State says whether a lock is held, and how.
type State string

const (
	// Leads: the holder is one of ours, and acts.
	Leads State = "leads"
	// Holds: the holder does not say whether it acts: it is a peer (istiod, client-go), or one of ours that settles.
	Holds State = "holds"
	// Nominated: the holder was written in by somebody else, and has not answered yet.
	Nominated State = "nominated"
	// Kept: the lock is a predecessor's, and kept by the elections that came in its place.
	Kept State = "kept"
	// Free: the last holder gave the lock up.
	Free State = "free"
	// Empty: the object carries no record; nobody has held it yet.
	Empty State = "empty"
	// Unreadable: what stands in the record's place cannot be read. It counts as held for a lease.
	Unreadable State = "unreadable"
)

// Candidate is a process that takes part in an election, as it says itself.
type Candidate struct {
	Namespace string `json:"-"`
	Election  string `json:"-"`
	Identity  string `json:"identity"`
	Key       string `json:"key,omitempty"`
	// Warm: its caches are prepared. Fit: it has no reason to rather not lead.
	Warm bool `json:"warm"`
	Fit  bool `json:"fit"`
	// Late: its last report is older than it should be. It may be gone.
	Late bool `json:"late,omitempty"`
	// Version is the program's, and PodUID its Pod's.
	Version string `json:"version,omitempty"`
	PodUID  string `json:"podUID,omitempty"`
}

// able reports whether it could lead, as far as it says.
func (c Candidate) able() bool { return c.Fit && !c.Late }

// Election describes an election, from its lock and its candidates' members.
type Election struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Lock is Lease, ConfigMap or Both.
	Lock  string `json:"lock"`
	State State  `json:"state"`
	// Strategy is that by which a coordinator chooses who leads; empty: no coordinator does. Preferred is the candidate that
	// it wants in the holder's place.
	Strategy  string `json:"strategy,omitempty"`
	Preferred string `json:"preferred,omitempty"`
	// apart: the holder waits for no coordinator, whatever the Lease says.
	apart bool
	// Holder is the recorded holder, in a coordinated election its Pod; Key is its rank, which Revision and Remote decode.
	Holder   string `json:"holder,omitempty"`
	Key      string `json:"key,omitempty"`
	Revision string `json:"revision,omitempty"`
	Remote   bool   `json:"remote,omitempty"`
	// Program is incumbent or istiod; empty: not known.
	Program string `json:"program,omitempty"`
	// Ranked: candidates of the default revision go before others.
	Ranked bool `json:"ranked"`
	// Since and Renewed are the record's acquireTime and renewTime, by the holder's own clock.
	Since   time.Time `json:"since,omitzero"`
	Renewed time.Time `json:"renewed,omitzero"`
	// LeaseSeconds and Transitions are the record's.
	LeaseSeconds int `json:"leaseSeconds,omitempty"`
	Transitions  int `json:"transitions"`
	// Version is the lock object's resourceVersion; of Both, the Lease's.
	Version string `json:"resourceVersion,omitempty"`
	// HandsOver: the leader passes the lock on when it is asked. Unfit: it would rather not lead.
	HandsOver bool `json:"handsOver,omitempty"`
	Unfit     bool `json:"unfit,omitempty"`
	// Former left a marker of an earlier term behind: it may still act.
	Former  string   `json:"former,omitempty"`
	Request *Request `json:"request,omitempty"`
	Hold    *Hold    `json:"hold,omitempty"`
	// Candidates are in the order in which they would go first.
	Candidates []Candidate `json:"candidates,omitempty"`
	// Problems are what an operator should look at, in words.
	Problems []string `json:"problems,omitempty"`
	// Live says whether the holder is alive, from a comparison of two looks (Compare); empty: there was one look.
	Live Liveness `json:"live,omitempty"`
}

// Request is a request that the leader hand over.
type Request struct {
	// To is the candidate that asks for the lock, or is to have it; empty: the leader is to release it.
	To        string `json:"to,omitempty"`
	Key       string `json:"key,omitempty"`
	Reason    string `json:"reason"`
	Requester string `json:"requester,omitempty"`
	Note      string `json:"note,omitempty"`
	Accepted  bool   `json:"accepted"`
	Refused   string `json:"refused,omitempty"`
}

// Hold is an operator's order that the holder stays.
type Hold struct {
	Reason    string `json:"reason"`
	Requester string `json:"requester,omitempty"`
	Note      string `json:"note,omitempty"`
	// Seconds are counted by each candidate from when it first saw the hold.
	Seconds int `json:"seconds"`
}

// Led reports whether the lock names a holder that can lead.
func (e Election) Led() bool { return e.State == Leads || e.State == Holds || e.State == Nominated }

// Known reports whether Candidates are all candidates. Those of ours are there where members publish
// Leases, which members says; a holder that is not is a peer, beside which there may be others.
func (e Election) Known(members bool) bool {
	return members && (e.Holder == "" || e.State == Kept || slices.ContainsFunc(e.Candidates, func(c Candidate) bool { return c.Identity == e.Holder }))
}

// Elections returns the elections that the locks belong to, by namespace and name, with their candidates, in the order in
// which these go first with the default revision d.
func Elections(locks []Lock, candidates []Candidate, d k8sleaderelection.DefaultRevision) []Election {
	type name struct{ namespace, name string }
	byName := map[name][]Lock{}
	for _, l := range locks {
		n := name{l.Namespace, l.Name}
		byName[n] = append(byName[n], l)
	}
	taking := map[name][]Candidate{}
	for _, c := range candidates {
		n := name{c.Namespace, c.Election}
		taking[n] = append(taking[n], c)
	}
	var all []Election
	for n, locks := range byName {
		for _, e := range ofName(locks) {
			e.Candidates = taking[n]
			e.Candidates = inOrder(e.Candidates, e.byRank(), d)
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b Election) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Lock, b.Lock))
	})
	return all
}

// ofName are the elections of locks of one name: one, unless there is a ConfigMap and a Lease
// that do not belong together.
func ofName(locks []Lock) []Election {
	all := make([]Election, 0, len(locks))
	for _, l := range locks {
		all = append(all, Of(l))
	}
	if len(locks) != 2 {
		return all
	}
	if isPart(locks[0]) || isPart(locks[1]) {
		return []Election{pair(locks)}
	}
	for i := range all {
		if all[0].Led() && all[1].Led() {
			all[i].Problems = append(all[i].Problems, fmt.Sprintf(
				"there is a ConfigMap and a Lease of this name, each with a holder: two may lead; candidates move from one kind to the other with both in between (docs/migration.md); if nobody uses this one any more: kubectl -n %s delete %s %s",
				all[i].Namespace, strings.ToLower(all[i].Lock), all[i].Name))
		}
	}
	return all
}

func isPart(l Lock) bool { return l.Snapshot.Notes[k8sresourcelock.MultiLockAnnotation] != "" }

// pair is the election of a ConfigMap and a Lease that are held together, by the Lease's record.
func pair(locks []Lock) Election {
	lease, other := locks[0], locks[1]
	if lease.Kind != Lease {
		lease, other = other, lease
	}
	e := Of(lease)
	e.Lock = Both
	if holder := other.Snapshot.Record.HolderIdentity; holder != e.Holder {
		e.Problems = append(e.Problems, fmt.Sprintf("its ConfigMap names %q and its Lease %q: nobody leads until they agree; if that lasts, see who writes them: kubectl get --show-managed-fields", holder, e.Holder))
	}
	return e
}

// Of returns the election of one lock, from that lock alone: without candidates, and without a second look.
func Of(l Lock) Election {
	s, r := l.Snapshot, l.Snapshot.Record
	notes := admin.DecodeAnnotations(s)
	e := Election{
		Namespace: l.Namespace, Name: l.Name, Lock: l.Kind, Program: l.program(notes.Leads),
		Holder: r.HolderIdentity, Key: r.HolderKey, Since: r.AcquireTime.Time, Renewed: r.RenewTime.Time,
		LeaseSeconds: r.LeaseDurationSeconds, Transitions: r.LeaderTransitions, Version: s.ResourceVersion,
		HandsOver: notes.Handover, Unfit: notes.Unfit, Former: notes.Former, Strategy: s.Strategy, Preferred: s.PreferredHolder,
	}
	e.Revision, e.Remote = strings.CutPrefix(r.HolderKey, "^")
	e.Ranked = e.Key != "" && !strings.HasSuffix(e.Name, "-"+e.Revision)
	e.State = state(s, notes)
	if q := notes.Request; q.Holder != "" {
		e.Request = &Request{To: q.Identity, Key: q.Key, Reason: q.Reason, Requester: q.Requester, Note: q.Note, Accepted: q.Accepted, Refused: q.Refused}
	}
	if h := notes.Hold; h.Holder != "" {
		e.Hold = &Hold{Reason: h.Reason, Requester: h.Requester, Note: h.Note, Seconds: h.Seconds}
	}
	if e.Strategy != "" {
		e = e.pods()
	}
	switch {
	case e.State == Unreadable:
		e.Problems = append(e.Problems, fmt.Sprintf("%v; candidates replace it after a lease; if none runs, delete it: kubectl -n %s delete %s %s",
			s.Unreadable, e.Namespace, strings.ToLower(e.Lock), e.Name))
	case e.Former != "" && e.Former != r.HolderIdentity && e.Led():
		e.Problems = append(e.Problems, fmt.Sprintf("%s led in an earlier term, was displaced by a peer, and may still act until its lease ends", e.Former))
	}
	return e
}

func state(s k8sresourcelock.Snapshot, notes admin.Annotations) State {
	switch {
	case s.Unreadable != nil:
		return Unreadable
	case s.Raw == nil:
		return Empty
	case s.Record.HolderIdentity == "":
		return Free
	case s.KeptForSuccessors():
		return Kept
	case notes.Leads:
		return Leads
	case notes.Nominated:
		return Nominated
	}
	return Holds
}

// inOrder are the candidates as they would go first: by rank, then who is fit, then who is warm.
// Rank leaves most pairs open; what comes after it has to keep to it, or there would be cycles.
func inOrder(all []Candidate, ranked bool, d k8sleaderelection.DefaultRevision) []Candidate {
	sorted := slices.Clone(all)
	slices.SortFunc(sorted, func(a, b Candidate) int {
		byRank := 0
		if ranked {
			byRank = cmp.Or(first(a.of(d), b.of(d)), first(!a.remote(), !b.remote()))
		}
		return cmp.Or(byRank, first(a.able(), b.able()), first(a.Warm, b.Warm), cmp.Compare(a.Identity, b.Identity))
	})
	return sorted
}

// of reports whether the candidate is of the default revision.
func (c Candidate) of(d k8sleaderelection.DefaultRevision) bool {
	return d.Synced && d.Revision != "" && c.Revision() == d.Revision
}

// Revision is the candidate's, by its key.
func (c Candidate) Revision() string { return strings.TrimPrefix(c.Key, "^") }

func (c Candidate) remote() bool { return strings.HasPrefix(c.Key, "^") }

func first(a, b bool) int {
	switch {
	case a && !b:
		return -1
	case b && !a:
		return 1
	}
	return 0
}
