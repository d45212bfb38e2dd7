package ctl

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json" // keeps integers
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"incumbent.dev/incumbent/internal/inspect"
)

// output is the format of a command: a table, or a format of kubectl.
type output struct {
	flags *genericclioptions.PrintFlags
}

func printing(cmd *cobra.Command) *output {
	o := &output{flags: genericclioptions.NewPrintFlags("")}
	o.flags.AddFlags(cmd)
	f := cmd.Flags().Lookup("output")
	f.Usage = "table, wide, or one of " + strings.Join(o.flags.AllowedFormats(), ", ")
	cmd.Flags().Lookup("show-managed-fields").Hidden = true
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(append([]string{"table", "wide"}, o.flags.AllowedFormats()...), cobra.ShellCompDirectiveNoFileComp))
	return o
}

func (o *output) format() string { return *o.flags.OutputFormat }

func (o *output) wide() bool { return o.format() == "wide" }

// table reports whether the format is a table.
func (o *output) table() bool {
	return (o.format() == "" || o.format() == "table" || o.wide()) && *o.flags.TemplatePrinterFlags.TemplateArgument == ""
}

// check validates the format.
func (o *output) check() error {
	if o.table() {
		return nil
	}
	_, err := o.flags.ToPrinter()
	switch {
	case genericclioptions.IsNoCompatiblePrinterError(err):
		return withCode(misused, "--output: %w, table, wide", err)
	case err != nil:
		return withCode(misused, "--output: %w", err)
	}
	return nil
}

// print writes an object in the selected format.
func (o *output) print(w io.Writer, object runtime.Object) error {
	printer, err := o.flags.ToPrinter()
	if err != nil {
		return err
	}
	isJSON := o.format() == "json"
	if !isJSON { // the printer of YAML fails for some characters
		raw, err := runtime.Encode(unstructured.UnstructuredJSONScheme, object)
		if err != nil {
			return err
		}
		if object, err = runtime.Decode(unstructured.UnstructuredJSONScheme, []byte(inspect.Printable(string(raw)))); err != nil {
			return err
		}
	}
	var text bytes.Buffer
	if err := printer.PrintObj(object, &text); err != nil {
		return err
	}
	if isJSON {
		_, err = w.Write(inspect.PrintableJSON(text.Bytes()))
	} else {
		_, err = io.WriteString(w, inspect.Printable(text.String()))
	}
	return err
}

// apiVersion is the apiVersion of printed objects. The API server has no such objects.
const apiVersion = "electionctl.incumbent.dev/v1alpha1"

// object converts a value for the printers of kubectl.
func object(kind, namespace, name string, value any) (*unstructured.Unstructured, error) {
	raw, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	content := map[string]any{}
	if err := json.Unmarshal(raw, &content); err != nil {
		return nil, err
	}
	delete(content, "name")
	delete(content, "namespace")
	u := &unstructured.Unstructured{Object: content}
	u.SetAPIVersion(apiVersion)
	u.SetKind(kind)
	u.SetName(name)
	u.SetNamespace(namespace)
	return u, nil
}

// printList writes a list of the objects that convert returns for the values.
func printList[T any](w io.Writer, out *output, values []T, convert func(T) (*unstructured.Unstructured, error)) error {
	list := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "v1", "kind": "List"}}
	for _, value := range values {
		u, err := convert(value)
		if err != nil {
			return err
		}
		list.Items = append(list.Items, *u)
	}
	return out.print(w, list)
}

// cell is text with an optional colour.
type cell struct {
	text, colour string
}

// ANSI colours.
const (
	red    = "31"
	green  = "32"
	yellow = "33"
)

// writeElections writes a table whose first column is the namespace. With one selected namespace, it omits this column.
func (p *Program) writeElections(header []string, rows [][]cell) {
	if !p.all {
		header = header[1:]
		for i := range rows {
			rows[i] = rows[i][1:]
		}
	}
	p.writeTable(p.Out, header, rows)
}

// writeTable aligns columns by visible width, without colour codes.
func (p *Program) writeTable(w io.Writer, header []string, rows [][]cell) {
	head := make([]cell, len(header))
	for i, h := range header {
		head[i] = cell{text: h}
	}
	all := append([][]cell{head}, rows...)
	widths := make([]int, len(header))
	for _, row := range all {
		for i := range row {
			row[i].text = strings.ReplaceAll(inspect.Printable(row[i].text), "\n", " ")
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i].text))
		}
	}
	if p.narrow(widths) {
		p.writeBlocks(w, header, rows)
		return
	}
	for _, row := range all {
		var line strings.Builder
		for i, c := range row {
			line.WriteString(p.colour(c))
			if i < len(row)-1 {
				line.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c.text)+3))
			}
		}
		fmt.Fprintln(w, strings.TrimRight(line.String(), " "))
	}
}

// narrow reports whether a table is wider than the terminal.
func (p *Program) narrow(widths []int) bool {
	total := -3
	for _, width := range widths {
		total += width + 3
	}
	return p.Width > 0 && total > p.Width
}

// writeBlocks writes each cell on its own line.
func (p *Program) writeBlocks(w io.Writer, header []string, rows [][]cell) {
	for i, row := range rows {
		if i > 0 && row[0].text != "" {
			fmt.Fprintln(w)
		}
		for column, c := range row {
			if c.text != "" {
				fmt.Fprintf(w, "%s: %s\n", strings.TrimSpace(header[column]), p.colour(cell{strings.TrimSpace(c.text), c.colour}))
			}
		}
	}
}

func (p *Program) colour(c cell) string {
	if !p.Colour || c.colour == "" {
		return c.text
	}
	return "\x1b[" + c.colour + "m" + c.text + "\x1b[0m"
}
