package ctl

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"incumbent.dev/incumbent/internal/apirequest"
	"incumbent.dev/incumbent/internal/diagnosis"
	"incumbent.dev/incumbent/internal/inspect"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

func (p *Program) explain() *cobra.Command {
	var ifDefault string
	var observe time.Duration
	cmd := &cobra.Command{
		Use:               "explain ELECTION",
		Short:             "Explain the leader, the order of the candidates, and predictions",
		Example:           "  " + name() + " explain -n istio-system istio-leader --default-revision canary",
		Args:              exactly("election"),
		ValidArgsFunction: p.completeElections,
		PreRunE:           notNegative("observe", &observe),
	}
	out := printing(cmd)
	cmd.RunE = p.connected(out, func(ctx context.Context, c *clients, args []string) error {
		d, err := c.defaultRevision(ctx)
		if err != nil {
			return err
		}
		found, s, err := p.one(ctx, c, args[0], d)
		if err != nil {
			return err
		}
		if err := p.observe(ctx, c, found, s, observe); err != nil {
			return err
		}
		findings, err := p.diagnose(ctx, c, found, inspect.Elections(s.locks, s.candidates, s.members, d), s, out.wide())
		if err != nil {
			return err
		}
		if !out.table() {
			return p.printExplanations(out, found, findings, d, ifDefault)
		}
		for i, e := range found {
			if i > 0 {
				fmt.Fprintln(p.Out)
			}
			notLive := p.writeFindings(e, findings)
			p.explained(e, d, ifDefault, out.wide(), notLive)
		}
		return nil
	})
	cmd.Flags().StringVar(&ifDefault, "default-revision", "", "predict the outcome for this default revision")
	cmd.Flags().DurationVar(&observe, "observe", 0, "read twice at this interval and report whether the holder renews; certain from its lease duration on")
	_ = cmd.RegisterFlagCompletionFunc("default-revision", p.completeRevisions)
	return cmd
}

// diagnose returns the findings about all elections, and about Gateways if a leader of the found elections deploys them. It marks the
// candidates of the found elections.
func (p *Program) diagnose(ctx context.Context, c *clients, found, all []inspect.Election, s *seen, wide bool) ([]diagnosis.Finding, error) {
	in, err := c.observe(ctx, all, s, wide)
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(found, diagnosis.Deploys) {
		err = c.read(ctx, in, reads{{"gateways", c.readGateways}})
		if unread := in.Unread["gateways"]; unread != nil {
			fmt.Fprintln(p.ErrOut, inspect.Printable(fmt.Sprintf("warning: %v: Gateways are missing", unread)))
		}
	}
	for i, e := range found {
		found[i].Candidates = in.Elections[slices.IndexFunc(in.Elections, e.Is)].Candidates
	}
	return diagnosis.Findings(*in), err
}

// notNegative returns a check of a flag.
func notNegative(flag string, d *time.Duration) func(*cobra.Command, []string) error {
	return func(*cobra.Command, []string) error {
		if *d < 0 {
			return withCode(misused, "--%s: duration %v: must not be negative", flag, *d)
		}
		return nil
	}
}

// explanation is the machine-readable output.
type explanation struct {
	inspect.Election
	Findings          []diagnosis.Finding `json:"findings,omitempty"`
	Reason            string              `json:"reason"`
	IfHolderDied      inspect.Outcome     `json:"ifHolderDied"`
	IfDefaultRevision *inspect.Outcome    `json:"ifDefaultRevision,omitempty"`
}

// writeFindings prints the findings about an election, the worst one first. It reports whether the holder cannot act.
func (p *Program) writeFindings(e inspect.Election, findings []diagnosis.Finding) (notLive bool) {
	for _, f := range diagnosis.Of(e, findings) {
		if f.Command == command("explain", e) {
			f.Command = "" // the reader has run it
		}
		writeFinding(p.Out, f)
		notLive = notLive || f.Effect == diagnosis.NotLive
	}
	return notLive
}

func writeFinding(w io.Writer, f diagnosis.Finding) {
	safe{w}.line("%s", f.Line())
	for _, line := range details(f) {
		safe{w}.line("  %s", line)
	}
}

func (p *Program) printExplanations(out *output, found []inspect.Election, findings []diagnosis.Finding, d k8sleaderelection.DefaultRevision, ifDefault string) error {
	if out.format() == "name" {
		return p.printObjects(out, found)
	}
	return printList(p.Out, out, found, func(e inspect.Election) (*unstructured.Unstructured, error) {
		x := explanation{Election: e, Findings: diagnosis.Of(e, findings), Reason: e.Reason(d), IfHolderDied: e.IfDied(d)}
		if ifDefault != "" {
			x.IfDefaultRevision = new(e.If(k8sleaderelection.DefaultRevision{Synced: true, Revision: ifDefault}))
		}
		return object("Election", e.Namespace, e.Name, x)
	})
}

// explained prints one election.
func (p *Program) explained(e inspect.Election, d k8sleaderelection.DefaultRevision, ifDefault string, wide, notLive bool) {
	w := safe{p.Out}
	w.line("%s/%s, a %s", e.Namespace, e.Name, e.Lock)
	if e.Holder != "" {
		w.line("  holder       %s%s", e.Holder, optional(" (%s)", e.Program))
		w.line("  revision     %s", cmp.Or(e.Key, "none recorded"))
		w.line("  since        %s, renewed %s", stamp(e.Since), stamp(e.Renewed))
		w.line("  term         %d, lease %d s", e.Transitions, e.LeaseSeconds)
	}
	if notLive {
		w.line("  state        recorded as leader until its lease expires")
	} else {
		w.line("  state        %s", stateWords(e))
	}
	if word := coordinationWord(e); word != "" {
		w.line("  coordinated  %s", word)
	}
	if e.Live != "" {
		w.line("  alive        %s", liveWords[e.Live])
	}
	if r := e.Request; r != nil {
		w.line("  request      %s", inspect.RequestText(*r))
	}
	if h := e.Hold; h != nil {
		w.line("  hold         %s for %s by %s%s", h.Reason, inspect.Seconds(h.Seconds), cmp.Or(h.Requester, "?"), optional(": %s", h.Note))
	}
	if e.Ranked {
		w.line("  default      %s", defaultWord(d))
	}
	w.line("\nWhy: %s", e.Reason(d))
	p.writeCandidates(e, d, wide)
	if e.Led() {
		w.line("\nIf its holder died: %s", outcomeWords(e.IfDied(d)))
	} else {
		w.line("\nNext leader: %s", outcomeWords(e.If(d)))
	}
	if ifDefault != "" {
		w.line("If the default revision were %s: %s", ifDefault,
			outcomeWords(e.If(k8sleaderelection.DefaultRevision{Synced: true, Revision: ifDefault})))
	}
}

// coordinationWord returns whether a coordinator chooses the leader, or "" without one.
func coordinationWord(e inspect.Election) string {
	switch {
	case e.Uncoordinated != "":
		return "no: " + e.Uncoordinated
	case e.Coordinated():
		return "by " + e.Strategy
	case e.Strategy != "":
		return "no: the holder does not request " + e.Strategy
	}
	return ""
}

// writeCandidates prints the candidates in order. Unless wide is set, more than a few followers are grouped by revision and state.
func (p *Program) writeCandidates(e inspect.Election, d k8sleaderelection.DefaultRevision, wide bool) {
	w := safe{p.Out}
	if len(e.Candidates) == 0 {
		w.line("\nThe candidates are unknown, because there are no member Leases.")
		return
	}
	switch {
	case e.Coordinated():
		w.line("\nCandidates of the coordinator:")
	case !e.Ranked && e.Holder != "":
		w.line("\nCandidates, without rank:")
	case !d.Synced:
		w.line("\nCandidates, in unknown order of rank:")
	default:
		w.line("\nCandidates in order of rank:")
	}
	var rows [][]cell
	var counts []int
	index := map[string]int{}
	for _, c := range e.Candidates {
		role := "follower"
		switch readiness := c.Readiness(); {
		case readiness == inspect.Down, readiness == inspect.Late, readiness == inspect.CoolingDown, readiness == inspect.Refused:
			role = string(readiness)
		case c.Identity == e.Holder && e.Led():
			role = "leader"
		}
		row := []cell{{text: "  " + c.Identity}, {text: cmp.Or(c.Key, "-")}, {text: role}, yes(c.Warm, "warm", "not warm"), yes(c.Fit, "fit", "unfit"), {text: c.Witness}}
		group := fmt.Sprint(row[1:])
		if i, known := index[group]; known && !wide && !diagnosis.Few(e) {
			counts[i]++
			rows[i][0].text = fmt.Sprintf("  %d candidates", counts[i])
			continue
		}
		index[group] = len(rows)
		rows, counts = append(rows, row), append(counts, 1)
	}
	p.writeTable(p.Out, []string{"  CANDIDATE", "REVISION", "ROLE", "CACHES", "FITNESS", "WITNESS"}, rows)
}

func yes(is bool, yes, no string) cell {
	if is {
		return cell{text: yes}
	}
	return cell{text: no, colour: yellow}
}

// safe writes lines without control characters.
type safe struct{ io.Writer }

// line writes a line. A text from the cluster does not add lines, because its writer could forge output.
func (s safe) line(format string, args ...any) {
	for i, arg := range args {
		if text, ok := arg.(string); ok {
			args[i] = strings.ReplaceAll(text, "\n", " ")
		}
	}
	fmt.Fprintln(s.Writer, inspect.Printable(fmt.Sprintf(format, args...)))
}

// optional formats s. It returns "" if s is empty.
func optional(format, s string) string {
	if s == "" {
		return ""
	}
	return fmt.Sprintf(format, s)
}

func defaultWord(d k8sleaderelection.DefaultRevision) string {
	switch {
	case !d.Synced:
		return "unknown: reading " + defaultTag + " is forbidden"
	case d.Revision == "":
		return "none"
	}
	return d.Revision
}

func stateWords(e inspect.Election) string {
	switch e.State {
	case inspect.Leads:
		switch {
		case e.Unfit:
			return "leads, but is unfit: it hands over to any fit candidate"
		case e.HandsOver:
			return "leads, and accepts handover requests"
		}
		return "leads; it does not know the default revision, so a higher-ranked candidate preempts it"
	case inspect.Holds:
		return "holds the lock without a marker: another elector, or a candidate that settles"
	case inspect.Nominated:
		return "nominated; has not acquired the lock yet"
	case inspect.Free:
		return "free: the last holder released it"
	case inspect.Empty:
		return "empty: never held"
	case inspect.Expired:
		return e.StateText() + ": the next candidate acquires it, after its own lease if that is longer"
	case inspect.Doubtful:
		return e.StateText() + ": to be certain, use --observe"
	case inspect.Unreadable:
		return "unreadable"
	}
	return string(e.State)
}

// observe reads the locks again and records whether their holders renewed.
func (p *Program) observe(ctx context.Context, c *clients, found []inspect.Election, s *seen, apart time.Duration) error {
	if apart == 0 {
		return nil
	}
	defer p.progress(fmt.Sprintf("watching for %v", apart))()
	if err := apirequest.Pause(ctx, apart); err != nil {
		return err
	}
	then, err := c.look(ctx, found[0].Namespace)
	if err != nil {
		return err
	}
	for i, e := range found {
		before, _ := s.lock(e)
		after, _ := then.lock(e)
		found[i].Live = inspect.Compare(before, after, then.at.Sub(s.at))
	}
	return nil
}

var liveWords = map[inspect.Liveness]string{
	inspect.Renewed:   "yes: renewed",
	inspect.Silent:    "no: not renewed for its lease duration; a candidate acquires the lock",
	inspect.Moved:     "a new term began",
	inspect.Undecided: "unknown: not renewed, but the lease is longer",
}

// candidateWords describes the next leader.
func candidateWords(o inspect.Outcome) string {
	of := optional(" of %s", o.Revision)
	switch {
	case o.Leader != "":
		return o.Leader
	case o.Candidates > 1:
		return fmt.Sprintf("one of %d candidates%s", o.Candidates, of)
	case of != "":
		return "a candidate" + of
	}
	return "the first candidate"
}

func outcomeWords(o inspect.Outcome) string {
	who := candidateWords(o)
	switch o.Move {
	case inspect.Stays:
		if o.Leader == "" {
			return "no candidate would lead (" + o.Why + ")"
		}
		return o.Leader + " stays (" + o.Why + ")"
	case inspect.Unknown:
		return fmt.Sprintf("%s (%s); gap: %s", who, o.Why, o.Gap)
	case inspect.HandOver, inspect.Preempt, inspect.Expire, inspect.Acquire:
	}
	how := map[inspect.Move]string{inspect.HandOver: ", by handover", inspect.Preempt: ", by preemption", inspect.Expire: ", when the lease expires"}
	return fmt.Sprintf("%s%s; gap: %s (%s)", who, how[o.Move], o.Gap, o.Why)
}
