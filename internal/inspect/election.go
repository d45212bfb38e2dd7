package inspect

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"incumbent.dev/incumbent/internal/errlist"
	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

// State is the state of a lock.
type State string

const (
	// Leads means that the holder is an incumbent leader.
	Leads State = "leads"
	// Holds means that the holder has no marker. It is another elector (istiod, client-go), or it is settling.
	Holds State = "holds"
	// Nominated means that another process wrote the holder, and the holder has not written the lock yet.
	Nominated State = "nominated"
	// Free means that the last holder released the lock.
	Free State = "free"
	// Empty means that the object has no record.
	Empty State = "empty"
	// Unreadable means that the record is invalid. It counts as held for a lease duration.
	Unreadable State = "unreadable"
	// Expired means that the holder did not renew within its lease, by the clock of the API server.
	Expired State = "expired"
	// Doubtful means that the last renewal is old by the holder's clock only, or so old that the lease may have just expired.
	Doubtful State = "unknown"
	// Unread means that the process has not read the lock, or cannot read it.
	Unread State = "unread"
)

// Candidate is a process that takes part in an election, as its member Lease describes it.
type Candidate struct {
	Namespace string `json:"-"`
	Election  string `json:"-"`
	Identity  string `json:"identity"`
	Key       string `json:"key,omitempty"`
	// Warm is true if its caches are prepared. Fit is true if its fitness check succeeds.
	Warm bool `json:"warm"`
	Fit  bool `json:"fit"`
	// Late is true if its member Lease was not renewed in time. BackingOff is true if it does not campaign after a step-down.
	Late       bool `json:"late,omitempty"`
	BackingOff bool `json:"backingOff,omitempty"`
	// Version is the version of its program. PodUID is the UID of its Pod.
	Version string `json:"version,omitempty"`
	PodUID  string `json:"podUID,omitempty"`
	// Witness is the process that releases the lock after the candidate has ended: parent, sidecar, unreachable or none.
	Witness string `json:"witness,omitempty"`
	// Strategy is the requested strategy of the coordinator. It is empty if the candidate is not coordinated.
	Strategy string `json:"strategy,omitempty"`
	// Uncoordinated is the reason why no coordinator chooses the leader although the candidate requests a strategy.
	Uncoordinated string `json:"uncoordinated,omitempty"`
	// Refused is why the API server rejected its last write as holder. Down is why its Pod does not run.
	Refused string `json:"refused,omitempty"`
	Down    string `json:"down,omitempty"`
}

// Readiness is whether a candidate can lead now, or the reason why not.
type Readiness string

const (
	Down        Readiness = "not running"
	Late        Readiness = "late"
	Refused     Readiness = "rejected by the API server"
	CoolingDown Readiness = "cooling down"
	Unfit       Readiness = "unfit"
	Cold        Readiness = "not warm"
	Ready       Readiness = "ready"
)

// Readiness returns the most important reason why the candidate cannot lead now, or Ready.
func (c Candidate) Readiness() Readiness {
	switch {
	case c.Down != "":
		return Down
	case c.Late:
		return Late
	case c.Refused != "":
		return Refused
	case c.BackingOff:
		return CoolingDown
	case !c.Fit:
		return Unfit
	case !c.Warm:
		return Cold
	}
	return Ready
}

// Replaceable reports whether a candidate other than the holder can lead now.
func (e Election) Replaceable() bool {
	return slices.ContainsFunc(e.Candidates, func(c Candidate) bool { return c.Identity != e.Holder && c.Readiness() == Ready })
}

// able reports whether it can lead, now or after its warm-up.
func (c Candidate) able() bool { return c.Readiness() == Ready || c.Readiness() == Cold }

// Election is the state of an election.
type Election struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Cluster is the cluster of the lock. It is empty for the cluster of the process.
	Cluster string `json:"cluster,omitempty"`
	// Lock is Lease or ConfigMap.
	Lock  string `json:"lock"`
	State State  `json:"state"`
	// Strategy is the strategy of the coordinator. It is empty if the election is not coordinated. Preferred is the candidate
	// that should replace the holder.
	Strategy  string `json:"strategy,omitempty"`
	Preferred string `json:"preferred,omitempty"`
	// Uncoordinated is the reason why no coordinator chooses the leader although candidates request a strategy.
	Uncoordinated string `json:"uncoordinated,omitempty"`
	// apart is true if the election has a strategy, but the holder is not coordinated.
	apart bool
	// inSpec is true if Strategy and Preferred are fields of the Lease. Otherwise they are annotations.
	inSpec bool
	// finalizers are the finalizers of a lock that is being deleted.
	finalizers []string
	// invalid has the annotations of incumbent with invalid values.
	invalid []string
	// long has the sentences about durations that are too long, by field. healed is the record of a ConfigMap with the usual lease.
	long   map[string]string
	healed string
	// Holder is the recorded holder; if candidates request a strategy, its Pod. Key is its key, which Revision and Remote decode.
	Holder   string `json:"holder,omitempty"`
	Key      string `json:"key,omitempty"`
	Revision string `json:"revision,omitempty"`
	Remote   bool   `json:"remote,omitempty"`
	// Program is incumbent or istiod. It is empty if unknown.
	Program string `json:"program,omitempty"`
	// Ranked is true if candidates of the default revision outrank others.
	Ranked bool `json:"ranked"`
	// Since and Renewed are acquireTime, which the first acknowledged write of a term sets, and renewTime, by the clock of the API server if the object has managedFields.
	Since   time.Time `json:"since,omitzero"`
	Renewed time.Time `json:"renewed,omitzero"`
	// Ahead is how much later renewTime is than the API server's clock was. Idle is the time since Renewed.
	Ahead time.Duration `json:"-"`
	Idle  time.Duration `json:"-"`
	// LeaseSeconds and Transitions are from the record.
	LeaseSeconds int `json:"leaseSeconds,omitempty"`
	Transitions  int `json:"transitions"`
	// Version is the resourceVersion of the lock.
	Version string `json:"resourceVersion,omitempty"`
	// HandsOver is true if the leader accepts handover requests. Unfit is true if the leader marked itself unfit.
	HandsOver bool `json:"handsOver,omitempty"`
	Unfit     bool `json:"unfit,omitempty"`
	// Former is the leader of an earlier term whose marker remains. It may still be active.
	Former string `json:"former,omitempty"`
	// Request and Hold belong to the current term, and candidates apply them. Each text is on one line.
	Request *record.Request `json:"request,omitempty"`
	Hold    *record.Hold    `json:"hold,omitempty"`
	// Candidates are in order of preference. They are nil if they are unknown, because no process publishes a member Lease.
	Candidates []Candidate `json:"candidates,omitempty"`
	// Problems are sentences for an operator.
	Problems []string `json:"problems,omitempty"`
	// Obstacles are annotations that prevent a leader or a change of the leader.
	Obstacles []Obstacle `json:"obstacles,omitempty"`
	// Live is the result of Compare. It is empty after a single read.
	Live Liveness `json:"live,omitempty"`
	// Process is the state of the process that observes the election. It is nil if electionctl read the lock.
	Process *Process `json:"process,omitempty"`
}

// Is reports whether both are states of the same lock.
func (e Election) Is(o Election) bool {
	return e.Namespace == o.Namespace && e.Name == o.Name && e.Lock == o.Lock
}

// Kind returns the kind of the lock object.
func (e Election) Kind() record.Kind { return record.Kind(strings.ToLower(e.Lock)) }

// Led reports whether the lock has a holder whose lease may not have expired.
func (e Election) Led() bool {
	return e.State == Leads || e.State == Holds || e.State == Nominated || e.State == Doubtful
}

// StateText returns the state, with the age of the last renewal if the lease may have expired.
func (e Election) StateText() string {
	switch {
	case e.State == Unread:
		return "unknown: the lock cannot be read"
	case e.State != Expired && e.State != Doubtful, e.Idle == 0 && !e.Renewed.IsZero():
		return string(e.State)
	case e.Renewed.IsZero():
		return fmt.Sprintf("%s (no renewal recorded)", e.State)
	}
	return fmt.Sprintf("%s (renewed %s ago)", e.State, duration.HumanDuration(e.Idle))
}

// usualLease is the default lease of istiod and of this project. The lease of the processes is unknown.
const usualLease = 30 * time.Second

// clockTolerance is the difference between clocks of API servers, with the rounding to seconds, that does not change a judgement.
const clockTolerance = 2 * time.Second

// judge corrects the times of a holder by the API server's clock, and judges whether its lease has expired.
func (e Election) judge(l Lock) Election {
	if !l.written.IsZero() && (e.Led() || !e.Renewed.IsZero()) {
		if !e.Renewed.IsZero() {
			e.Ahead = e.Renewed.Sub(l.written)
		}
		if e.Ahead.Abs() > clockTolerance && !e.Since.IsZero() {
			e.Since = l.written.Add(e.Since.Sub(e.Renewed))
		}
		e.Renewed = l.written
	}
	if l.At.IsZero() || !e.Led() {
		return e
	}
	e.Renewed = earliest(e.Renewed, l.At)
	e.Since = earliest(e.Since, l.At)
	e.Idle = l.At.Sub(e.Renewed)
	switch lease := time.Duration(e.LeaseSeconds) * time.Second; {
	case e.Idle <= lease:
	case l.written.IsZero() || e.Idle <= lease+clockTolerance:
		e.State = Doubtful
	default:
		e.State = Expired
	}
	return e
}

// instant returns a time of a record, or zero if JSON cannot represent its year.
func instant(t time.Time) time.Time {
	if t = t.UTC(); t.Year() > 9999 {
		return time.Time{}
	}
	return t
}

func earliest(times ...time.Time) time.Time { return slices.MinFunc(times, time.Time.Compare) }

// Known reports whether Candidates contains all candidates. If the holder is no member, it is another elector, and there may be more.
func (e Election) Known() bool {
	return e.Candidates != nil && (e.Holder == "" || slices.ContainsFunc(e.Candidates, func(c Candidate) bool { return c.Identity == e.Holder }))
}

// Elections returns the elections of the locks, sorted by namespace and name. Candidates are in order of preference for the
// default revision d. members are the namespaces with member Leases, in which the candidates are known.
func Elections(locks []Lock, candidates []Candidate, members map[string]bool, d k8sleaderelection.DefaultRevision) []Election {
	type name struct{ namespace, name string }
	byName := map[name][]Lock{}
	for _, l := range locks {
		n := name{l.Namespace, l.Name}
		byName[n] = append(byName[n], l)
	}
	taking := map[name][]Candidate{}
	for n := range byName {
		if members[n.namespace] {
			taking[n] = []Candidate{}
		}
	}
	for _, c := range candidates {
		n := name{c.Namespace, c.Election}
		taking[n] = append(taking[n], c)
	}
	var all []Election
	for n, locks := range byName {
		for _, e := range ofName(locks) {
			all = append(all, e.With(taking[n], d))
		}
	}
	slices.SortFunc(all, func(a, b Election) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Lock, b.Lock))
	})
	return all
}

// With returns the election with its candidates, in order of preference for the default revision d, and its obstacles. If no
// candidate has a member Lease, the candidates are unknown.
func (e Election) With(candidates []Candidate, d k8sleaderelection.DefaultRevision) Election {
	e = e.among(candidates)
	e.Candidates = inOrder(candidates, e.byRank(), d)
	e.Obstacles = e.obstacles()
	return e
}

// ofName returns the elections of the locks of one name: two, if a ConfigMap and a Lease exist. One holder of both is moving its
// election from the ConfigMap to the Lease.
func ofName(locks []Lock) []Election {
	all := make([]Election, 0, len(locks))
	for _, l := range locks {
		all = append(all, Of(l))
	}
	if len(locks) != 2 {
		return all
	}
	slices.SortFunc(all, func(a, b Election) int { return cmp.Compare(a.Lock, b.Lock) })
	for i := range all {
		if all[0].Led() && all[1].Led() && all[0].Holder != all[1].Holder {
			all[i].Problems = append(all[i].Problems, fmt.Sprintf(
				"the %s has the holder %s and the %s has the holder %s, so two leaders can be active, unless the holder of the ConfigMap migrates with --lock=multi (docs/migration.md)",
				all[0].Lock, all[0].Holder, all[1].Lock, all[1].Holder))
		}
	}
	return all
}

// Of returns the election of one lock, without candidates and liveness.
func Of(l Lock) Election {
	s, r := l.Snapshot, l.Snapshot.Record
	snap, _ := s.Decode() // the version is shown as it is
	marker := snap.Annotations.Marker
	e := Election{
		Namespace: l.Namespace, Name: l.Name, Lock: l.Kind, Program: l.program(snap.Acting()),
		Since: instant(r.AcquireTime.Time), Renewed: instant(r.RenewTime.Time),
		LeaseSeconds: r.LeaseDurationSeconds, Transitions: r.LeaderTransitions, Version: s.ResourceVersion,
		HandsOver: snap.Acting() && marker.Handover, Unfit: snap.Acting() && marker.Unfit, Former: snap.Former(), Strategy: cmp.Or(s.Strategy, l.strategy), Preferred: s.PreferredHolder, inSpec: strategyInSpec(s),
		invalid: snap.Annotations.Invalid(s.Annotations), long: map[string]string{},
	}
	for _, d := range snap.LongDurations(usualLease) {
		e.long[d.Name()] = oneLine(d.Report(&snap, s.Writer(d.Field)))
		if d.Field == record.LeaseDuration {
			e.healed = healed(r)
		}
	}
	for _, text := range []*string{&e.Former, &e.Strategy, &e.Preferred} {
		*text = oneLine(*text)
	}
	e.setHolder(oneLine(r.HolderIdentity), oneLine(r.HolderKey))
	e.Ranked = e.Key != "" && !strings.HasSuffix(e.Name, "-"+e.Revision)
	e.State = state(snap)
	if e.State == Nominated {
		e.Since = time.Time{} // the term begins with the first write of the nominee
	}
	e = e.judge(l)
	e.setOrders(snap)
	if snap.Acting() && marker.Uncoordinated {
		e.Uncoordinated = leaderelection.NoCoordinator
	}
	if e.Strategy != "" {
		e = e.pods()
	}
	if e.State == Unreadable {
		e.Problems = []string{oneLine(s.Unreadable.Error()) + "; candidates replace it after a lease duration"}
	}
	e.finalizers = l.finalizers
	return e
}

// setOrders sets the request and the hold.
func (e *Election) setOrders(snap record.Snapshot) {
	if snap.Addressed() {
		r := snap.Annotations.Request.Bounded()
		for _, text := range []*string{&r.Identity, &r.Key, &r.Holder, &r.Reason, &r.Requester, &r.Note, &r.Refused} {
			*text = oneLine(*text)
		}
		e.Request = &r
	}
	if snap.OnHold() {
		h := snap.Annotations.Hold.Bounded()
		for _, text := range []*string{&h.Holder, &h.Reason, &h.Requester, &h.Note} {
			*text = oneLine(*text)
		}
		e.Hold = &h
	}
}

func (e *Election) setHolder(identity, key string) {
	e.Holder = identity
	e.Key = key
	e.Revision, e.Remote = k8sleaderelection.ParseRevisionKey(key)
}

func state(s record.Snapshot) State {
	switch {
	case s.Content == record.Unreadable:
		return Unreadable
	case s.Content == record.Missing:
		return Empty
	case s.Record.Holder == "":
		return Free
	case s.Acting():
		return Leads
	case s.Nominated():
		return Nominated
	}
	return Holds
}

// inOrder sorts candidates by rank, then fit before unfit, then warm before cold.
func inOrder(all []Candidate, ranked bool, d k8sleaderelection.DefaultRevision) []Candidate {
	sorted := slices.Clone(all)
	slices.SortFunc(sorted, func(a, b Candidate) int {
		byRank := 0
		if ranked {
			byRank = compareRank(a, b, d)
		}
		return cmp.Or(byRank, first(a.able(), b.able()), first(a.Warm, b.Warm), cmp.Compare(a.Identity, b.Identity))
	})
	return sorted
}

// compareRank compares the ranks of candidates for a free lock.
func compareRank(a, b Candidate, d k8sleaderelection.DefaultRevision) int {
	return cmp.Or(first(a.of(d), b.of(d)), first(!a.remote(), !b.remote()))
}

// of reports whether the candidate has the default revision.
func (c Candidate) of(d k8sleaderelection.DefaultRevision) bool {
	return d.Synced && d.Revision != "" && c.Revision() == d.Revision
}

// Revision returns the revision in the candidate's key.
func (c Candidate) Revision() string {
	revision, _ := k8sleaderelection.ParseRevisionKey(c.Key)
	return revision
}

func (c Candidate) remote() bool {
	_, remote := k8sleaderelection.ParseRevisionKey(c.Key)
	return remote
}

func first(a, b bool) int {
	switch {
	case a && !b:
		return -1
	case b && !a:
		return 1
	}
	return 0
}

// maxText is the maximum length of a text of another process. It is longer than any name.
const maxText = 300

// oneLine returns a text of another process on one line, because its writer could forge lines of the output, and its beginning if
// it is long.
func oneLine(s string) string {
	return errlist.SingleLine(s, maxText)
}
