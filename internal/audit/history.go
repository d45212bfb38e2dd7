package audit

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"
)

// Point is the position of a write in the history.
type Point struct {
	// Version is the resourceVersion that the write produced. If Exact is false, it is a lower bound.
	Version uint64
	Exact   bool
	// Received and Answered are time stamps of the API server.
	Received, Answered time.Time
}

// compare returns -1 if p is before q, 1 if it is after q, and 0 if that is unknown.
func (p Point) compare(q Point) int {
	switch {
	case p.Exact && q.Exact:
		return cmp.Compare(p.Version, q.Version)
	case p.Answered.Before(q.Received):
		return -1
	case p.Received.After(q.Answered):
		return 1
	}
	return 0
}

// Write is a write that was stored.
type Write struct {
	Point
	Deleted bool
	Verb    string
	// Resource includes the subresource: "gateways/status".
	Group, Resource, Namespace, Name, UID string
	// Pod is the pod that the writer's token is bound to, User the user name.
	Pod, User string
	// Object is the stored object, if Log.Objects is set.
	Object map[string]any

	account string // that candidates of one lock share
	shared  bool   // several candidates outside of pods have the address and the program of the writer
	lock    *content
}

func (w Write) lockID() Lock { return Lock{w.Resource, w.Namespace, w.Name} }

// History is the ordered list of all stored writes. It is valid until the log is read on.
type History struct {
	log *Log
	// locks has every object that ever had a record with a holder.
	locks map[Lock]bool
	// pods are the pods of writers whose token names none, by source and program.
	pods map[string]map[string]bool
	// aliases are the pods that write an identity of another name, for example with the name of the node.
	aliases map[string]string
}

// History orders the writes. It drops dry runs, rejected writes, and writes that changed nothing.
func (l *Log) History() History {
	l.settle()
	l.boundVersions()
	slices.SortStableFunc(l.entries, func(a, b entry) int {
		if a.version != b.version {
			return cmp.Compare(a.version, b.version)
		}
		if a.exact != b.exact {
			if a.exact {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.received, b.received)
	})
	// Several logs may have the same event, and a write that changes nothing has the version of the previous write.
	l.entries = slices.CompactFunc(l.entries, func(a, b entry) bool {
		return a.version == b.version && a.exact == b.exact && a.target == b.target && (a.exact || a.received == b.received && a.actor == b.actor)
	})
	h := History{log: l, locks: map[Lock]bool{}, pods: map[string]map[string]bool{}, aliases: map[string]string{}}
	h.findLocks()
	return h
}

// boundVersions gives each write without a version the highest version that was answered before its request arrived. A
// deletion has at least the version of the last write of the object or of its subresources.
func (l *Log) boundVersions() {
	if !slices.ContainsFunc(l.entries, func(e entry) bool { return !e.exact }) {
		return
	}
	var exact, open []*entry
	last := map[target]uint64{}
	for i := range l.entries {
		e := &l.entries[i]
		if e.exact {
			exact = append(exact, e)
			continue
		}
		open = append(open, e)
		if e.deleted {
			last[e.whole()] = 0
		}
	}
	for _, e := range exact {
		if len(last) > 0 {
			at := e.whole()
			if version, deleted := last[at]; deleted {
				last[at] = max(version, e.version)
			}
		}
	}
	slices.SortFunc(exact, func(a, b *entry) int { return cmp.Compare(a.answered, b.answered) })
	slices.SortFunc(open, func(a, b *entry) int { return cmp.Compare(a.received, b.received) })
	var highest uint64
	for _, e := range open {
		for len(exact) > 0 && exact[0].answered < e.received {
			highest = max(highest, exact[0].version)
			exact = exact[1:]
		}
		e.version = highest
		if e.deleted {
			e.version = max(highest, last[e.whole()])
		}
	}
}

// whole returns the object of a write without a subresource.
func (e entry) whole() target {
	at := e.target.Value()
	at.resource, _, _ = strings.Cut(at.resource, "/")
	return at
}

// All returns the writes in order.
func (h History) All() iter.Seq[Write] {
	return func(yield func(Write) bool) {
		for _, e := range h.log.entries {
			if !yield(h.write(e)) {
				return
			}
		}
	}
}

// Unanswered returns the writes whose response is not in the log or is an error of the API server (code 500 or more). They
// may have been stored or not.
func (h History) Unanswered() (all []Write) {
	for _, e := range slices.SortedFunc(maps.Values(h.log.open), func(a, b entry) int { return cmp.Compare(a.sequence, b.sequence) }) {
		all = append(all, h.write(e))
	}
	return all
}

func (h History) write(e entry) Write {
	by, at := e.actor.Value(), e.target.Value()
	w := Write{
		Point:   Point{e.version, e.exact, time.Unix(0, e.received).UTC(), time.Unix(0, e.answered).UTC()},
		Deleted: e.deleted, Verb: e.verb.Value(), Group: at.group, Resource: at.resource, Namespace: at.namespace, Name: at.name, UID: at.uid,
		Pod: by.pod, User: by.user, Object: e.object, account: by.user, lock: e.content(),
	}
	if by.pod == "" {
		w.account = cmp.Or(by.program, by.user)
		pods := h.pods[by.source+by.program]
		w.shared = len(pods) > 1
		w.Pod = only(pods)
	}
	return w
}

// only returns the only value of a set, or "".
func only(set map[string]bool) string {
	if len(set) == 1 {
		for value := range set {
			return value
		}
	}
	return ""
}

// findLocks finds the locks, and the pods of writers that only the records name.
func (h *History) findLocks() {
	l := h.log
	writers := map[string]map[string]bool{} // by identity
	bound := map[string]bool{}              // pods that tokens name
	for _, e := range l.entries {
		bound[e.actor.Value().pod] = true
	}
	for _, e := range l.open {
		bound[e.actor.Value().pod] = true
	}
	for _, e := range l.entries {
		r := e.content()
		if r == nil || r.holder == "" {
			continue
		}
		by := e.actor.Value()
		h.locks[e.target.Value().lock()] = true
		switch pod := podOf(r.holder); {
		case by.pod == "" && !r.named && !r.nominated && !bound[pod]:
			add(h.pods, by.source+by.program, pod)
		case pod != r.holder:
			add(writers, pod, by.pod)
		}
	}
	for name, pods := range writers {
		if pod := only(pods); pod != "" && pod != name {
			h.aliases[name] = pod
		}
	}
}

func add[K comparable](sets map[K]map[string]bool, key K, value string) {
	if sets[key] == nil {
		sets[key] = map[string]bool{}
	}
	sets[key][value] = true
}

// Locks returns the locks of the log.
func (h History) Locks() []Lock {
	return slices.SortedFunc(maps.Keys(h.locks), func(a, b Lock) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Resource, b.Resource))
	})
}
