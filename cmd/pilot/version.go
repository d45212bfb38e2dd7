package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"incumbent.dev/incumbent/pilot/bootstrap"
)

// versionCommand says what was built.
func versionCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Say of which version this program was built, and by what",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			build := bootstrap.ReadBuild()
			switch output {
			case "text":
				_, err := fmt.Fprintln(cmd.OutOrStdout(), build)
				return err
			case "json":
				encoder := json.NewEncoder(cmd.OutOrStdout())
				encoder.SetIndent("", "  ")
				return encoder.Encode(build)
			}
			return fmt.Errorf("--output=%q: give text or json", output)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "text", "how to say it: text or json")
	return cmd
}
