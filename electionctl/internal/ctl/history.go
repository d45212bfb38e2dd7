package ctl

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"incumbent.dev/incumbent/internal/inspect"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

// entry is a line of the history.
type entry struct {
	At      time.Time `json:"at"`
	Type    string    `json:"type"`
	Message string    `json:"message"`
	Count   int32     `json:"count,omitempty"`
	// First is the time of the first Event, if several are counted.
	First time.Time `json:"first,omitzero"`
}

func (p *Program) history() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "history ELECTION",
		Short:             "Show the past of an election from Events",
		Long:              "Shows the Events about the lock, which API servers keep for an hour by default, and the current holder.",
		Example:           "  " + name() + " history -n istio-system istio-leader",
		Args:              exactly("election"),
		ValidArgsFunction: p.completeElections,
	}
	out := printing(cmd)
	cmd.RunE = p.connected(out, func(ctx context.Context, c *clients, args []string) error {
		found, _, err := p.one(ctx, c, args[0], k8sleaderelection.DefaultRevision{})
		if err != nil {
			return err
		}
		return p.showHistory(ctx, c, out, found)
	})
	return cmd
}

func (p *Program) showHistory(ctx context.Context, c *clients, out *output, found []inspect.Election) error {
	entries, err := c.events(ctx, found[0].Namespace, found[0].Name)
	if err != nil {
		return err
	}
	for _, e := range found {
		if e.Holder != "" && !e.Since.IsZero() {
			entries = append(entries, entry{At: e.Since, Type: "Lock", Message: e.Holder + " acquired the " + e.Lock + " (by its own clock)"})
		}
	}
	slices.SortStableFunc(entries, func(a, b entry) int { return a.At.Compare(b.At) })
	if !out.table() {
		u, err := object("History", found[0].Namespace, found[0].Name, map[string]any{"entries": entries})
		if err != nil {
			return err
		}
		return out.print(p.Out, u)
	}
	var rows [][]cell
	for _, e := range entries {
		kind := cell{text: e.Type}
		if e.Type == corev1.EventTypeWarning {
			kind.colour = yellow
		}
		if e.Count > 1 {
			e.Message += fmt.Sprintf(" (%d times since %s)", e.Count, stamp(e.First))
		}
		rows = append(rows, []cell{{text: stamp(e.At)}, kind, {text: e.Message}})
	}
	p.writeTable(p.Out, []string{"TIME", "TYPE", "MESSAGE"}, rows)
	return nil
}

// events returns the Events about locks of a name.
func (c *clients) events(ctx context.Context, namespace, election string) (entries []entry, _ error) {
	list, err := c.kube.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("involvedObject.name", election).String(),
	})
	if err != nil {
		return nil, err
	}
	for _, e := range list.Items {
		if kind := e.InvolvedObject.Kind; kind != inspect.Lease && kind != inspect.ConfigMap {
			continue
		}
		at := cmp.Or(e.LastTimestamp.Time, e.EventTime.Time, e.CreationTimestamp.Time)
		entries = append(entries, entry{At: at, Type: e.Type, Message: e.Message, Count: e.Count, First: e.FirstTimestamp.Time})
	}
	return entries, nil
}
