package fence

import (
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// LockKind is the kind of object that an election's record lies in.
type LockKind string

// The kinds of lock. A MultiLock is declared as the one whose record counts.
const (
	ConfigMap LockKind = "configmap"
	Lease     LockKind = "lease"
)

// RevisionWord stands for the revision in the names of service accounts and in the
// labels of a declaration with Revisions.
const RevisionWord = "{revision}"

// Declaration says which writes of whom an election guards. It has a JSON form, so
// that it can be kept in a file.
type Declaration struct {
	// Election is the lock object's name; a per-revision one appends to it.
	Election string `json:"election"`
	// Namespace of the lock object.
	Namespace string `json:"namespace"`
	// Lock is the lock object's kind: "configmap" or "lease".
	Lock LockKind `json:"lock"`
	// Revisions makes it a per-revision election: one lock, "<election>-<revision>",
	// and one set of policies for each.
	Revisions []string `json:"revisions,omitempty"`
	// Remote: candidates of other clusters take part. Their tokens are not bound to
	// pods of this one, so that no policy here can know them: it is refused.
	Remote bool `json:"remote,omitempty"`
	// ServiceAccounts are those of the candidates, as "namespace/name". Writes of all
	// others are not judged; that is RBAC's part.
	ServiceAccounts []string `json:"serviceAccounts"`
	// Coordinators are the users that may write a candidate in as holder, such as
	// system:apiserver where Kubernetes' own coordinator runs.
	Coordinators []string `json:"coordinators,omitempty"`
	// Guards are what only the holder may write. Without any, the lock alone is guarded.
	Guards []Guard `json:"guards,omitempty"`
	// WithoutLockGuard leaves the lock object itself to RBAC.
	WithoutLockGuard bool `json:"withoutLockGuard,omitempty"`
}

// Guard is a group of writes.
type Guard struct {
	// Group is the API group, "" for the core one.
	Group string `json:"group,omitempty"`
	// Versions of the group; none means all.
	Versions []string `json:"versions,omitempty"`
	// Resources in the plural, with their subresources: "configmaps", "gateways/status",
	// "deployments/*".
	Resources []string `json:"resources"`
	// Verbs among create, update, delete and connect; a patch is an update. None means
	// create, update and delete.
	Verbs []string `json:"verbs,omitempty"`
	// Names of the objects; none means all.
	Names []string `json:"names,omitempty"`
	// Labels that the object has before the write or after it; none means all.
	Labels map[string]string `json:"labels,omitempty"`
	// Namespaces that they lie in; none means all.
	Namespaces []string `json:"namespaces,omitempty"`
	// Wide says that neither Names nor Labels nor Namespaces is meant to narrow it down.
	// While the lock is missing the API server refuses the guarded writes of everyone,
	// not of the declared accounts alone, because it looks for the lock before it looks
	// at who writes.
	Wide bool `json:"wide,omitempty"`
}

// operations are the API server's words for verbs.
var operations = map[string]string{"create": "CREATE", "update": "UPDATE", "delete": "DELETE", "connect": "CONNECT"}

// Validate reports all that is wrong with the declaration, and the way out.
func (d Declaration) Validate() error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if d.Election == "" {
		wrong("no election: name the lock object, such as istio-leader")
	}
	for _, problem := range orNothing(d.Election, validation.IsDNS1123Subdomain) {
		wrong("election %q: %s", d.Election, problem)
	}
	if d.Namespace == "" {
		wrong("no namespace: name the one of the lock object, such as istio-system")
	}
	for _, problem := range orNothing(d.Namespace, validation.IsDNS1123Label) {
		wrong("namespace %q: %s", d.Namespace, problem)
	}
	if d.Lock != ConfigMap && d.Lock != Lease {
		wrong("lock %q: give configmap or lease; of two locks held together, the lease", d.Lock)
	}
	if d.Remote {
		wrong("candidates of other clusters take part, whose tokens are not bound to pods of this one: " +
			"leave this election without a fence, the gate in each client still holds")
	}
	errs = append(errs, d.validateRevisions()...)
	errs = append(errs, d.validateWho()...)
	for i, g := range d.Guards {
		if err := g.validate(len(d.Revisions) > 0); err != nil {
			wrong("guard %d (%s): %w", i+1, strings.Join(g.Resources, ", "), err)
		}
	}
	if len(d.Guards) == 0 && d.WithoutLockGuard {
		wrong("it guards nothing: give guards, or leave out withoutLockGuard")
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
			// A token tells the pod and its account, not its revision: with one account, the
			// leader of each revision would be refused by the locks of all others.
			errs = append(errs, fmt.Errorf("guard %d (%s): revisions %s share their service accounts and objects: put %s into the accounts' names, or into a label of the objects",
				i+1, strings.Join(g.Resources, ", "), strings.Join(d.Revisions, ", "), RevisionWord))
		}
	}
	return errs
}

func (d Declaration) validateWho() (errs []error) {
	if len(d.ServiceAccounts) == 0 {
		errs = append(errs, errors.New("no service accounts: name those of the candidates, such as istio-system/pilot"))
	}
	for _, account := range d.ServiceAccounts {
		namespace, name, ok := strings.Cut(strings.ReplaceAll(account, RevisionWord, "x"), "/")
		if !ok || len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0 {
			errs = append(errs, fmt.Errorf("service account %q: give namespace/name, such as istio-system/pilot", account))
		}
		if strings.Contains(account, RevisionWord) && len(d.Revisions) == 0 {
			errs = append(errs, fmt.Errorf("service account %q: %s needs revisions: list them", account, RevisionWord))
		}
	}
	for _, user := range d.Coordinators {
		if user == "" || strings.ContainsAny(user, "'\\\n") {
			errs = append(errs, fmt.Errorf("coordinator %q: give a user's name, such as system:apiserver", user))
		}
	}
	return errs
}

func (g Guard) validate(perRevision bool) error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if len(g.Resources) == 0 {
		wrong("no resources: name them in the plural, such as configmaps or gateways/status")
	}
	for _, resource := range g.Resources {
		if main, _, _ := strings.Cut(resource, "/"); main == "" || main == "*" || strings.ToLower(resource) != resource {
			wrong("resource %q: name it in the plural and in lower case, such as configmaps or gateways/status; "+
				"not all at once, which would cover the locks and the policies themselves", resource)
		}
	}
	for _, verb := range g.Verbs {
		if operations[verb] == "" {
			wrong("verb %q: give create, update, delete or connect; a patch is an update", verb)
		}
	}
	for _, name := range g.Names {
		for _, problem := range validation.IsDNS1123Subdomain(name) {
			wrong("name %q: %s", name, problem)
		}
	}
	for _, namespace := range g.Namespaces {
		for _, problem := range validation.IsDNS1123Label(namespace) {
			wrong("namespace %q: %s", namespace, problem)
		}
	}
	if _, err := metav1.LabelSelectorAsSelector(&metav1.LabelSelector{MatchLabels: g.inRevision("x").Labels}); err != nil {
		wrong("labels: %w", err)
	}
	if g.perRevision() && !perRevision {
		wrong("a label with %s needs revisions: list them", RevisionWord)
	}
	if !g.narrow() && !g.Wide {
		wrong("neither names nor labels nor namespaces narrow it down: while the lock is missing, everyone's writes to these " +
			"would be refused; narrow it down, or say wide: true if nobody else writes them")
	}
	return errors.Join(errs...)
}

func (g Guard) narrow() bool { return len(g.Names)+len(g.Labels)+len(g.Namespaces) > 0 }

// perRevision reports whether the objects of revisions are told apart.
func (g Guard) perRevision() bool {
	for _, value := range g.Labels {
		if strings.Contains(value, RevisionWord) {
			return true
		}
	}
	return false
}

// inRevision puts a revision's name where RevisionWord stands.
func (g Guard) inRevision(revision string) Guard {
	labels := map[string]string{}
	for key, value := range g.Labels {
		labels[key] = strings.ReplaceAll(value, RevisionWord, revision)
	}
	if len(labels) > 0 {
		g.Labels = labels
	}
	return g
}

// orNothing checks a value unless it is empty.
func orNothing(value string, check func(string) []string) []string {
	if value == "" {
		return nil
	}
	return check(value)
}

// single is a declaration with one lock object.
type single struct {
	Declaration
	lock string
}

// split takes a per-revision declaration apart.
func (d Declaration) split() []single {
	if len(d.Revisions) == 0 {
		return []single{{Declaration: d, lock: d.Election}}
	}
	var all []single
	for _, revision := range d.Revisions {
		one := single{Declaration: d, lock: d.Election + "-" + revision}
		one.ServiceAccounts, one.Guards = nil, nil
		for _, account := range d.ServiceAccounts {
			one.ServiceAccounts = append(one.ServiceAccounts, strings.ReplaceAll(account, RevisionWord, revision))
		}
		for _, g := range d.Guards {
			one.Guards = append(one.Guards, g.inRevision(revision))
		}
		all = append(all, one)
	}
	return all
}

// users are the names that the API server knows the service accounts by.
func (s single) users() []string {
	var users []string
	for _, account := range s.ServiceAccounts {
		users = append(users, "system:serviceaccount:"+strings.ReplaceAll(account, "/", ":"))
	}
	return users
}
