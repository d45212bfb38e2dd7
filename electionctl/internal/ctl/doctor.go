package ctl

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"

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
	// found has the findings of the current check.
	found []finding
}

// add adds a finding. fix is optional advice.
func (x *examination) add(v verdict, fix, format string, args ...any) {
	x.found = append(x.found, finding{Verdict: v, Message: fmt.Sprintf(format, args...), Fix: fix})
}

// namespaces returns the namespaces of the elections.
func (x *examination) namespaces() []string {
	all := sets.New[string]()
	for _, e := range x.elections {
		all.Insert(e.Namespace)
	}
	return sets.List(all)
}

// check is one check of doctor. none is the finding if run adds none.
type check struct {
	name string
	run  func(ctx context.Context, x *examination) error
	none finding
}

var checks = []check{
	{"leaders", leaders, finding{Verdict: well, Message: "each election has a leader"}},
	{"default", tags, finding{}},
	{"tags", conflicts, finding{Verdict: well, Message: "each tag has one revision"}},
	{"permissions", permissions, finding{}},
	{"clock", clock, finding{}},
	{"locks", locks, finding{}},
	{"annotations", annotations, finding{Verdict: well, Message: "no annotation prevents a leader"}},
	{"installations", installations, finding{Verdict: well, Message: "no election is used by two installations"}},
	{"flow", flow, finding{Verdict: unknown, Message: "no leader is a pod, so the priority of renewals is unknown"}},
	{"fence", fences, finding{}},
	{"witness", witnessed, finding{Verdict: unknown, Message: "the candidates are unknown, because there are no member Leases"}},
}

func (p *Program) doctor() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check elections for problems and suggest fixes",
		Long: `Checks first whether each election has a leader and another candidate, whether a live process runs the default revision, and whether
several revisions claim a tag. Then checks permissions, clocks, locks, annotations that prevent a leader, elections that two installations share, priorities in the API
server, the fence, and whether a witness releases the lock after a crash. Read-only. The exit code is 5 if there is a problem.`,
		Example: "  " + name() + " doctor -n istio-system",
		Args:    exactly(),
	}
	out := printing(cmd)
	cmd.RunE = p.connected(out, func(ctx context.Context, c *clients, _ []string) error {
		findings, err := p.examine(ctx, c)
		if err != nil {
			return err
		}
		return p.report(out, findings)
	})
	p.namespaces(cmd)
	return cmd
}

func (p *Program) examine(ctx context.Context, c *clients) (all []finding, err error) {
	x := &examination{c: c}
	if x.elections, x.seen, err = p.elections(ctx, c, k8sleaderelection.DefaultRevision{}); err != nil {
		return nil, err
	}
	if len(x.elections)+len(x.seen.candidates) == 0 {
		return nil, p.nothing(ctx, c, x.seen)
	}
	for _, check := range checks {
		x.found = nil
		err := check.run(ctx, x)
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case apierrors.IsForbidden(err):
			x.add(unknown, "run this as a user with the missing permission", "%v", err)
		case err != nil:
			return nil, err
		case len(x.found) == 0:
			x.found = append(x.found, check.none)
		}
		for _, f := range x.found {
			f.Check = check.name
			all = append(all, f)
		}
	}
	return all, nil
}

// report prints the findings. It returns an error if there is a problem.
func (p *Program) report(out *output, findings []finding) error {
	problems := 0
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
	}
	if out.table() {
		p.writeTable(p.Out, []string{"CHECK", "VERDICT", "MESSAGE"}, rows)
	} else if err := printList(p.Out, out, findings, func(f finding) (*unstructured.Unstructured, error) { return object("Finding", "", f.Check, f) }); err != nil {
		return err
	}
	if problems > 0 {
		return withCode(Unhealthy, "problems: %d", problems)
	}
	return nil
}

// locks reports the problems of the elections.
func locks(_ context.Context, x *examination) error {
	for _, e := range x.elections {
		for _, what := range e.Problems {
			x.add(problem, command("explain", e), "%s/%s: %s", e.Namespace, e.Name, what)
		}
	}
	if len(x.found)+len(x.seen.unread) == 0 {
		x.add(well, "", "elections: %d; each has one readable lock", len(x.elections))
	}
	return errors.Join(x.seen.unread...)
}

// annotations reports annotations that prevent a leader or a change of the leader.
func annotations(_ context.Context, x *examination) error {
	for _, e := range x.elections {
		for _, o := range e.Obstacles {
			x.add(warning, o.Remove, "%s/%s: %s: %s", e.Namespace, e.Name, o.Annotation, o.Effect)
		}
	}
	return nil
}

// installations reports elections for the same objects in two namespaces.
func installations(ctx context.Context, x *examination) error {
	all, err := x.c.look(ctx, "")
	if err != nil {
		return err
	}
	where := map[string][]string{}
	for _, l := range all.locks {
		if clusterWide[l.Name] && inspect.Of(l).Led() {
			where[l.Name] = append(where[l.Name], l.Namespace)
		}
	}
	for _, election := range slices.Sorted(maps.Keys(where)) {
		namespaces := slices.Compact(slices.Sorted(slices.Values(where[election])))
		if len(namespaces) > 1 {
			x.add(warning, "give each installation its own namespaces (discovery selectors), or remove an installation",
				"%s is held in namespaces %v: each installation has its own leader for the same objects", election, namespaces)
		}
	}
	return nil
}
