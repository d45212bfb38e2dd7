package ctl

import (
	"github.com/spf13/cobra"

	"incumbent.dev/incumbent/cmd/fencecommand"
	"incumbent.dev/incumbent/internal/fence/install"
	"incumbent.dev/incumbent/pkg/features"
)

// fence returns pilot's command of that name with kubectl's connection flags.
func (p *Program) fence() *cobra.Command {
	env, wrong := features.FromEnv()
	return fencecommand.Command(fencecommand.Options{Features: env, Wrong: wrong, Run: fencecommand.Do, Connect: func(config *install.Config) (err error) {
		if *p.flags.Namespace != "" {
			config.Namespace = *p.flags.Namespace
		}
		config.RESTConfig, err = p.flags.ToRESTConfig()
		return err
	}})
}
