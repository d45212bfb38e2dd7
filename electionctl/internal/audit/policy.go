package audit

import "fmt"

// policy returns the audit policy that suffices: the bodies of all writes of candidates and of locks. namespace limits it to
// candidates and locks of a namespace. Bodies of Secrets are never logged.
func policy(namespace string) string {
	group, where := "system:serviceaccounts", ""
	if namespace != "" {
		group += ":" + namespace
		where = fmt.Sprintf("\n  namespaces: [%q]", namespace)
	}
	return fmt.Sprintf(`apiVersion: audit.k8s.io/v1
kind: Policy
omitManagedFields: true
omitStages: [RequestReceived, ResponseStarted]
rules:
# Reads, kubelets, and resources that every replica writes.
- level: None
  verbs: [get, list, watch]
- level: None
  userGroups: [system:nodes]
- level: None
  resources:
  - {group: "", resources: [events, serviceaccounts/token]}
  - {group: events.k8s.io}
  - {group: authentication.k8s.io}
  - {group: authorization.k8s.io}
# Bodies of Secrets stay out of the log. Their writes are compared by time stamps.
- level: Metadata
  userGroups: [%[1]q]
  verbs: [create, update, patch, delete, deletecollection]
  resources:
  - {group: "", resources: [secrets]}
# The locks, by any user. The holder is in the body.
- level: RequestResponse
  verbs: [create, update, patch, delete]
  resources:
  - {group: coordination.k8s.io, resources: [leases]}
  - {group: "", resources: [configmaps, endpoints]}%[2]s
# The writes of the candidates. The resourceVersion in the response orders them.
- level: RequestResponse
  userGroups: [%[1]q]
  verbs: [create, update, patch, delete, deletecollection]
- level: None
`, group, where)
}
