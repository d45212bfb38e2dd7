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
		Long:    "Lists elections with their holders. Reads the Leases and the metadata of ConfigMaps.\n\nTimes are by the clock of the API server. A lease that was not renewed is shown as expired.",
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
			p.writeList(out, all)
			return p.hint(ctx, c, all, s)
		}
		return nil
	})
	p.namespaces(cmd)
	return cmd
}

// hint prints the first problem, with the cause that doctor reports. Without a problem it sends no requests.
func (p *Program) hint(ctx context.Context, c *clients, all []inspect.Election, s *seen) error {
	in := &diagnosis.Input{Elections: all, Candidates: s.candidates, Members: s.members}
	if diagnosis.Findings(*in)[0].Severity != diagnosis.Problem {
		return nil
	}
	in, err := c.observe(ctx, all, s, false)
	if err != nil {
		return err
	}
	if first := diagnosis.Findings(*in)[0]; first.Severity == diagnosis.Problem {
		at := " -A"
		if c.at != "" {
			at = " -n " + c.at
		}
		fmt.Fprintln(p.ErrOut, inspect.Printable(fmt.Sprintf("problem: %s\n  → %s doctor%s", first, name(), at)))
	}
	return nil
}

// namespaces adds the flag --all-namespaces.
func (p *Program) namespaces(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&p.all, "all-namespaces", "A", false, "include all namespaces")
}

func (p *Program) writeList(out *output, all []inspect.Election) {
	header := []string{"NAMESPACE", "ELECTION", "HOLDER", "REVISION", "SINCE", "STATE"}
	if out.wide() {
		header = append(header, "LOCK", "TERM", "LEASE", "RENEWED", "PROGRAM", "CANDIDATES", "WITNESSES")
	}
	var rows [][]cell
	for _, e := range all {
		row := []cell{{text: e.Namespace}, {text: e.Name}, {text: cmp.Or(e.Holder, "-")}, {text: cmp.Or(e.Key, "-")}, {text: stamp(e.Since)}, stateCell(e)}
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
	return several(words)
}

func candidateNames(e inspect.Election) string {
	var names []string
	for _, c := range e.Candidates {
		names = append(names, c.Identity)
	}
	return several(names)
}

// maxWords bounds the words of a cell. All rows of a table are as wide as the widest, and any writer of Leases can add candidates.
const maxWords = 10

// several returns the first words and the number of the others.
func several(words []string) string {
	if more := len(words) - maxWords; more > 0 {
		words = append(slices.Clone(words[:maxWords]), fmt.Sprintf("and %d more", more))
	}
	return cmp.Or(strings.Join(words, ","), "-")
}

func stateCell(e inspect.Election) cell {
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
		words = append(words, requestWord(e))
	}
	if e.Hold != nil {
		words = append(words, e.Hold.Reason)
	}
	if len(e.Problems) > 0 || slices.ContainsFunc(e.Obstacles, func(o inspect.Obstacle) bool { return o.Severe }) {
		words = append(words, "see explain")
		colour = red
	}
	return cell{text: strings.Join(words, ", "), colour: colour}
}

func requestWord(e inspect.Election) string {
	r := e.Request
	to := cmp.Or(r.Identity, "any candidate")
	switch {
	case r.Refused != "":
		return "refused handover to " + to
	case r.Accepted:
		return "handing over to " + to
	}
	return "handover to " + to + " requested"
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
