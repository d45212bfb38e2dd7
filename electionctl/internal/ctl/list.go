package ctl

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"incumbent.dev/incumbent/internal/inspect"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

func (p *Program) list() *cobra.Command {
	var out *output
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls", "get"},
		Short:   "Who leads what",
		Long:    "Who leads what, by two requests: the Leases and the metadata of ConfigMaps.\n\nSINCE is by the holder's own clock.",
		Example: "  " + name() + " list -A\n  " + name() + " list -n istio-system -o wide",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := p.connectFor(out)
			if err != nil {
				return err
			}
			all, _, err := p.elections(cmd.Context(), c, k8sleaderelection.DefaultRevision{})
			if err != nil {
				return err
			}
			return p.printElections(out, all)
		},
	}
	out = printing(cmd)
	p.namespaces(cmd)
	return cmd
}

// namespaces gives a command the flag for all of them.
func (p *Program) namespaces(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&p.all, "all-namespaces", "A", false, "elections of all namespaces")
}

func (p *Program) printElections(out *output, all []inspect.Election) error {
	if !out.table() {
		return p.printObjects(out, all)
	}
	if len(all) == 0 {
		where := "in any namespace"
		if !p.all {
			namespace, err := p.namespace()
			if err != nil {
				return err
			}
			where = "in namespace " + namespace + "; see all: " + name() + " list -A"
		}
		fmt.Fprintln(p.ErrOut, "There are no elections", where)
		return nil
	}
	p.writeTable(p.Out, p.header(out), p.rows(out, all))
	return nil
}

func (p *Program) header(out *output) (h []string) {
	if p.all {
		h = append(h, "NAMESPACE")
	}
	h = append(h, "ELECTION", "HOLDER", "REVISION", "SINCE", "STATE")
	if out.wide() {
		h = append(h, "LOCK", "TERM", "LEASE", "RENEWED", "PROGRAM", "CANDIDATES")
	}
	return h
}

func (p *Program) rows(out *output, all []inspect.Election) (rows [][]cell) {
	for _, e := range all {
		var row []cell
		if p.all {
			row = append(row, cell{text: e.Namespace})
		}
		row = append(row, cell{text: e.Name}, cell{text: or(e.Holder, "-")}, cell{text: or(e.Key, "-")}, cell{text: stamp(e.Since)}, stateCell(e))
		if out.wide() {
			row = append(row, cell{text: e.Lock}, cell{text: strconv.Itoa(e.Transitions)}, cell{text: fmt.Sprintf("%ds", e.LeaseSeconds)},
				cell{text: stamp(e.Renewed)}, cell{text: or(e.Program, "-")}, cell{text: candidateNames(e)})
		}
		rows = append(rows, row)
	}
	return rows
}

func candidateNames(e inspect.Election) string {
	var names []string
	for _, c := range e.Candidates {
		names = append(names, c.Identity)
	}
	return or(strings.Join(names, ","), "-")
}

func stateCell(e inspect.Election) cell {
	words, colour := []string{string(e.State)}, ""
	switch e.State {
	case inspect.Leads, inspect.Kept:
		colour = green
	case inspect.Unreadable:
		colour = red
	case inspect.Free, inspect.Empty, inspect.Nominated:
		colour = yellow
	case inspect.Holds:
	}
	if e.Unfit {
		words = append(words, "unfit")
	}
	if r := e.Request; r != nil {
		words = append(words, requestWord(r))
	}
	if e.Hold != nil {
		words = append(words, e.Hold.Reason)
	}
	if len(e.Problems) > 0 {
		words, colour = append(words, "see explain"), red
	}
	return cell{text: strings.Join(words, ", "), colour: colour}
}

func requestWord(r *inspect.Request) string {
	to := or(r.To, "whoever comes")
	switch {
	case r.Refused != "":
		return "refused " + to
	case r.Accepted:
		return "hands over to " + to
	}
	return to + " asks"
}

// stamp is a time of a holder's clock.
func stamp(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02T15:04:05Z")
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// printObjects prints for programs. Of -o name are the lock objects, which kubectl knows.
func (p *Program) printObjects(out *output, all []inspect.Election) error {
	var items []unstructured.Unstructured
	for _, e := range all {
		u, err := object("Election", e.Namespace, e.Name, &e)
		if err != nil {
			return err
		}
		if out.format() == "name" {
			u.SetKind("Lease")
			u.SetAPIVersion("coordination.k8s.io/v1")
			if e.Lock == inspect.ConfigMap {
				u.SetKind("ConfigMap")
				u.SetAPIVersion("v1")
			}
		}
		items = append(items, *u)
	}
	return out.print(p.Out, objects(items))
}
