package ctl

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"incumbent.dev/incumbent/internal/inspect"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

// completeWithin limits the time of a completion.
const completeWithin = 2 * time.Second

// offer returns words for an argument or a flag. A command with all its arguments needs none.
func (p *Program) offer(cmd *cobra.Command, needed bool, of func(inspect.Election) []string) ([]string, cobra.ShellCompDirective) {
	if !needed {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completeWithin)
	defer cancel()
	var words []string
	if c, err := p.connect(); err == nil {
		all, _, _ := p.elections(ctx, c, k8sleaderelection.DefaultRevision{}) // none with an error
		for _, e := range all {
			words = append(words, of(e)...)
		}
	}
	slices.Sort(words)
	return slices.Compact(words), cobra.ShellCompDirectiveNoFileComp
}

func (p *Program) completeElections(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return p.offer(cmd, len(args) == 0, func(e inspect.Election) []string { return []string{e.Name} })
}

// completePods offers the candidates that run in pods.
func (p *Program) completePods(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return p.offer(cmd, len(args) == 0, func(e inspect.Election) (pods []string) {
		for _, c := range e.Candidates {
			if c.PodUID != "" {
				pods = append(pods, c.Identity)
			}
		}
		return pods
	})
}

func (p *Program) completeRevisions(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return p.offer(cmd, true, func(e inspect.Election) (revisions []string) {
		for _, c := range append(e.Candidates, inspect.Candidate{Key: e.Key}) {
			if c.Revision() != "" {
				revisions = append(revisions, c.Revision())
			}
		}
		return revisions
	})
}
