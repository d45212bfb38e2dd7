package ctl

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"incumbent.dev/incumbent/internal/inspect"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

// verdict is the result of a check.
type verdict string

const (
	well    verdict = "ok"
	warning verdict = "warning"
	problem verdict = "problem"
	unknown verdict = "unknown"
)

// finding is a result of doctor.
type finding struct {
	Check   string  `json:"check"`
	Verdict verdict `json:"verdict"`
	Message string  `json:"message"`
	// Fix is advice.
	Fix string `json:"fix,omitempty"`
}

// examination is the input of the checks.
type examination struct {
	c         *clients
	elections []inspect.Election
	seen      *seen
	namespace string
	observe   time.Duration
	progress  func(string) func()
}

// check is one check of doctor. none is the finding if run returns none.
type check struct {
	name string
	run  func(ctx context.Context, x *examination) ([]finding, error)
	none finding
}

var checks = []check{
	{"permissions", permissions, finding{}},
	{"clock", clock, finding{}},
	{"locks", locks, finding{}},
	{"annotations", annotations, finding{Verdict: well, Message: "no annotation prevents a leader"}},
	{"abandoned", abandoned, finding{Verdict: well, Message: "each holder renewed its lock within its lease"}},
	{"installations", installations, finding{Verdict: well, Message: "no election is used by two installations"}},
	{"default", tags, finding{}},
	{"flow", flow, finding{Verdict: unknown, Message: "no holder is a pod, so the priority of renewals is unknown"}},
	{"fence", fences, finding{}},
}

func (p *Program) doctor() *cobra.Command {
	var out *output
	var observe time.Duration
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check elections for problems and suggest fixes",
		Long: `Checks permissions, clocks, unreadable and abandoned locks, annotations that prevent a leader, elections that two installations
share, tags, priorities in the API server, and the fence. Read-only. The exit code is 5 if there is a problem.`,
		Example: "  " + name() + " doctor -n istio-system",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := out.check(); err != nil {
				return err
			}
			findings, err := p.examine(cmd.Context(), observe)
			if err != nil {
				return err
			}
			return p.report(out, findings)
		},
	}
	out = printing(cmd)
	p.namespaces(cmd)
	cmd.Flags().DurationVar(&observe, "observe", 30*time.Second, "maximum time to watch a lock whose last renewal looks stale")
	return cmd
}

func (p *Program) examine(ctx context.Context, observe time.Duration) ([]finding, error) {
	c, err := p.connect()
	if err != nil {
		return nil, err
	}
	namespace, err := p.namespace()
	if err != nil {
		return nil, err
	}
	x := &examination{c: c, namespace: namespace, observe: observe, progress: p.progress}
	if x.elections, x.seen, err = p.elections(ctx, c, k8sleaderelection.DefaultRevision{}); err != nil {
		return nil, err
	}
	var all []finding
	for _, check := range checks {
		findings, err := check.run(ctx, x)
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case apierrors.IsForbidden(err):
			findings = append(findings, finding{Verdict: unknown, Message: err.Error(), Fix: "run this as a user with the missing permission"})
		case err != nil:
			return nil, err
		case len(findings) == 0:
			findings = append(findings, check.none)
		}
		for _, f := range findings {
			f.Check = check.name
			all = append(all, f)
		}
	}
	return all, nil
}

// report prints the findings. It returns an error if there is a problem.
func (p *Program) report(out *output, findings []finding) error {
	problems := 0
	var items []unstructured.Unstructured
	var rows [][]cell
	for _, f := range findings {
		mark := cell{text: string(f.Verdict), colour: map[verdict]string{well: green, warning: yellow, problem: red}[f.Verdict]}
		rows = append(rows, []cell{{text: f.Check}, mark, {text: f.Message}})
		if f.Fix != "" {
			rows = append(rows, []cell{{}, {}, {text: "→ " + f.Fix}})
		}
		if f.Verdict == problem {
			problems++
		}
		u, err := object("Finding", "", f.Check, f)
		if err != nil {
			return err
		}
		items = append(items, *u)
	}
	if out.table() {
		p.writeTable(p.Out, []string{"CHECK", "VERDICT", "MESSAGE"}, rows)
	} else if err := out.print(p.Out, objects(items)); err != nil {
		return err
	}
	if problems > 0 {
		return withCode(Unhealthy, "problems: %d", problems)
	}
	return nil
}

// locks reports the problems of the elections.
func locks(_ context.Context, x *examination) (findings []finding, _ error) {
	for _, e := range x.elections {
		for _, what := range e.Problems {
			findings = append(findings, finding{Verdict: problem, Message: e.Namespace + "/" + e.Name + ": " + what, Fix: name() + " explain -n " + e.Namespace + " " + e.Name})
		}
	}
	if len(findings) == 0 {
		findings = append(findings, finding{Verdict: well, Message: fmt.Sprintf("elections: %d; each has one readable lock", len(x.elections))})
	}
	return findings, nil
}

// annotations reports annotations that prevent a leader or a change of the leader.
func annotations(_ context.Context, x *examination) (findings []finding, _ error) {
	for _, e := range x.elections {
		for _, o := range e.Obstacles {
			findings = append(findings, finding{Verdict: warning, Message: fmt.Sprintf("%s/%s: %s: %s", e.Namespace, e.Name, o.Annotation, o.Effect), Fix: o.Remove})
		}
	}
	return findings, nil
}

// abandoned reports locks that are not renewed. A stale renewTime can be caused by the holder's clock, so such locks are watched.
func abandoned(ctx context.Context, x *examination) (findings []finding, _ error) {
	now, err := x.c.serverTime(ctx)
	if err != nil {
		return nil, err
	}
	var suspects []inspect.Election
	wait := time.Duration(0)
	for _, e := range x.elections {
		lease := time.Duration(e.LeaseSeconds) * time.Second
		if !e.Led() || now.Sub(e.Renewed) <= lease {
			continue
		}
		suspects = append(suspects, e)
		wait = max(wait, min(lease+time.Second, x.observe))
	}
	if len(suspects) == 0 {
		return nil, nil
	}
	after, err := x.c.lookAgain(ctx, x.namespace, wait, func() func() {
		return x.progress(fmt.Sprintf("watching %d locks with a stale renewal for %v", len(suspects), wait))
	})
	if err != nil {
		return nil, err
	}
	for _, e := range suspects {
		findings = append(findings, x.judge(e, after, now))
	}
	return findings, nil
}

// judge returns the finding for a stale lock after a second read.
func (x *examination) judge(e inspect.Election, after *seen, now time.Time) finding {
	before, _ := x.seen.lock(e)
	then, there := after.lock(e)
	apart := after.at.Sub(x.seen.at)
	where := e.Namespace + "/" + e.Name
	switch live := inspect.Compare(before, then, apart); {
	case !there || live == inspect.Moved:
		return finding{Verdict: well, Message: where + " has a new term"}
	case live == inspect.Renewed:
		return finding{
			Verdict: warning, Message: fmt.Sprintf("%s renews %s, but its clock is %v behind the API server", e.Holder, where, now.Sub(e.Renewed).Round(time.Second)),
			Fix: "correct the clock of its node (NTP); elections do not depend on it, but logs and certificates do",
		}
	case live == inspect.Silent:
		return finding{
			Verdict: problem, Message: fmt.Sprintf("%s was not renewed for its lease of %d s; its holder is %s", where, e.LeaseSeconds, e.Holder),
			Fix: fmt.Sprintf("start a candidate; if the lock is unused: kubectl -n %s delete %s", e.Namespace, e.Objects()),
		}
	}
	return finding{
		Verdict: warning, Message: fmt.Sprintf("%s was not renewed within %v; its last renewal by %s was %v ago", where, apart.Round(time.Second), e.Holder, now.Sub(e.Renewed).Round(time.Second)),
		Fix: fmt.Sprintf("probably abandoned; to be certain, use --observe=%ds", e.LeaseSeconds+1),
	}
}

// installations reports elections for the same objects in two namespaces.
func installations(ctx context.Context, x *examination) (findings []finding, _ error) {
	all, err := x.c.look(ctx, "")
	if err != nil {
		return nil, err
	}
	where := map[string][]string{}
	for _, l := range all.locks {
		if clusterWide[l.Name] && l.Snapshot.Record.HolderIdentity != "" {
			where[l.Name] = append(where[l.Name], l.Namespace)
		}
	}
	for _, election := range slices.Sorted(maps.Keys(where)) {
		namespaces := slices.Compact(slices.Sorted(slices.Values(where[election])))
		if len(namespaces) > 1 {
			findings = append(findings, finding{
				Verdict: warning, Message: fmt.Sprintf("%s is held in namespaces %v: each installation has its own leader for the same objects", election, namespaces),
				Fix: "give each installation its own namespaces (discovery selectors), or remove an installation",
			})
		}
	}
	return findings, nil
}
