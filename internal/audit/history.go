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
	// pods are the pods of writers whose token names none, by number of the actor. If there are several, the actor is in shared.
	pods   map[uint32]string
	shared map[uint32]bool
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
		return a.version == b.version && a.exact == b.exact && l.target(a) == l.target(b) && (a.exact || a.received == b.received && a.actor == b.actor)
	})
	h := History{log: l, locks: map[Lock]bool{}, pods: map[uint32]string{}, shared: map[uint32]bool{}, aliases: map[string]string{}}
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
			last[l.whole(*e)] = 0
		}
	}
	for _, e := range exact {
		if len(last) > 0 {
			at := l.whole(*e)
			if version, deleted := last[at]; deleted {
				last[at] = max(version, e.version)
			}
		}
	}
	slices.SortFunc(exact, func(a, b *entry) int { return cmp.Compare(a.answered(), b.answered()) })
	slices.SortFunc(open, func(a, b *entry) int { return cmp.Compare(a.received, b.received) })
	var highest uint64
	for _, e := range open {
		for len(exact) > 0 && exact[0].answered() < e.received {
			highest = max(highest, exact[0].version)
			exact = exact[1:]
		}
		e.version = highest
		if e.deleted {
			e.version = max(highest, last[l.whole(*e)])
		}
	}
}

// whole returns the object of a write without a subresource.
func (l *Log) whole(e entry) target {
	at := l.target(e)
	at.resource, _, _ = strings.Cut(at.resource, "/")
	return at
}

func (e entry) answered() int64 { return e.received + int64(e.took)*int64(time.Microsecond) }

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
	l := h.log
	by, at := l.actors.values[e.actor], l.target(e)
	w := Write{
		Point:   Point{e.version, e.exact, time.Unix(0, e.received).UTC(), time.Unix(0, e.answered()).UTC()},
		Deleted: e.deleted, Verb: verbs[e.verb], Group: at.group, Resource: at.resource, Namespace: at.namespace, Name: at.name, UID: at.uid,
		Pod: by.pod, User: by.user, Object: l.kept[e.sequence], account: by.user, shared: h.shared[e.actor],
	}
	if w.Pod == "" && by.program != "" {
		w.account = by.program
	}
	if w.Pod == "" {
		w.Pod = h.pods[e.actor]
	}
	if e.state > 0 {
		w.lock = &l.states.values[e.state-1]
	}
	return w
}

// findLocks finds the locks, and the pods of writers that only the records name.
func (h *History) findLocks() {
	l := h.log
	holders := map[string]map[string]bool{} // by source and program
	writers := map[string]map[string]bool{} // by identity
	bound := map[string]bool{}              // pods that tokens name
	for _, by := range l.actors.values {
		bound[by.pod] = true
	}
	for _, e := range l.entries {
		if e.state == 0 || l.states.values[e.state-1].holder == "" {
			continue
		}
		at, by, r := l.target(e), l.actors.values[e.actor], l.states.values[e.state-1]
		h.locks[Lock{at.resource, at.namespace, at.name}] = true
		switch pod := podOf(r.holder); {
		case by.pod == "" && !r.named && !r.nominated && !bound[pod]:
			add(holders, by.source+by.program, pod)
		case pod != r.holder:
			add(writers, pod, by.pod)
		}
	}
	for n, by := range l.actors.values {
		pods := holders[by.source+by.program]
		h.shared[uint32(n)] = by.pod == "" && len(pods) > 1
		for pod := range pods {
			if by.pod == "" && len(pods) == 1 {
				h.pods[uint32(n)] = pod
			}
		}
	}
	for name, pods := range writers {
		for pod := range pods {
			if len(pods) == 1 && pod != name {
				h.aliases[name] = pod
			}
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
