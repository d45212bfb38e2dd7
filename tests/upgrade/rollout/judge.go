package rollout

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"incumbent.dev/incumbent/pilot/controllers/namespace"
	"incumbent.dev/incumbent/tests/upgrade/verdict"
	"incumbent.dev/incumbent/tests/upgrade/workload"
)

// auditLog is one that is read while it is written.
type auditLog struct {
	path   string
	file   *os.File
	rest   []byte
	events []verdict.Event
}

func (l *auditLog) read() error {
	if l.file == nil {
		file, err := os.Open(l.path)
		if err != nil {
			return fmt.Errorf("opening an audit log: %w", err)
		}
		l.file = file
	}
	more, err := io.ReadAll(l.file)
	if err != nil {
		return fmt.Errorf("reading an audit log: %w", err)
	}
	text := append(l.rest, more...)
	whole := bytes.LastIndexByte(text, '\n') + 1
	l.rest = bytes.Clone(text[whole:])
	events, err := verdict.Read(bytes.NewReader(text[:whole]))
	l.events = append(l.events, events...)
	return err
}

func (l *auditLog) close() error {
	if l.file == nil {
		return nil
	}
	return l.file.Close()
}

// history is all that was stored so far.
func (r *Rollout) history() (verdict.History, error) {
	for _, path := range r.Cluster.AuditLogs()[len(r.logs):] {
		r.logs = append(r.logs, &auditLog{path: path})
	}
	var all [][]verdict.Event
	for _, log := range r.logs {
		if err := log.read(); err != nil {
			return verdict.History{}, err
		}
		all = append(all, log.events)
	}
	return verdict.Order(all...)
}

// Config is what is judged.
func (r *Rollout) Config() verdict.Config {
	return verdict.Config{
		Namespace: Home, Duties: r.options.duties(), Requests: r.Requests(),
		Revision: func(user string) string {
			revision, _ := strings.CutPrefix(user, "system:serviceaccount:"+Home+":pilot-")
			if revision == user {
				return ""
			}
			return revision
		},
		Wanted: &verdict.Wanted{
			BundleName: bundleName, BundleKey: bundleKey, Bundle: r.bundle, Excluded: namespace.DefaultExcluded(),
			IngressAddress: r.address, Gateways: !r.options.WithoutGateways,
		},
	}
}

// Settle waits until every object is as wanted; while the writer works, those that it leaves alone, for on a busy machine there
// is always one of the others that was changed a moment ago.
func (r *Rollout) Settle(ctx context.Context) error {
	_, err := r.Settled(ctx)
	return err
}

// Settled is Settle, and judges what happened until then: a moment later a pod of a Gateway may be unready again on a busy
// machine, and rightly said to be. change, if given, may change what is judged.
func (r *Rollout) Settled(ctx context.Context, change ...func(*verdict.Config)) (v verdict.Verdict, err error) {
	var last []verdict.Violation
	err = r.await(ctx, "every object is as wanted", func(context.Context) (bool, error) {
		if v, err = r.Judge(change...); err != nil {
			return false, err
		}
		last = nil
		for _, c := range v.Violations {
			if c.Rule == verdict.Unwanted && (!r.working || !workload.Wrote(c.Namespace)) {
				last = append(last, c)
			}
		}
		return len(last) == 0, nil
	})
	if err != nil {
		return v, fmt.Errorf("%w: %v", err, last)
	}
	return v, nil
}

// Judge judges all that happened. change, if given, may change what is judged.
func (r *Rollout) Judge(change ...func(*verdict.Config)) (verdict.Verdict, error) {
	h, err := r.history()
	if err != nil {
		return verdict.Verdict{}, err
	}
	config := r.Config()
	for _, do := range change {
		do(&config)
	}
	return verdict.Judge(h, config), nil
}
