package rollout

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"incumbent.dev/incumbent/internal/audit"
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

// auditLog reads a growing audit log.
type auditLog struct {
	file *os.File
	rest []byte
}

func (l *auditLog) read(into *audit.Log) error {
	more, err := io.ReadAll(l.file)
	if err != nil {
		return fmt.Errorf("read audit log: %w", err)
	}
	text := append(l.rest, more...)
	complete := bytes.LastIndexByte(text, '\n') + 1
	l.rest = bytes.Clone(text[complete:])
	return into.Read(l.file.Name(), bytes.NewReader(text[:complete]))
}

// dropPart removes an incomplete last line, which a killed API server has left. The next process would append to it.
func (l *auditLog) dropPart() error {
	end, err := l.file.Seek(-int64(len(l.rest)), io.SeekCurrent)
	if err == nil {
		err = os.Truncate(l.file.Name(), end)
	}
	l.rest = nil
	return err
}

// History returns all writes so far. It is valid until the next call.
func (r *Rollout) History() (audit.History, error) {
	if r.log == nil {
		file, err := os.Open(r.Cluster.AuditLog())
		if err != nil {
			return audit.History{}, fmt.Errorf("open audit log: %w", err)
		}
		r.log = &auditLog{file: file}
		r.writes = audit.NewLog()
		r.writes.Objects = true
	}
	if err := r.log.read(r.writes); err != nil {
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
	if err := r.log.dropPart(); err != nil {
		return fmt.Errorf("repair audit log: %w", err)
	}
	return r.Cluster.APIServer().Start(ctx)
}
