package verdict

import (
	"strings"

	"incumbent.dev/incumbent/internal/audit"
)

// sameName returns the possible locks with a name. During a migration several objects have it.
func sameName(namespace, name string) []audit.Lock {
	return []audit.Lock{
		{Resource: "configmaps", Namespace: namespace, Name: name}, {Resource: "endpoints", Namespace: namespace, Name: name}, {Resource: "leases", Namespace: namespace, Name: name},
	}
}

// Terms returns the terms of the lock with a name. The first lock with terms counts.
func Terms(courses map[audit.Lock]*audit.Course, namespace, name string) []audit.Term {
	for _, lock := range sameName(namespace, name) {
		if c := courses[lock]; c != nil && len(c.Terms) > 0 {
			return c.Terms
		}
	}
	return nil
}

// kindOf returns the resource of a write without a subresource.
func kindOf(w audit.Write) string {
	kind, _, _ := strings.Cut(w.Resource, "/")
	return kind
}
