package main

import (
	"cmp"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"incumbent.dev/incumbent/pkg/features"
)

// featuresCommand lists the environment variables. It also reports invalid values.
func featuresCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "features",
		Short: "List the environment variables of the server and their current values",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(table, "NAME\tTYPE\tDEFAULT\tVALUE\tDESCRIPTION")
			for _, f := range features.List() {
				value := "-"
				if f.Set {
					value = f.Value
				}
				fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", f.Name, f.Type, cmp.Or(f.Default, "(none)"), value, f.Description)
			}
			if err := table.Flush(); err != nil {
				return err
			}
			_, err := features.FromEnv()
			return err
		},
	}
}
