// Package auditlog builds audit logs of API servers for tests.
package auditlog
