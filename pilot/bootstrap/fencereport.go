package bootstrap

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"sigs.k8s.io/yaml"

	"incumbent.dev/incumbent/internal/fence/install"
)

// Report says what fences found wrong, by an API server's audit log: what modes audit and
// warn let pass, and what deny refused.
func (c FenceConfig) Report(out io.Writer) error {
	var log io.Reader = os.Stdin
	if c.AuditLog != "" && c.AuditLog != "-" {
		file, err := os.Open(c.AuditLog)
		if err != nil {
			return fmt.Errorf("--audit-log: %w", err)
		}
		defer file.Close()
		log = file
	}
	found, err := install.Report(log)
	if err != nil {
		return fmt.Errorf("--audit-log=%s: %w", c.AuditLog, err)
	}
	if c.Output != "" && c.Output != "table" {
		return encode(out, c.Output, found)
	}
	for _, f := range found {
		fmt.Fprintln(out, f)
	}
	if len(found) == 0 {
		fmt.Fprintln(out, "no fence found anything wrong")
	}
	return nil
}

// print writes findings, or whatever else there is a list of, in the form that was asked for.
func (c FenceConfig) print(out io.Writer, findings []install.Finding) error {
	if c.Output == "" || c.Output == "table" {
		for _, f := range findings {
			fmt.Fprintln(out, f)
		}
		return nil
	}
	return encode(out, c.Output, findings)
}

// encode writes a value as JSON or YAML.
func encode(out io.Writer, form string, value any) error {
	var text []byte
	var err error
	switch form {
	case "json":
		text, err = json.MarshalIndent(value, "", "  ")
		text = append(text, '\n')
	case "yaml":
		text, err = yaml.Marshal(value)
	default:
		return fmt.Errorf("--output=%s: give table, json or yaml", form)
	}
	if err != nil {
		return fmt.Errorf("--output=%s: %w", form, err)
	}
	_, err = out.Write(text)
	return err
}
