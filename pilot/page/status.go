package page

import (
	"cmp"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"

	"incumbent.dev/incumbent/internal/diagnosis"
	"incumbent.dev/incumbent/internal/inspect"
)

// status is the state of a row as one word. The tiles, the colour, the order of rows and the filter use it.
type status string

const (
	// noLeader means that no candidate acts: the lock is free, unreadable or expired, or its holder does not act yet.
	noLeader status = "no leader"
	// unknown means that this process cannot read the lock, or that the lease may have expired.
	unknown status = "unknown"
	// rejected means that the API server rejects the writes of this process.
	rejected status = "rejected"
	// problem means that an operator must act although a candidate leads.
	problem status = "problem"
	// onHold means that an operator or a transfer keeps the leader.
	onHold status = "on hold"
	// obstacle means that an annotation prevents a change of the leader.
	obstacle status = "obstacle"
	leading  status = "leading"
)

// statuses are all states, the most severe first.
var statuses = []status{noLeader, unknown, rejected, problem, onHold, obstacle, leading}

// Class is the colour of the state.
func (s status) Class() string {
	switch s {
	case noLeader, unknown, problem:
		return "bad"
	case rejected, onHold, obstacle:
		return "warn"
	case leading:
	}
	return "good"
}

func statusOf(e inspect.Election) status {
	switch {
	case e.State == inspect.Unread, e.State == inspect.Doubtful:
		return unknown
	case e.Holder == "" || !e.Acting() && !e.Process.Leading:
		return noLeader
	case e.Process.Rejected != "":
		return rejected
	case len(e.Problems) > 0:
		return problem
	case e.Hold != nil:
		return onHold
	case len(e.Obstacles) > 0:
		return obstacle
	}
	return leading
}

// note is a reason for the state of a row, with a command that fixes it or shows details.
type note struct{ Text, Command string }

// notesOf returns the reasons for the state, the most important first.
func notesOf(e inspect.Election, s status) (all []note) {
	in := diagnosis.Input{Elections: []inspect.Election{e}, Members: map[string]bool{e.Namespace: e.Candidates != nil}}
	findings := diagnosis.Of(e, diagnosis.Findings(in))
	if s == noLeader || s == unknown {
		all = append(all, note{reason(e), fmt.Sprintf("electionctl -n %s explain %s", e.Namespace, e.Name)})
		if i := slices.IndexFunc(findings, func(f diagnosis.Finding) bool { return f.Rejected }); i >= 0 && e.Process.Failed == "" {
			all[0] = note{findings[i].Cause, findings[i].Command}
		}
	}
	for _, f := range findings {
		if f.Check != diagnosis.Leaders {
			all = append(all, note{f.Cause, f.Command})
		}
	}
	return all
}

// reason returns why an election has no leader. It contains no value that differs between elections with the same cause.
func reason(e inspect.Election) string {
	if failed := e.Process.Failed; failed != "" {
		return "requests of this process for the lock fail: " + strings.ReplaceAll(failed, `"`+e.Name+`"`, `"…"`)
	}
	text := "the holder does not act yet"
	switch e.State {
	case inspect.Unread:
		return "this process cannot read the lock"
	case inspect.Doubtful:
		text = "the holder may have stopped renewing its lease"
	case inspect.Expired:
		text = "the lease expired, because the holder did not renew it"
	case inspect.Unreadable:
		text = "the record of the lock is unreadable"
	case inspect.Free:
		text = "the last holder released the lock"
	case inspect.Empty:
		text = "no candidate has acquired the lock"
	case inspect.Nominated:
		text = "the nominated holder has not acquired the lock"
	case inspect.Leads, inspect.Holds:
		if e.Former != "" {
			text = "the holder waits until an earlier leader can no longer act"
		}
	}
	ready := func(c inspect.Candidate) bool { return c.Readiness() == inspect.Ready }
	if e.Candidates != nil && !e.Led() && !slices.ContainsFunc(e.Candidates, ready) {
		text += "; no candidate is ready"
	}
	return text
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
	for i := range g.Rows {
		r := &g.Rows[i]
		if len(r.Notes) == 0 {
			continue
		}
		command := r.Notes[0].Command
		r.Notes[0].Text = ""
		switch {
		case len(g.Rows) == 1:
			g.Note.Command = command
		case g.Status == noLeader, g.Status == unknown:
			g.Note.Command = fmt.Sprintf("electionctl -n %s doctor", r.Namespace)
		default: // each row has a command of its own
			if command != "" {
				continue
			}
		}
		r.Notes = r.Notes[1:]
	}
}
