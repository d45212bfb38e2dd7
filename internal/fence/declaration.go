package fence

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"incumbent.dev/incumbent/internal/record"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Mode is the treatment of violations by the API server.
type Mode string

// The modes. In all modes but Deny, violations are admitted and a missing lock has no effect.
const (
	// Deny rejects violations.
	Deny Mode = "deny"
	// Warn admits violations with a warning and an entry in the audit log.
	Warn Mode = "warn"
	// Audit admits violations with an entry in the audit log.
	Audit Mode = "audit"
)

// RevisionWord is replaced by the revision in the names of service accounts and in the
// labels of a declaration with Revisions.
const RevisionWord = "{revision}"

// Declaration describes the fence of an election. It can be stored as JSON or YAML.
type Declaration struct {
	// Election is the name of the lock object. With Revisions, "-<revision>" is appended.
	Election string `json:"election"`
	// Namespace of the lock object.
	Namespace string `json:"namespace"`
	// Lock is the kind of the lock object: "configmap" or "lease".
	Lock record.Kind `json:"lock"`
	// Revisions declares a per-revision election. Each revision has its lock "<election>-<revision>" and its policies.
	Revisions []string `json:"revisions,omitempty"`
	// Mode is "deny" (default), "warn" or "audit".
	Mode Mode `json:"mode,omitempty"`
	// ServiceAccounts of the candidates, as "namespace/name". Writes of other users are not guarded.
	ServiceAccounts []string `json:"serviceAccounts"`
	// Others are further service accounts whose pods may hold the lock, as "namespace/name". A * at the end matches any
	// suffix. This declaration does not guard their writes, but another one can. So two revisions that share a lock can have
	// separate fences.
	Others []string `json:"others,omitempty"`
	// Coordinators are the users that may write a candidate as holder, for example
	// system:serviceaccount:istio-system:coordinator, or system:apiserver for the coordinator of Kubernetes.
	Coordinators []string `json:"coordinators,omitempty"`
	// Coordinated is true if a coordinator chooses the holder (package coordination). The lock must be a Lease. The holder
	// is "<pod>.<lock>" or the pod. A pod may write only its own LeaseCandidates in the namespace. If Coordinators contains
	// no service account, all ServiceAccounts and Others may coordinate.
	Coordinated bool `json:"coordinated,omitempty"`
	// Guards select the writes that only the holder may make. If empty, only the lock is guarded.
	Guards []Guard `json:"guards,omitempty"`
	// Members is true if each process of the accounts publishes a member Lease in the namespace. A pod may write only its
	// own member Lease, and other Leases that RBAC permits it to update by name.
	Members bool `json:"members,omitempty"`
	// WithoutLockGuard leaves the protection of the lock object to RBAC.
	WithoutLockGuard bool `json:"withoutLockGuard,omitempty"`
}

// Validate returns all problems of the declaration with suggestions.
func (d Declaration) Validate() error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if d.Election == "" {
		wrong("no election: give the name of the lock object, such as istio-leader")
	}
	for _, problem := range orNothing(d.Election, validation.IsDNS1123Subdomain) {
		wrong("election %q: %s", d.Election, problem)
	}
	if d.Namespace == "" {
		wrong("no namespace: give the namespace of the lock object, such as istio-system")
	}
	for _, problem := range orNothing(d.Namespace, validation.IsDNS1123Label) {
		wrong("namespace %q: %s", d.Namespace, problem)
	}
	if d.Lock != record.ConfigMap && d.Lock != record.Lease {
		wrong("lock %q: give configmap or lease", d.Lock)
	}
	if d.Coordinated && d.Lock == record.ConfigMap {
		wrong("coordinated with lock %q: a coordinator supports only Leases: give lease", d.Lock)
	}
	if !slices.Contains([]Mode{"", Deny, Warn, Audit}, d.Mode) {
		wrong("mode %q: give deny, warn or audit", d.Mode)
	}
	errs = append(errs, d.validateRevisions()...)
	errs = append(errs, d.validateWho()...)
	for i, g := range d.Guards {
		if err := g.validate(d.Revisions); err != nil {
			wrong("guard %d (%s): %w", i+1, strings.Join(g.Resources, ", "), err)
		}
	}
	if len(d.Guards) == 0 && d.WithoutLockGuard {
		wrong("the declaration guards nothing: give guards, or remove withoutLockGuard")
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("fence for election %q: %w", d.Election, errors.Join(errs...))
}

func (d Declaration) validateRevisions() (errs []error) {
	for _, revision := range d.Revisions {
		for _, problem := range validation.IsDNS1123Label(revision) {
			errs = append(errs, fmt.Errorf("revision %q: %s", revision, problem))
		}
	}
	if len(d.Revisions) < 2 || strings.Contains(strings.Join(d.ServiceAccounts, " "), RevisionWord) {
		return errs
	}
	for i, g := range d.Guards {
		if !g.perRevision() {
			// A token contains the pod and its account, but not the revision. With one account, the locks of other revisions
			// would reject each leader.
			errs = append(errs, fmt.Errorf("guard %d (%s): revisions %s share their service accounts and objects: put %s into the accounts' names, or into a label of the objects",
				i+1, strings.Join(g.Resources, ", "), strings.Join(d.Revisions, ", "), RevisionWord))
		}
	}
	return errs
}

func (d Declaration) validateWho() (errs []error) {
	if len(d.ServiceAccounts) == 0 {
		errs = append(errs, errors.New("no service accounts: give the accounts of the candidates, such as istio-system/pilot"))
	}
	check := func(what, account, name, example string) {
		namespace, name, ok := strings.Cut(strings.ReplaceAll(name, RevisionWord, "x"), "/")
		if !ok || len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0 {
			errs = append(errs, fmt.Errorf("%s %q: give namespace/name, such as %s", what, account, example))
		}
		if strings.Contains(account, RevisionWord) && len(d.Revisions) == 0 {
			errs = append(errs, fmt.Errorf("%s %q: %s needs revisions: list them", what, account, RevisionWord))
		}
	}
	for _, account := range d.ServiceAccounts {
		check("service account", account, account, "istio-system/pilot")
	}
	for _, account := range d.Others {
		name := account
		if before, open := strings.CutSuffix(account, "*"); open {
			name = before + "x"
		}
		check("others", account, name, "istio-system/pilot-*")
	}
	for _, user := range d.Coordinators {
		if user == "" || strings.ContainsAny(user, `'\`) || strings.ContainsFunc(user, unicode.IsControl) {
			errs = append(errs, fmt.Errorf("coordinator %q: give a user's name, such as system:apiserver", user))
		}
	}
	return errs
}

// orNothing checks a value that is not empty.
func orNothing(value string, check func(string) []string) []string {
	if value == "" {
		return nil
	}
	return check(value)
}

// single is a declaration with one lock object. RevisionWord is replaced.
type single struct {
	Declaration
	Name string // of the lock object
	// declared is the declaration with at most this revision, before RevisionWord is replaced in guards.
	declared Declaration
}

// split returns one declaration per lock, with the default mode.
func (d Declaration) split() []single {
	d.Mode = cmp.Or(d.Mode, Deny)
	if len(d.Revisions) == 0 {
		return []single{{Declaration: d, Name: d.Election, declared: d}}
	}
	var all []single
	for _, revision := range d.Revisions {
		one := single{Declaration: d, Name: d.Election + "-" + revision}
		one.ServiceAccounts = ForRevisions(d.ServiceAccounts, []string{revision})
		one.Others = ForRevisions(d.Others, []string{revision})
		one.Guards = nil
		one.declared = one.Declaration
		one.declared.Revisions, one.declared.Guards = []string{revision}, d.Guards
		for _, g := range d.Guards {
			one.Guards = append(one.Guards, g.inRevision(revision))
		}
		all = append(all, one)
	}
	return all
}

// ForRevisions replaces RevisionWord in accounts by each revision.
func ForRevisions(accounts, revisions []string) (all []string) {
	for _, account := range accounts {
		if !strings.Contains(account, RevisionWord) || len(revisions) == 0 {
			all = append(all, account)
			continue
		}
		for _, revision := range revisions {
			all = append(all, strings.ReplaceAll(account, RevisionWord, revision))
		}
	}
	return all
}

// Where returns the lock for messages.
func (s single) Where() string { return fmt.Sprintf("%s %s/%s", s.Lock, s.Namespace, s.Name) }

// users returns the user names of the service accounts.
func (s single) users() []string { return usersOf(s.ServiceAccounts) }

func usersOf(accounts []string) (users []string) {
	for _, account := range accounts {
		user, _ := UserOf(account)
		users = append(users, user)
	}
	return users
}

// serviceAccountPrefix is the prefix of the user name of a service account.
const serviceAccountPrefix = "system:serviceaccount:"

// UserOf returns the user name and the groups of a service account, given as "namespace/name".
func UserOf(account string) (name string, groups []string) {
	namespace, _, _ := strings.Cut(account, "/")
	groups = []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"}
	return serviceAccountPrefix + strings.ReplaceAll(account, "/", ":"), groups
}

// mayHold is true for requests of users that may hold the lock.
func (s single) mayHold() string {
	if len(s.Others) == 0 {
		return isOneOf(s.users())
	}
	const name = "request.userInfo.username"
	return "(" + isOneOf(s.users()) + " || " + quoteAll(usersOf(s.Others)) + ".exists(o, o.endsWith('*') ? " + name + ".startsWith(o.replace('*', '')) : " + name + " == o))"
}
