package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"incumbent.dev/incumbent/pilot/bootstrap"
)

// versionCommand prints the version of the program.
func versionCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of the program and its toolchain",
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
	cmd.Flags().StringVarP(&output, "output", "o", "text", "output format: text or json")
	return cmd
}
