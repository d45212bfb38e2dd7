package main

import (
	"context"

	"incumbent.dev/incumbent/tests/upgrade/rollout"
)

// upgrade upgrades from stable to canary and back, under load.
func upgrade(ctx context.Context, r *rollout.Rollout, out *screen) error {
	stable := rollout.Release{Revision: "stable", Replicas: 3}
	canary := rollout.Release{Revision: "canary", Replicas: 2}
	flip := func(revision string) func() error {
		return func() error {
			if err := r.Flip(ctx, revision); err != nil {
				return err
			}
			if err := r.AwaitLeads(ctx, revision); err != nil {
				return err
			}
			_, err := r.AwaitWanted(ctx)
			return err
		}
	}
	install := func(release rollout.Release) func() error { return func() error { return r.Install(ctx, release) } }
	uninstall := func(revision string) func() error { return func() error { return r.Uninstall(ctx, revision) } }
	for _, step := range []func() error{
		install(stable), flip("stable"), func() error { return r.StartLoad(ctx) }, install(canary), flip("canary"),
		uninstall("stable"), install(stable), flip("stable"), uninstall("canary"), r.StopLoad,
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return printVerdict(ctx, r, out)
}

// printVerdict waits for the desired state, prints the figures, and returns the violations as an error.
func printVerdict(ctx context.Context, r *rollout.Rollout, out *screen) error {
	v, err := r.AwaitWanted(ctx)
	if err != nil {
		return err
	}
	out.print("\nVerdict, by the audit log of the API server:\n" + v.Figures.String())
	if err := v.Err(); err != nil {
		return err
	}
	out.print("No two leaders wrote at the same time. Every object is in its desired state.\n")
	return nil
}
