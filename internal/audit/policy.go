package audit

import (
	_ "embed"
	"fmt"
)

//go:embed policy.txt
var policy string

// Policy returns the smallest audit policy that suffices: the bodies of all writes of candidates and of locks. namespace limits it to
// candidates and locks of a namespace. Bodies of Secrets are never logged.
func Policy(namespace string) string {
	group, where := "system:serviceaccounts", ""
	if namespace != "" {
		group += ":" + namespace
		where = fmt.Sprintf("\n  namespaces: [%q]", namespace)
	}
	return fmt.Sprintf(policy, group, where)
}
