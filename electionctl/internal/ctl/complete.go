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
	return p.offer(cmd, len(args) == 0, func(e inspect.Election) []string {
		return identities(e.Candidates, func(c inspect.Candidate) bool { return c.PodUID != "" })
	})
}

// completeCandidates offers the candidates that can become the leader of the election that is the first argument.
func (p *Program) completeCandidates(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return p.offer(cmd, true, func(e inspect.Election) []string {
		return identities(e.Candidates, func(c inspect.Candidate) bool { return (len(args) == 0 || e.Name == args[0]) && c.Identity != e.Holder })
	})
}

// identities returns the identities of selected candidates.
func identities(all []inspect.Candidate, selected func(inspect.Candidate) bool) (names []string) {
	for _, c := range all {
		if selected(c) {
			names = append(names, c.Identity)
		}
	}
	return names
}

func (p *Program) completeRevisions(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return p.offer(cmd, true, revisionsOf)
}

// revisionsOf returns the revisions of the holder and of the candidates.
func revisionsOf(e inspect.Election) (revisions []string) {
	for _, c := range append(slices.Clone(e.Candidates), inspect.Candidate{Key: e.Key}) {
		if c.Revision() != "" {
			revisions = append(revisions, c.Revision())
		}
	}
	return revisions
}
