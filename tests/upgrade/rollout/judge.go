package rollout

import (
	"context"
	"fmt"
	"os"
	"strings"

	"incumbent.dev/incumbent/internal/audit"
	"incumbent.dev/incumbent/internal/testutil/auditlog"
	"incumbent.dev/incumbent/tests/upgrade/verdict"
)

// auditPolicy is the audit policy that verdict.Judge needs: the bodies of all relevant writes. It keeps the stage RequestReceived,
// because a killed API server logs no response.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitManagedFields: true
rules:
- level: None
  verbs: [get, list, watch]
- level: None
  resources: [{group: "", resources: [events, pods, pods/status, pods/binding, serviceaccounts/token]}]
- level: RequestResponse
  verbs: [create, update, patch, delete]
  resources:
  - {group: "", resources: [configmaps, services, serviceaccounts]}
  - {group: coordination.k8s.io, resources: [leases]}
  - {group: networking.k8s.io, resources: [ingresses, ingresses/status]}
  - {group: gateway.networking.k8s.io}
  - {group: apps, resources: [deployments]}
  - {group: admissionregistration.k8s.io, resources: [mutatingwebhookconfigurations]}
- level: None
`

// History returns all writes so far. It is valid until the next call.
func (r *Rollout) History() (audit.History, error) {
	if r.log == nil {
		file, err := os.Open(r.Cluster.AuditLog())
		if err != nil {
			return audit.History{}, fmt.Errorf("open audit log: %w", err)
		}
		r.log = &auditlog.Tail{File: file}
		r.writes = audit.NewLog()
		r.writes.Objects = true
	}
	if err := r.log.Read(r.writes.Read); err != nil {
		return audit.History{}, err
	}
	if r.writes.Broken > 0 {
		return audit.History{}, fmt.Errorf("audit log has a broken line: %s", r.writes.BrokenAt)
	}
	return r.writes.History(), nil
}

// config returns the configuration of the verdict.
func (r *Rollout) config() verdict.Config {
	return verdict.Config{
		Namespace: Namespace, Guards: r.options.guards(), Requests: r.Requests(),
		Revision: func(user string) string {
			revision, ok := strings.CutPrefix(user, "system:serviceaccount:"+Namespace+":pilot-")
			if !ok {
				return ""
			}
			return revision
		},
	}
}

// Judge judges all writes so far. The given functions change the configuration first.
func (r *Rollout) Judge(change ...func(*verdict.Config)) (verdict.Verdict, error) {
	h, err := r.History()
	if err != nil {
		return verdict.Verdict{}, err
	}
	config := r.config()
	for _, do := range change {
		do(&config)
	}
	return verdict.Judge(h, config), nil
}

// Audit judges all writes so far as electionctl audit does.
func (r *Rollout) Audit() (audit.Report, error) {
	_, err := r.History()
	return audit.Examine(r.writes, audit.Options{}), err
}

// CrashAPIServer kills the API server and starts it again.
func (r *Rollout) CrashAPIServer(ctx context.Context) error {
	if err := r.Cluster.APIServer().Kill(); err != nil {
		return err
	}
	if _, err := r.History(); err != nil {
		return err
	}
	if err := r.log.DropPart(); err != nil {
		return fmt.Errorf("repair audit log: %w", err)
	}
	return r.Cluster.APIServer().Start(ctx)
}
