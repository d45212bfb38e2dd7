// Package auditlog builds and reads audit logs of API servers for tests.
package auditlog
