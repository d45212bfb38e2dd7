package ctl

import (
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"

	logs "incumbent.dev/incumbent/internal/audit"
	"incumbent.dev/incumbent/internal/inspect"
)

// auditing has the flags of audit.
type auditing struct {
	logs.Options
	output string
	guards []string
	policy bool
}

func (p *Program) audit() *cobra.Command {
	s := &auditing{}
	cmd := &cobra.Command{
		Use: "audit FILE...", Short: "Find writes of non-leaders in audit logs",
		Long: `Reconstruct the terms of each lock in the audit logs of API servers. List writes of candidates that did not hold their lock,
the time since the loss, overlaps, and locks that changed their holder too often. Works for elections of istiod, client-go,
controller-runtime and incumbent. Sends no request.

FILE has one JSON event per line, or is an export of CloudWatch (EKS), Cloud Logging (GKE) or Azure Monitor (AKS), and may be compressed
with gzip; - is standard input. Give the files of all API servers of one cluster, in any order.

A lock guards the writes that its holder makes and its followers do not make. --guard assigns writes to a lock.

The exit code is 0 without findings, 1 with findings, and 2 if the logs do not suffice. Findings count even if the logs do not suffice.`,
		Example: `  electionctl audit --policy -n istio-system > policy.yaml
  electionctl audit audit.log audit-2026-01-02.log.gz
  electionctl audit --guard my-lock=deployments --guard my-lock=configmaps:settings audit.log`,
		RunE: func(cmd *cobra.Command, files []string) error { return s.run(cmd, *p.flags.Namespace, files) },
	}
	flags := cmd.Flags()
	flags.StringVarP(&s.output, "output", "o", "text", "text or json")
	flags.BoolVar(&s.policy, "policy", false, "print the smallest audit policy that suffices; --namespace limits it to the candidates of a namespace")
	flags.StringArrayVar(&s.guards, "guard", nil, "assign writes to a lock, or to none with LOCK -: LOCK=RESOURCE[/SUBRESOURCE][:NAME]")
	flags.StringVar(&s.Lock, "lock", "", "judge only locks of this name")
	flags.IntVar(&s.MaxChanges, "max-changes", 10, "largest acceptable number of changes of the holder within --window; 0 disables the check")
	flags.DurationVar(&s.Window, "window", 10*time.Minute, "period of --max-changes")
	flags.DurationVar(&s.MaxLeaderless, "max-leaderless", 0, "longest acceptable time without a leader; 0 disables the check")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"text", "json"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (s *auditing) run(cmd *cobra.Command, namespace string, files []string) error {
	switch {
	case s.output != "text" && s.output != "json":
		return withCode(misused, "--output: %q is not text or json", s.output)
	case s.Window <= 0 || s.MaxChanges < 0 || s.MaxLeaderless < 0:
		return withCode(misused, "--window must be positive, and --max-changes and --max-leaderless must not be negative")
	case s.policy && len(files) > 0:
		return withCode(misused, "--policy reads no file, got %q", files[0])
	case s.policy:
		_, err := io.WriteString(cmd.OutOrStdout(), logs.Policy(namespace))
		return err
	case len(files) == 0:
		return withCode(misused, "missing argument FILE; - is standard input")
	}
	for _, text := range s.guards {
		g, err := logs.ParseGuard(text)
		if err != nil {
			return withCode(misused, "--guard: %w", err)
		}
		s.Guards = append(s.Guards, g)
	}
	// A log has millions of writes. A third of the usual garbage is enough.
	defer debug.SetGCPercent(debug.SetGCPercent(30))
	log := logs.NewLog()
	if err := readLogs(cmd, log, files); err != nil {
		return withCode(misused, "%w", err)
	}
	report := logs.Examine(log, s.Options)
	if err := s.print(cmd.OutOrStdout(), report, len(files)); err != nil {
		return err
	}
	return verdict(report)
}

func (s *auditing) print(out io.Writer, report logs.Report, files int) error {
	if s.output == "json" {
		return inspect.WriteJSON(out, report)
	}
	_, err := io.WriteString(out, auditText(report, files))
	return err
}

// verdict returns nil only if the log suffices and has no findings.
func verdict(r logs.Report) error {
	switch {
	case len(r.Findings) > 0:
		return withCode(Failed, "%s in the audit log", count(len(r.Findings), "finding"))
	case len(r.Incomplete) > 0:
		return withCode(misused, "the audit log does not suffice: %s. --policy prints a sufficient audit policy", strings.Join(r.Incomplete, "; "))
	}
	return nil
}

// readLogs reads all files.
func readLogs(cmd *cobra.Command, log *logs.Log, files []string) error {
	bar := newBar(cmd.ErrOrStderr())
	defer bar.end()
	for _, name := range files {
		if name == "-" {
			continue
		}
		info, err := os.Stat(name)
		switch {
		case err != nil:
			return err
		case info.IsDir():
			return fmt.Errorf("%s is a directory; give its files", name)
		}
		bar.total += info.Size()
	}
	for _, name := range files {
		if err := readLog(cmd, log, name, bar); err != nil {
			return err
		}
	}
	return nil
}

func readLog(cmd *cobra.Command, log *logs.Log, name string, bar *bar) error {
	from := cmd.InOrStdin()
	label := "standard input"
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return err
		}
		defer file.Close()
		from = file
		label = name
	}
	events, truncated := log.Events, len(log.Truncated)
	if err := log.Read(label, &counted{cmd.Context().Err, from, bar}); err != nil {
		return err
	}
	if log.Events == events && len(log.Truncated) == truncated {
		return fmt.Errorf("%s has no event", label)
	}
	return nil
}

// counted advances the progress bar, and fails when the user has interrupted the command.
type counted struct {
	interrupted func() error
	io.Reader
	bar *bar
}

func (c *counted) Read(p []byte) (int, error) {
	if err := c.interrupted(); err != nil {
		return 0, err
	}
	n, err := c.Reader.Read(p)
	c.bar.add(n)
	return n, err
}
