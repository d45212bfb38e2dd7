package ctl

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"incumbent.dev/incumbent/internal/diagnosis"
	"incumbent.dev/incumbent/internal/inspect"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

func (p *Program) list() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls", "get"},
		Short:   "List elections and their leaders",
		Long:    "Lists elections with their holders. The first line is the worst problem that doctor finds. With -o json, yaml or name it is not printed.\n\nTimes are by the clock of the API server. A lease that was not renewed is shown as expired.",
		Example: "  " + name() + " list -A\n  " + name() + " list -n istio-system -o wide",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return withCode(misused, "unexpected argument %q; for one election: %s explain %s", args[0], name(), args[len(args)-1])
			}
			return nil
		},
	}
	out := printing(cmd)
	cmd.RunE = p.connected(out, func(ctx context.Context, c *clients, _ []string) error {
		all, s, err := p.elections(ctx, c, k8sleaderelection.DefaultRevision{})
		if err != nil {
			return err
		}
		switch {
		case !out.table():
			return p.printObjects(out, all)
		case len(all) == 0:
			fmt.Fprintln(p.ErrOut, inspect.Printable(p.nothing(ctx, c, s).Error()))
		default:
			p.writeList(out, all, p.worst(ctx, c, all, s))
		}
		return nil
	})
	p.namespaces(cmd)
	return cmd
}

// worst prints the first finding of doctor if it is a problem, and returns the findings. It reads nothing about namespaces without elections of
// this project or of Istio.
func (p *Program) worst(ctx context.Context, c *clients, all []inspect.Election, s *seen) []diagnosis.Finding {
	ours := map[string]bool{}
	for _, e := range all {
		ours[e.Namespace] = ours[e.Namespace] || diagnosis.Ours(e)
	}
	other := func(e inspect.Election) bool { return !ours[e.Namespace] }
	read := slices.DeleteFunc(slices.Clone(all), other)
	if len(read) == 0 {
		return diagnosis.Findings(diagnosis.Input{Elections: all})
	}
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	in, err := c.observe(ctx, read, s, false)
	if err != nil {
		fmt.Fprintln(p.ErrOut, inspect.Printable(fmt.Sprintf("warning: the cause of problems is unknown: %v", err)))
		return diagnosis.Findings(diagnosis.Input{Elections: all})
	}
	in.Elections = append(in.Elections, slices.DeleteFunc(slices.Clone(all), func(e inspect.Election) bool { return !other(e) })...)
	findings := diagnosis.Findings(*in)
	if first := findings[0]; first.Severity == diagnosis.Problem {
		writeFinding(p.ErrOut, first)
		if more := diagnosis.Problems(findings) - 1; more > 0 {
			safe{p.ErrOut}.line("Other problems: %d", more)
			safe{p.ErrOut}.line("  → %s doctor%s", name(), cmp.Or(optional(" -n %s", c.at), " -A"))
		}
	}
	return findings
}

// namespaces adds the flag --all-namespaces.
func (p *Program) namespaces(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&p.all, "all-namespaces", "A", false, "include all namespaces")
}

func (p *Program) writeList(out *output, all []inspect.Election, findings []diagnosis.Finding) {
	header := []string{"NAMESPACE", "ELECTION", "HOLDER", "REVISION", "SINCE", "STATE"}
	if out.wide() {
		header = append(header, "LOCK", "TERM", "LEASE", "RENEWED", "PROGRAM", "CANDIDATES", "WITNESSES")
	}
	var rows [][]cell
	for _, e := range all {
		row := []cell{{text: e.Namespace}, {text: e.Name}, {text: cmp.Or(e.Holder, "-")}, {text: cmp.Or(e.Key, "-")}, {text: stamp(e.Since)}, stateCell(e, findings)}
		if out.wide() {
			row = append(row, cell{text: e.Lock}, cell{text: strconv.Itoa(e.Transitions)}, cell{text: fmt.Sprintf("%ds", e.LeaseSeconds)},
				cell{text: stamp(e.Renewed)}, cell{text: cmp.Or(e.Program, "-")}, cell{text: candidateNames(e)}, cell{text: witnesses(e.Candidates)})
		}
		rows = append(rows, row)
	}
	p.writeElections(header, rows)
}

// witnesses returns the witness of each candidate, or only one word if it is the same for all.
func witnesses(all []inspect.Candidate) string {
	var words []string
	for _, c := range all {
		words = append(words, c.Witness)
	}
	if same := slices.Compact(slices.Clone(words)); len(same) == 1 {
		words = same
	}
	return cmp.Or(strings.Join(words, ","), "-")
}

func candidateNames(e inspect.Election) string {
	return cmp.Or(strings.Join(identities(e.Candidates, func(inspect.Candidate) bool { return true }), ","), "-")
}

func stateCell(e inspect.Election, findings []diagnosis.Finding) cell {
	words := []string{e.StateText()}
	colour := map[inspect.State]string{
		inspect.Leads: green, inspect.Unreadable: red, inspect.Expired: red,
		inspect.Doubtful: yellow, inspect.Free: yellow, inspect.Empty: yellow, inspect.Nominated: yellow,
	}[e.State]
	if e.Unfit {
		words = append(words, "unfit")
	}
	for _, c := range e.Candidates {
		if c.BackingOff {
			words = append(words, fmt.Sprintf("%s is %s", c.Identity, inspect.CoolingDown))
		}
	}
	if r := e.Request; r != nil {
		words = append(words, inspect.RequestWord(*r))
	}
	if e.Hold != nil {
		words = append(words, e.Hold.Reason)
	}
	if of := diagnosis.Of(e, findings); len(of) > 0 && of[0].Severity == diagnosis.Problem {
		words = append(words, "see explain")
		colour = red
	}
	return cell{text: strings.Join(words, ", "), colour: colour}
}

// stamp formats a time.
func stamp(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02T15:04:05Z")
}

// printObjects prints machine-readable output. With -o name it prints the names of the lock objects, for kubectl.
func (p *Program) printObjects(out *output, all []inspect.Election) error {
	return printList(p.Out, out, all, func(e inspect.Election) (*unstructured.Unstructured, error) {
		u, err := object("Election", e.Namespace, e.Name, e)
		if err == nil && out.format() == "name" {
			version, kind := e.Kind().Object()
			u.SetAPIVersion(version)
			u.SetKind(kind)
		}
		return u, err
	})
}
