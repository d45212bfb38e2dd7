package page

import (
	"cmp"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"

	"incumbent.dev/incumbent/internal/diagnosis"
	"incumbent.dev/incumbent/internal/inspect"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

// status is the state of a row as one word. The tiles, the colour, the order of rows and the filter use it.
type status string

const (
	// noLeader means that no candidate acts: the lock is free, unreadable or expired, or its holder does not act yet.
	noLeader status = "no leader"
	// unknown means that this process cannot read the lock, or that the lease may have expired.
	unknown status = "unknown"
	// rejected means that the API server rejects the writes of a candidate.
	rejected status = "rejected"
	// problem means that an operator must act although a candidate leads.
	problem status = "problem"
	// onHold means that an operator or a transfer keeps the leader.
	onHold status = "on hold"
	// obstacle means that an annotation prevents a change of the leader.
	obstacle status = "obstacle"
	// warning means that a candidate leads, and the diagnosis has a warning.
	warning status = "warning"
	leading status = "leading"
)

// statuses are all states, the most severe first.
var statuses = []status{noLeader, unknown, rejected, problem, onHold, obstacle, warning, leading}

// Class is the colour of the state.
func (s status) Class() string {
	switch s {
	case noLeader, unknown, problem:
		return "bad"
	case rejected, onHold, obstacle, warning:
		return "warn"
	case leading:
	}
	return "good"
}

// note is a reason for the state of a row, with a command that fixes it or shows details.
type note struct{ Text, Command string }

// judge returns the state of an election and its reasons, the most important first.
func judge(e inspect.Election, d k8sleaderelection.DefaultRevision) (status, []note) {
	findings := diagnosis.OfProcess(e, d)
	s := statusOf(e, findings)
	var notes []note
	for _, f := range findings {
		notes = append(notes, note{textOf(f, e, s), f.Command})
	}
	return s, notes
}

// textOf returns the text of a finding about an election of the state s.
func textOf(f diagnosis.Finding, e inspect.Election, s status) string {
	// The age of a renewal differs between elections with the same cause. The row shows it.
	state := string(e.State)
	if s == unknown {
		state = "the lease may have expired"
	}
	text := strings.Replace(f.Cause, e.StateText(), state, 1)
	if f.Effect != "" && s != noLeader && s != unknown {
		text = "the election " + f.Effect + ": " + text
	}
	if f.Advice != "" {
		text += ". " + f.Advice
	}
	return text
}

// statusOf returns the state of an election with its findings.
func statusOf(e inspect.Election, findings []diagnosis.Finding) status {
	has := func(is func(f diagnosis.Finding) bool) bool { return slices.ContainsFunc(findings, is) }
	switch {
	case e.State == inspect.Unread, e.State == inspect.Doubtful:
		return unknown
	case e.Holder == "" || !e.Acting() && !e.Process.Leading:
		return noLeader
	case has(func(f diagnosis.Finding) bool { return f.Rejected }):
		return rejected
	case has(func(f diagnosis.Finding) bool { return f.Severity == diagnosis.Problem }):
		return problem
	case e.Hold != nil:
		return onHold
	case len(e.Obstacles) > 0:
		return obstacle
	case has(func(f diagnosis.Finding) bool { return f.Severity != diagnosis.Well }):
		return warning
	}
	return leading
}

// group has the rows with the same state and the same most important reason.
type group struct {
	ID     string
	Status status
	// Note is the common reason. Its command applies to all rows.
	Note note
	Rows []row
}

// groups returns the rows by severity and cause, the largest group first.
func groups(rows []row) (all []group) {
	index := map[string]int{}
	for _, r := range rows {
		var first note
		if len(r.Notes) > 0 {
			first.Text = r.Notes[0].Text
		}
		id := fmt.Sprintf("g-%x", crc32.ChecksumIEEE([]byte(string(r.Status)+first.Text)))
		i, known := index[id]
		if !known {
			i = len(all)
			index[id] = i
			all = append(all, group{ID: id, Status: r.Status, Note: first})
		}
		all[i].Rows = append(all[i].Rows, r)
	}
	slices.SortStableFunc(all, func(a, b group) int {
		return cmp.Or(cmp.Compare(slices.Index(statuses, a.Status), slices.Index(statuses, b.Status)), cmp.Compare(len(b.Rows), len(a.Rows)))
	})
	for i := range all {
		all[i].share()
	}
	return all
}

// share moves what the rows have in common from their notes to the group.
func (g *group) share() {
	if g.Note.Text == "" {
		return
	}
	first := g.Rows[0]
	command := first.Notes[0].Command
	if slices.ContainsFunc(g.Rows, func(r row) bool { return r.Notes[0].Command != command }) {
		command = ""
		if g.Status == noLeader || g.Status == unknown {
			command = fmt.Sprintf("electionctl -n %s doctor", first.Namespace)
		}
	}
	g.Note.Command = command
	for i := range g.Rows {
		r := &g.Rows[i]
		if r.Notes[0].Text = ""; command != "" || r.Notes[0].Command == "" {
			r.Notes = r.Notes[1:]
		}
	}
}
