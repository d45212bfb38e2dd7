package ctl

import (
	"cmp"
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"incumbent.dev/incumbent/internal/inspect"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/admin"
)

func (p *Program) cancel() *cobra.Command {
	o := &order{
		anyHolder: true,
		describe: func(e inspect.Election) string {
			switch r := e.Request; {
			case !byOperator(e):
				return "the hold of the transfer will end, so rank will be in effect again"
			case r.Accepted:
				return e.Holder + " has accepted the request and stops its work; it will release the lock to any candidate"
			}
			return "the request of " + cmp.Or(e.Request.Requester, "?") + " will be removed; " + e.Holder + " keeps the lock"
		},
		check: func(_ context.Context, _ *clients, e inspect.Election) error {
			switch {
			case byOperator(e) || e.Hold != nil && e.Hold.Reason == "transfer":
				return nil
			case e.Request != nil:
				return withCode(Refused, "the request on %s is from the candidate %s, which repeats it; to keep the leader: %s", e.Name, e.Request.Identity, command("pause", e))
			}
			return withCode(Refused, "election %s has no request of an operator", e.Name)
		},
		execute: func(ctx context.Context, op admin.Operator) error { return op.Cancel(ctx) },
	}
	return p.order("cancel ELECTION", "Withdraw a transfer or step-down",
		"Removes the request from the lock, or the hold if the transfer is completed. This works also if the leader is stopped.", o)
}

func byOperator(e inspect.Election) bool { return e.Request != nil && e.Request.Reason == "operator" }

// command returns a command for an election, as the user can type it.
func command(verb string, e inspect.Election) string {
	return fmt.Sprintf("%s %s -n %s %s", name(), verb, e.Namespace, e.Name)
}
