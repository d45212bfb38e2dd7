package audit

import (
	"fmt"
	"slices"
	"strings"
)

// NoLock is the Lock of a Guard for writes that every replica makes.
const NoLock = "-"

// Guard assigns writes to the election that guards them.
type Guard struct {
	// Lock is the name of the lock, or NoLock. If PerRevision is true, the revision of the writer is appended.
	Lock        string
	PerRevision bool
	// Resources include subresources: "gateways/status". Name limits them to objects of that name.
	Resources []string
	Name      string
}

// Guards reports whether the guard is about a write.
func (g Guard) Guards(w Write) bool {
	return slices.Contains(g.Resources, w.Resource) && (g.Name == "" || g.Name == w.Name)
}

// Has reports whether the guard assigns writes to a lock.
func (g Guard) Has(lock Lock) bool {
	return lock.Name == g.Lock || g.PerRevision && strings.HasPrefix(lock.Name, g.Lock+"-")
}

// Istio returns the guards of the controllers that istiod and incumbent share.
func Istio() []Guard {
	return []Guard{
		{Lock: "istio-namespace-controller-election", Resources: []string{"configmaps"}, Name: "istio-ca-root-cert"},
		{Lock: "istio-leader", Resources: []string{"ingresses/status"}},
		{Lock: "istio-gateway-status-leader", PerRevision: true, Resources: []string{
			"gatewayclasses", "gatewayclasses/status", "gateways/status", "httproutes/status", "grpcroutes/status", "tlsroutes/status",
			"tcproutes/status", "udproutes/status", "listenersets/status", "xlistenersets/status", "backendtlspolicies/status",
		}},
		{Lock: "istio-gateway-deployment", PerRevision: true, Resources: []string{
			"gateways", "serviceaccounts", "services", "deployments", "horizontalpodautoscalers", "poddisruptionbudgets", "networkpolicies",
		}},
	}
}

// ParseGuard parses LOCK=RESOURCE[/SUBRESOURCE][:NAME].
func ParseGuard(text string) (Guard, error) {
	lock, what, ok := strings.Cut(text, "=")
	resource, name, _ := strings.Cut(what, ":")
	if !ok || lock == "" || resource == "" || resource != strings.ToLower(resource) || strings.ContainsAny(resource, " .") {
		return Guard{}, fmt.Errorf("%q is not LOCK=RESOURCE[/SUBRESOURCE][:NAME], for example istio-leader=ingresses/status", text)
	}
	return Guard{Lock: lock, Resources: []string{resource}, Name: name}, nil
}

// matter returns what a write is about: its resource, and for ConfigMaps and Secrets the name.
func (w Write) matter() string {
	if w.Resource == "configmaps" || w.Resource == "secrets" {
		return w.Resource + ":" + w.Name
	}
	return w.Resource
}

// object identifies the object of a write.
func (w Write) object() string {
	return w.Resource + " " + strings.TrimPrefix(w.Namespace+"/"+w.Name, "/")
}

// ignored are resources that every replica writes.
var ignored = []string{
	"events", "leases", "leasecandidates", "tokenreviews", "subjectaccessreviews", "localsubjectaccessreviews", "selfsubjectaccessreviews",
	"selfsubjectrulesreviews", "selfsubjectreviews", "serviceaccounts/token", "mutatingwebhookconfigurations", "validatingwebhookconfigurations",
}

// attribution finds out which lock guards which writes.
type attribution struct {
	history History
	books   books
	given   []Guard
	// rivals are the locks for which each account is a candidate.
	rivals map[string][]Lock
	// found counts the writes without a given guard. Writers of another namespace can have the same matter.
	found map[claim]*coverage
	// objects has the objects that a leader wrote, without the objects of a given guard.
	objects map[string]bool
	// unclear counts the writes of candidates by matter that belong to no lock. disputed counts the writes that are late for one
	// possible lock only, or of objects that a leader also wrote. foreign counts the writes of several candidates of one address.
	unclear, disputed, foreign map[string]int
}

// claim is a lock that may guard a matter.
type claim struct {
	matter string
	lock   Lock
}

// coverage counts the writes of a claim, and the pods that made some of them in a term.
type coverage struct {
	held, unelected int
	pods            map[string]bool
}

// clear reports whether the holder makes the writes. Replicas that never held the lock do not make them.
func (c *coverage) clear() bool { return c.held >= 4*c.unelected }

// attribute counts the writes that no guard names.
func attribute(h History, courses map[Lock]*Course, given []Guard) *attribution {
	a := &attribution{
		history: h, books: newBooks(courses), given: given, rivals: map[string][]Lock{}, found: map[claim]*coverage{},
		objects: map[string]bool{}, unclear: map[string]int{}, disputed: map[string]int{}, foreign: map[string]int{},
	}
	a.findRivals()
	for w := range h.All() {
		if w.shared && !h.locks[w.lockID()] && !slices.Contains(ignored, w.Resource) {
			a.foreign[w.account]++
		}
		if !a.judged(w) || len(a.byGuard(w)) > 0 {
			continue
		}
		for _, lock := range a.rivals[w.account] {
			key := claim{w.matter(), lock}
			if a.found[key] == nil {
				a.found[key] = &coverage{pods: map[string]bool{}}
			}
			c := a.found[key]
			switch own, in := a.books[lock].own(w); {
			case own == nil:
				c.unelected++
			case in != after:
				c.held++
				c.pods[w.Pod] = true
				a.objects[w.object()] = true
			}
		}
	}
	return a
}

// findRivals finds the accounts of the candidates of each lock.
func (a *attribution) findRivals() {
	users := map[Lock]map[string]bool{}
	for w := range a.history.All() {
		if w.lock != nil && w.Pod != "" {
			add(users, w.lockID(), w.account)
		}
	}
	for _, lock := range a.history.Locks() {
		for account := range users[lock] {
			a.rivals[account] = append(a.rivals[account], lock)
		}
	}
}

// learned returns the locks of an account that may guard a matter: no other lock had more of the writers as its leaders. The number of
// writes does not count, because a late writer decides how many there are.
func (a *attribution) learned(account, matter string) (locks []Lock) {
	most := 0
	for _, lock := range a.rivals[account] {
		c := a.found[claim{matter, lock}]
		if c == nil || c.held == 0 || len(c.pods) < most {
			continue
		}
		if len(c.pods) > most {
			most = len(c.pods)
			locks = nil
		}
		locks = append(locks, lock)
	}
	return locks
}

// judged reports whether a candidate made the write, and it is no write of a lock.
func (a *attribution) judged(w Write) bool {
	return w.Pod != "" && len(a.rivals[w.account]) > 0 && !a.history.locks[w.lockID()] && !slices.Contains(ignored, w.Resource) &&
		!slices.ContainsFunc(a.given, func(g Guard) bool { return g.Lock == NoLock && g.Guards(w) })
}

// byGuard returns the locks that a given guard assigns to a write of their candidate.
func (a *attribution) byGuard(w Write) (locks []Lock) {
	for _, g := range a.given {
		if !g.Guards(w) {
			continue
		}
		for _, lock := range a.rivals[w.account] {
			if g.Has(lock) {
				locks = append(locks, lock)
			}
		}
		if len(locks) > 0 {
			return locks
		}
	}
	return nil
}

// guards returns the locks that permit a write: the writer must hold at least one.
func (a *attribution) guards(w Write) []Lock {
	if !a.judged(w) {
		return nil
	}
	if locks := a.byGuard(w); len(locks) > 0 {
		return locks
	}
	locks := a.learned(w.account, w.matter())
	late, clear := 0, 0
	for _, lock := range locks {
		if _, in := a.books[lock].own(w); in == after {
			late++
		}
		if a.found[claim{w.matter(), lock}].clear() {
			clear++
		}
	}
	switch {
	case clear == 0 && (late == 0 || !a.objects[w.object()]):
		a.unclear[w.matter()]++
	case clear == 0, late > 0 && late < len(locks), late > 0 && clear < len(locks):
		a.disputed[w.matter()]++
	default:
		return locks
	}
	return nil
}
