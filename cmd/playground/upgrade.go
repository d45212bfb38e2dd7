package main

import (
	"context"
	"fmt"
	"io"

	"incumbent.dev/incumbent/tests/upgrade/rollout"
)

// upgrade upgrades from stable to canary and back, under load.
func upgrade(ctx context.Context, r *rollout.Rollout, out io.Writer) error {
	if err := r.UpgradeAndBack(ctx); err != nil {
		return err
	}
	if err := r.StopLoad(); err != nil {
		return err
	}
	return printVerdict(ctx, r, out)
}

// printVerdict waits for the desired state, prints the figures, and returns the violations as an error.
func printVerdict(ctx context.Context, r *rollout.Rollout, out io.Writer) error {
	v, err := r.AwaitWanted(ctx)
	if err != nil {
		return err
	}
	fmt.Fprint(out, "\nVerdict, by the audit log of the API server:\n"+v.Figures.String())
	if err := v.Err(); err != nil {
		return err
	}
	fmt.Fprintln(out, "No two leaders wrote at the same time. Every object is in its desired state.")
	return nil
}
