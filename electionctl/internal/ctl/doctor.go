package ctl

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"incumbent.dev/incumbent/internal/inspect"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

// verdict is what doctor thinks of something.
type verdict string

const (
	well    verdict = "ok"
	warning verdict = "warning"
	problem verdict = "problem"
	unknown verdict = "unknown"
)

// finding is one thing that doctor looked at.
type finding struct {
	Check   string  `json:"check"`
	Verdict verdict `json:"verdict"`
	What    string  `json:"what"`
	// WayOut is what to do about it.
	WayOut string `json:"wayOut,omitempty"`
}

// examination is what the checks look at.
type examination struct {
	c         *clients
	elections []inspect.Election
	seen      *seen
	namespace string
	observe   time.Duration
	progress  func(string) func()
}

// check looks at one thing. An error means that it could not.
type check struct {
	name string
	run  func(ctx context.Context, x *examination) ([]finding, error)
}

var checks = []check{
	{"rights", rights},
	{"clock", clock},
	{"locks", locks},
	{"abandoned", abandoned},
	{"installations", installations},
	{"default", tags},
	{"flow", flow},
	{"fence", fences},
}

func (p *Program) doctor() *cobra.Command {
	var out *output
	var observe time.Duration
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Find what is wrong with elections, each with the way out",
		Long: `Looks at your rights, clocks, locks that cannot be read or that nobody renews, elections that two installations share, tags, the
API server's priorities, and the fence. Nothing is changed. Exit code 5 when there is a problem.`,
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
	cmd.Flags().DurationVar(&observe, "observe", 30*time.Second, "for how long at most a lock is watched whose renewals look old")
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
			findings = append(findings, finding{Verdict: unknown, What: err.Error(), WayOut: "have somebody run this who may"})
		case err != nil:
			return nil, err
		}
		for _, f := range findings {
			f.Check = check.name
			all = append(all, f)
		}
	}
	return all, nil
}

// report prints what was found, and is an error when something is wrong.
func (p *Program) report(out *output, findings []finding) error {
	problems := 0
	var items []unstructured.Unstructured
	var rows [][]cell
	for _, f := range findings {
		mark := cell{text: string(f.Verdict), colour: map[verdict]string{well: green, warning: yellow, problem: red}[f.Verdict]}
		rows = append(rows, []cell{{text: f.Check}, mark, {text: f.What}})
		if f.WayOut != "" {
			rows = append(rows, []cell{{}, {}, {text: "→ " + f.WayOut}})
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
		p.writeTable(p.Out, []string{"CHECK", "VERDICT", "WHAT"}, rows)
	} else if err := out.print(p.Out, objects(items)); err != nil {
		return err
	}
	if problems > 0 {
		return withCode(Unhealthy, "problems: %d", problems)
	}
	return nil
}

// locks are what the elections say themselves.
func locks(_ context.Context, x *examination) (findings []finding, _ error) {
	for _, e := range x.elections {
		for _, what := range e.Problems {
			findings = append(findings, finding{Verdict: problem, What: e.Namespace + "/" + e.Name + ": " + what, WayOut: name() + " explain -n " + e.Namespace + " " + e.Name})
		}
	}
	if len(findings) == 0 {
		findings = append(findings, finding{Verdict: well, What: fmt.Sprintf("elections: %d; each has one lock, and it can be read", len(x.elections))})
	}
	return findings, nil
}

// abandoned are locks whose holder does not renew them. That their renewals look old may be the
// holder's clock, so those are watched.
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
		return []finding{{Verdict: well, What: "each holder has renewed its lock within its lease, by its own clock and the API server's"}}, nil
	}
	after, err := x.c.lookAgain(ctx, x.namespace, wait, func() func() {
		return x.progress(fmt.Sprintf("watching %d locks whose renewals look old, for %v", len(suspects), wait))
	})
	if err != nil {
		return nil, err
	}
	for _, e := range suspects {
		findings = append(findings, x.judge(e, after, now))
	}
	return findings, nil
}

// judge says of a lock that looks old what a second look at it says.
func (x *examination) judge(e inspect.Election, after *seen, now time.Time) finding {
	before, _ := x.seen.lock(e)
	then, there := after.lock(e)
	apart := after.at.Sub(x.seen.at)
	where := e.Namespace + "/" + e.Name
	switch live := inspect.Compare(before, then, apart); {
	case !there || live == inspect.Moved:
		return finding{Verdict: well, What: where + " has changed hands meanwhile"}
	case live == inspect.Renewed:
		return finding{
			Verdict: warning, What: fmt.Sprintf("%s renews %s, and its clock is %v behind the API server's", e.Holder, where, now.Sub(e.Renewed).Round(time.Second)),
			WayOut: "set the clock of its node (NTP); elections do not depend on it, logs and certificates do",
		}
	case live == inspect.Silent:
		return finding{
			Verdict: problem, What: fmt.Sprintf("%s: nobody has written it for its lease of %d s; it still names %s", where, e.LeaseSeconds, e.Holder),
			WayOut: fmt.Sprintf("start a candidate; if nobody uses it any more: kubectl -n %s delete %s %s", e.Namespace, kubectlKind(e.Lock), e.Name),
		}
	}
	return finding{
		Verdict: warning, What: fmt.Sprintf("%s was not renewed within %v, and its last renewal, by %s's clock, was %v ago by the API server's", where, apart.Round(time.Second), e.Holder, now.Sub(e.Renewed).Round(time.Second)),
		WayOut: fmt.Sprintf("it is probably abandoned; to be sure watch it for its lease: --observe=%ds", e.LeaseSeconds+1),
	}
}

func kubectlKind(lock string) string {
	switch lock {
	case inspect.Lease:
		return "lease"
	case inspect.ConfigMap:
		return "configmap"
	}
	return "lease,configmap"
}

// installations finds elections that guard the same objects from two namespaces.
func installations(ctx context.Context, x *examination) (findings []finding, _ error) {
	all, err := x.c.look(ctx, "")
	if err != nil {
		return nil, err
	}
	where := map[string][]string{}
	for _, l := range all.locks {
		if clusterWide[l.Name] && l.Snapshot.Record.HolderIdentity != "" {
			where[l.Name] = appendNew(where[l.Name], l.Namespace)
		}
	}
	for _, election := range sortedKeys(where) {
		if namespaces := where[election]; len(namespaces) > 1 {
			findings = append(findings, finding{
				Verdict: warning, What: fmt.Sprintf("%s is held in namespaces %v: that many installations elect a leader each, for the same objects", election, namespaces),
				WayOut: "give each installation namespaces of its own to look after (discovery selectors), or take one away",
			})
		}
	}
	if len(findings) == 0 {
		findings = append(findings, finding{Verdict: well, What: "no election is used by two installations"})
	}
	return findings, nil
}
