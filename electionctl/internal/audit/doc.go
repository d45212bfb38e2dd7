// Package audit contains the command electionctl audit. It judges elections by the audit logs of API servers. It sends no request.
package audit
