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

// auditLog reads a growing audit log.
type auditLog struct {
	file   *os.File
	rest   []byte
	events []verdict.Event
}

func (l *auditLog) read() error {
	more, err := io.ReadAll(l.file)
	if err != nil {
		return fmt.Errorf("read audit log: %w", err)
	}
	text := append(l.rest, more...)
	complete := bytes.LastIndexByte(text, '\n') + 1
	l.rest = bytes.Clone(text[complete:])
	events, err := verdict.Read(bytes.NewReader(text[:complete]))
	l.events = append(l.events, events...)
	return err
}

// History returns all writes so far.
func (r *Rollout) History() (verdict.History, error) {
	for _, path := range r.Cluster.AuditLogs()[len(r.logs):] {
		file, err := os.Open(path)
		if err != nil {
			return verdict.History{}, fmt.Errorf("open audit log: %w", err)
		}
		r.logs = append(r.logs, &auditLog{file: file})
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

// config returns the configuration of the verdict.
func (r *Rollout) config() verdict.Config {
	return verdict.Config{
		Namespace: Namespace, Duties: r.options.duties(), Requests: r.Requests(),
		Revision: func(user string) string {
			revision, ok := strings.CutPrefix(user, "system:serviceaccount:"+Namespace+":pilot-")
			if !ok {
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

// AwaitWanted waits until every object is in its desired state, and returns the verdict of that moment. While the load
// is on, it ignores the objects of the writer: one of them has always just been changed.
func (r *Rollout) AwaitWanted(ctx context.Context, change ...func(*verdict.Config)) (v verdict.Verdict, err error) {
	var last []verdict.Violation
	err = r.await(ctx, "every object is in its desired state", func(context.Context) (bool, error) {
		if v, err = r.Judge(change...); err != nil {
			return false, err
		}
		last = nil
		for _, violation := range v.Violations {
			if violation.Rule == verdict.Unwanted && (!r.loaded || !workload.Wrote(violation.Namespace)) {
				last = append(last, violation)
			}
		}
		return len(last) == 0, nil
	})
	if err != nil {
		return v, fmt.Errorf("%w: %v", err, last)
	}
	return v, nil
}
