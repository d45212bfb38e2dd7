package fence

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// DeclarationsAnnotation contains the declarations of a policy as JSON, each with one lock. So the installed policies of a set
	// contain its complete declaration.
	DeclarationsAnnotation = "incumbent.dev/fence-declarations"
)

// stored returns the value of DeclarationsAnnotation.
func stored(about []single) string {
	var all []Declaration
	for _, s := range about {
		all = append(all, s.declared)
	}
	text, err := json.Marshal(all)
	if err != nil {
		panic(fmt.Sprintf("a declaration has no JSON form: %v", err)) // this type always has one
	}
	return string(text)
}

// Declarations returns the declarations of an installed policy or binding.
func Declarations(o metav1.Object) (all []Declaration, err error) {
	if text := o.GetAnnotations()[DeclarationsAnnotation]; text != "" {
		err = json.Unmarshal([]byte(text), &all)
	}
	if err != nil {
		err = fmt.Errorf("%s: decode annotation %s: %w", o.GetName(), DeclarationsAnnotation, err)
	}
	return all, err
}

// Locks returns the locks of an installed policy or binding, for example "lease istio-system/istio-leader".
func Locks(o metav1.Object) (locks []string) {
	all, _ := Declarations(o) // an unreadable annotation has no locks
	for _, d := range all {
		locks = append(locks, d.Locks()...)
	}
	return locks
}

// Concerns reports whether an installed policy or binding concerns a lock in a namespace.
func Concerns(o metav1.Object, namespace string) bool {
	return slices.ContainsFunc(Locks(o), func(lock string) bool { return strings.Contains(lock, " "+namespace+"/") })
}

// Locks returns the locks of the declaration.
func (d Declaration) Locks() (locks []string) {
	for _, s := range d.split() {
		locks = append(locks, s.Where())
	}
	return locks
}

// Accounts returns the service accounts of the candidates of installed policies or bindings, by lock.
func Accounts(objects ...metav1.Object) map[string][]string {
	accounts := map[string][]string{}
	for _, o := range objects {
		all, _ := Declarations(o) // an unreadable annotation has no accounts
		for _, d := range all {
			for _, s := range d.split() {
				accounts[s.Where()] = s.ServiceAccounts
			}
		}
	}
	return accounts
}
