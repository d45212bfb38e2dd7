package ctl

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"incumbent.dev/incumbent/internal/inspect"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

// planned is the prediction for one election.
type planned struct {
	Holder  string          `json:"holder,omitempty"`
	Outcome inspect.Outcome `json:"outcome"`

	election inspect.Election
}

func (p *Program) plan() *cobra.Command {
	var revision string
	cmd := &cobra.Command{
		Use:     "plan --default-revision REVISION",
		Short:   "Predict the effect of a change of the default revision",
		Long:    "For each election, show the next leader, whether its caches are warm, and the expected gap. Read-only.",
		Example: "  " + name() + " plan -n istio-system --default-revision canary",
		Args:    exactly(),
	}
	out := printing(cmd)
	show := p.connected(out, func(ctx context.Context, c *clients, _ []string) error { return p.showPlan(ctx, c, out, revision) })
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if revision == "" {
			return withCode(misused, "missing --default-revision: %s", cmd.UseLine())
		}
		return show(cmd, args)
	}
	p.namespaces(cmd)
	cmd.Flags().StringVar(&revision, "default-revision", "", "the new default revision")
	_ = cmd.RegisterFlagCompletionFunc("default-revision", p.completeRevisions)
	return cmd
}

func (p *Program) showPlan(ctx context.Context, c *clients, out *output, revision string) error {
	d := k8sleaderelection.DefaultRevision{Synced: true, Revision: revision}
	all, s, err := p.elections(ctx, c, d)
	if err != nil {
		return err
	}
	if len(all) == 0 && !p.all {
		return p.nothing(ctx, c, s)
	}
	if err := runs(revision, all, s); err != nil {
		return err
	}
	plans := make([]planned, 0, len(all))
	for _, e := range all {
		plans = append(plans, planned{Holder: e.Holder, Outcome: e.If(d), election: e})
	}
	if !out.table() {
		return printList(p.Out, out, plans, func(plan planned) (*unstructured.Unstructured, error) {
			return object("Plan", plan.election.Namespace, plan.election.Name, plan)
		})
	}
	p.tellPlans(plans, revision)
	return nil
}

// runs returns an error if no candidate has the revision. Without members this is unknown.
func runs(revision string, all []inspect.Election, s *seen) error {
	var there []string
	for _, e := range all {
		there = append(there, revisionsOf(e)...)
	}
	slices.Sort(there)
	there = slices.Compact(there)
	if len(s.members) == 0 || slices.Contains(there, revision) {
		return nil
	}
	return withCode(NotFound, "no candidate has revision %s (revisions: %s); install it first", revision, cmp.Or(strings.Join(there, ", "), "none"))
}

func (p *Program) tellPlans(plans []planned, revision string) {
	var rows [][]cell
	moves := 0
	may := 0
	for _, plan := range plans {
		o := plan.Outcome
		then := candidateWords(o)
		warm := cell{text: "-"}
		colour := yellow
		switch o.Move {
		case inspect.Stays:
			then = cmp.Or(o.Leader, "-")
			colour = ""
		case inspect.Unknown:
			may++
			then = "?"
		case inspect.HandOver, inspect.Preempt, inspect.Acquire, inspect.Expire:
			warm = yes(o.Warm, "warm", "not warm")
			moves++
		}
		rows = append(rows, []cell{
			{text: plan.election.Namespace}, {text: plan.election.Name}, {text: cmp.Or(plan.Holder, "-")}, {text: then},
			{text: string(o.Move), colour: colour}, warm, {text: o.Gap + " (" + o.Why + ")"},
		})
	}
	p.writeElections([]string{"NAMESPACE", "ELECTION", "NOW", "THEN", "HOW", "CACHES", "GAP"}, rows)
	sum := fmt.Sprintf("%d of %d elections would change the leader", moves, len(plans))
	if may > 0 {
		sum += fmt.Sprintf(", %d may", may)
	}
	safe{p.Out}.line("\nWith default revision %s, %s.", revision, sum)
	if may > 0 {
		fmt.Fprintln(p.Out, "Some candidates are unknown, because they have no member Leases.")
	}
}
