package ctl

import (
	"github.com/spf13/cobra"

	"incumbent.dev/incumbent/cmd/fencecommand"
	"incumbent.dev/incumbent/internal/fence/install"
)

// fence returns pilot's command of that name with kubectl's connection flags.
func (p *Program) fence() *cobra.Command {
	cmd := fencecommand.Command(fencecommand.Options{Connect: func(config *install.Config) (err error) {
		if *p.flags.Namespace != "" {
			config.Namespace = *p.flags.Namespace
		}
		config.RESTConfig, err = p.config()
		return err
	}})
	cmd.Args = onlyCommands
	for _, sub := range cmd.Commands() {
		sub.Args = exactly()
	}
	return cmd
}
