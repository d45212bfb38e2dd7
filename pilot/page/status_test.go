package page

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"incumbent.dev/incumbent/internal/inspect"
	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

// states has an election for each state of a lock and of the process.
func states() map[string]inspect.Election {
	of := func(state inspect.State, change func(e *inspect.Election)) inspect.Election {
		e := electionOf("e", inspect.Lease, "b", "stable", leaderelection.Status{})
		e.State = state
		if change != nil {
			change(&e)
		}
		return e
	}
	none := func(e *inspect.Election) { e.Holder, e.Key, e.Revision = "", "", "" }
	waits := func(e *inspect.Election) { e.Process.Acting = false }
	return map[string]inspect.Election{
		"leads": of(inspect.Leads, nil), "holds": of(inspect.Holds, nil),
		"free": of(inspect.Free, none), "empty": of(inspect.Empty, none), "unreadable": of(inspect.Unreadable, none),
		"expired": of(inspect.Expired, nil), "may be expired": of(inspect.Doubtful, nil), "unread": of(inspect.Unread, none),
		"nominated": of(inspect.Nominated, waits), "holder waits": of(inspect.Leads, waits),
		"settling":       of(inspect.Holds, func(e *inspect.Election) { e.Process.Acting, e.Former = false, "a" }),
		"validity ended": of(inspect.Leads, func(e *inspect.Election) { e.Process.Acting, e.Process.Phase = false, "leading" }),
		"outage":         of(inspect.Unread, func(e *inspect.Election) { e.Process.Failed = "connection refused" }),
		"forbidden": of(inspect.Free, func(e *inspect.Election) {
			none(e)
			e.Process.Failed = `leases "e" is forbidden: User "system:serviceaccount:istio-system:pilot" cannot get resource "leases"`
		}),
		"unfit candidate": of(inspect.Free, func(e *inspect.Election) {
			e.Holder, e.Candidates = "", []inspect.Candidate{{Identity: "c", Warm: true}}
		}),
		"rejected": of(inspect.Leads, func(e *inspect.Election) {
			e.Process.Rejected, e.Process.Identity = "forbidden", "a"
		}),
		"problem": of(inspect.Leads, func(e *inspect.Election) { e.Problems = []string{"two locks"} }),
		"hold":    of(inspect.Leads, func(e *inspect.Election) { e.Hold = &record.Hold{Requester: "ann", Reason: "pause", Seconds: 60} }).With(nil, k8sleaderelection.DefaultRevision{}),
		"alone":   of(inspect.Leads, func(e *inspect.Election) { e.Candidates = []inspect.Candidate{{Identity: "b", Warm: true, Fit: true}} }),
		"candidate refused": of(inspect.Leads, func(e *inspect.Election) {
			e.Candidates = []inspect.Candidate{{Identity: "b", Warm: true, Fit: true}, {Identity: "c", Refused: "no permission"}, {Identity: "d", Warm: true, Fit: true}}
		}),
		"only candidate refused": of(inspect.Leads, func(e *inspect.Election) {
			e.Candidates = []inspect.Candidate{{Identity: "b", Warm: true, Fit: true}, {Identity: "c", Warm: true, Fit: true, Refused: `admission webhook "x" denied the request`}}
		}),
		"candidate rejected": of(inspect.Free, func(e *inspect.Election) {
			e.Holder, e.Candidates = "", []inspect.Candidate{{Identity: "c", Warm: true, Fit: true, Refused: `admission webhook "x" denied the request`}}
		}),
		"without a witness": of(inspect.Leads, func(e *inspect.Election) {
			for _, name := range []string{"b", "c"} {
				e.Candidates = append(e.Candidates, inspect.Candidate{Namespace: e.Namespace, Election: e.Name, Identity: name, Warm: true, Fit: true, Witness: map[string]string{"b": "parent", "c": inspect.NoWitness}[name]})
			}
		}),
		"two markers": of(inspect.Leads, func(e *inspect.Election) { e.Former = "a" }).With(nil, k8sleaderelection.DefaultRevision{}),
		"refused":     of(inspect.Leads, func(e *inspect.Election) { e.Request = &record.Request{Identity: "c", Refused: "not warm"} }).With(nil, k8sleaderelection.DefaultRevision{}),
		"hold without a leader": of(inspect.Free, func(e *inspect.Election) {
			e.Holder, e.Hold = "", &record.Hold{Requester: "ann", Reason: "pause", Seconds: 60}
		}).With(nil, k8sleaderelection.DefaultRevision{}),
	}
}

// role is the command that gives a service account the rights on locks.
const role = "kubectl -n istio-system create role pilot-locks --verb=get,list,watch,create,update --resource=leases.coordination.k8s.io --dry-run=client -o yaml | kubectl -n istio-system apply -f - && " +
	"kubectl -n istio-system create rolebinding pilot-locks --role=pilot-locks --serviceaccount=istio-system:pilot --dry-run=client -o yaml | kubectl -n istio-system apply -f -"

func TestStatus(t *testing.T) {
	want := map[string]string{
		"leads": "leading good", "holds": "leading good",
		"free": "no leader bad: free", "empty": "no leader bad: empty",
		"unreadable": "no leader bad: unreadable", "expired": "no leader bad: expired",
		"may be expired": "unknown bad: the lease may have expired", "unread": "unknown bad: this process cannot read the lock. Only the API server or the network of this process has the reason. Test the API server from another machine: → kubectl get --raw '/readyz?verbose'",
		"nominated": "no leader bad: the nominated holder has not acquired the lock. Only its log has the reason if this needs longer than a lease. → kubectl -n istio-system logs b", "holder waits": "no leader bad: the holder does not act. Only its log has the reason if this needs longer than a lease. → kubectl -n istio-system logs b",
		"settling":               "no leader bad: the holder waits until an earlier leader can no longer act. Only its log has the reason if this needs longer than a lease. → kubectl -n istio-system logs b",
		"validity ended":         "no leader bad: the holder does not act. Only its log has the reason if this needs longer than a lease. → kubectl -n istio-system logs b",
		"outage":                 "unknown bad: requests of this process for the lock fail: connection refused. Only the API server or the network of this process has the reason. Test the API server from another machine: → kubectl get --raw '/readyz?verbose'",
		"forbidden":              "no leader bad: service account istio-system/pilot has no permission to get leases in namespace istio-system. Give it a Role. → " + role,
		"unfit candidate":        "no leader bad: free; candidates: c (unfit). Only the log of the candidate has the reason. → kubectl -n istio-system logs c",
		"rejected":               "rejected warn: the election has a candidate that cannot lead: the API server rejects a as holder: forbidden. Only a change of what rejects it can fix this. Its log has each rejection. → kubectl -n istio-system logs a",
		"problem":                "problem bad: two locks. Only its candidates can fix this: all need one readable lock of the same type.",
		"hold":                   "on hold warn: incumbent.dev/hold: pause by ann: for 60s no candidate can acquire the lock by rank → electionctl -n istio-system resume e",
		"alone":                  "warning warn: the election has no candidate that can replace the leader: other candidates: none. Run at least two replicas.",
		"candidate refused":      "rejected warn: the election has a candidate that cannot lead: the API server rejects c as holder: no permission. Only a change of what rejects it can fix this. Its log has each rejection. → kubectl -n istio-system logs c",
		"only candidate refused": `rejected warn: the election has no candidate that can replace the leader: webhook x rejects the holder of the lock: denied the request. Only its configuration has the writes that it must admit. Exclude the lock. → kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations -o name`,
		"candidate rejected":     `no leader bad: webhook x rejects the holder of the lock: denied the request. Only its configuration has the writes that it must admit. Exclude the lock. → kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations -o name`,
		"without a witness":      "leading good: the election has candidates without a witness: c",
		"two markers":            "problem bad: incumbent.dev/leader: a led in an earlier term, was overwritten by another elector, and may be active until its lease ends → kubectl -n istio-system annotate lease/e incumbent.dev/leader-",
		"refused":                "obstacle warn: incumbent.dev/handover-request: the leader refused to hand over to c: not warm → kubectl -n istio-system annotate lease/e incumbent.dev/handover-request-",
		"hold without a leader":  "no leader bad: free; incumbent.dev/hold: pause by ann: for 60s no candidate can acquire the lock by rank → electionctl -n istio-system resume e",
	}
	if len(states()) != len(want) {
		t.Errorf("%d states, %d wanted", len(states()), len(want))
	}
	for name, e := range states() {
		s, notes := judge(e, k8sleaderelection.DefaultRevision{})
		got := fmt.Sprintf("%s %s", s, s.Class())
		for i, n := range notes {
			got += []string{": ", "; "}[min(i, 1)] + n.Text
			if n.Command != "" && !strings.Contains(n.Command, "explain") {
				got += " → " + n.Command
			}
		}
		if got != want[name] {
			t.Errorf("%s:\n%s, want\n%s", name, got, want[name])
		}
		// The tile counts exactly the rows with the state.
		v := frameOf(start, State{Elections: []inspect.Election{e}}, newHistory(8)).view(query{})
		if v.Leaderless != count(s == noLeader) || v.Unknown != count(s == unknown) || v.Groups[0].Rows[0].Status != s {
			t.Errorf("%s: the tile counts %d and %d", name, v.Leaderless, v.Unknown)
		}
	}
}

// Problems come first, the largest group of a state first, with a command for each group or row.
func TestGroups(t *testing.T) {
	all := states()
	var s State
	for i, name := range []string{"leads", "hold", "forbidden", "expired", "leads", "forbidden", "hold", "expired", "forbidden", "unread"} {
		e := all[name]
		e.Name = fmt.Sprint("e", i)
		p := *e.Process
		p.ElectionID, p.Failed = e.Name, strings.ReplaceAll(p.Failed, `"e"`, `"`+e.Name+`"`)
		e.Process = &p
		if e.Hold != nil {
			e = e.With(nil, k8sleaderelection.DefaultRevision{})
		}
		s.Elections = append(s.Elections, e)
	}
	f := frameOf(start, s, newHistory(8))
	var got []string
	for _, g := range f.view(query{}).Groups {
		text := string(g.Status) + " [" + g.Note.Command + "]"
		for _, r := range g.Rows {
			text += " " + r.Name
			for _, n := range r.Notes {
				text += fmt.Sprint(n)
			}
		}
		got = append(got, text)
	}
	want := `no leader [` + role + `] e2 e5 e8
no leader [electionctl -n istio-system doctor] e3 e7
unknown [kubectl get --raw '/readyz?verbose'] e9
on hold [] e1{ electionctl -n istio-system resume e1} e6{ electionctl -n istio-system resume e6}
leading [] e0 e4`
	if text := strings.Join(got, "\n"); text != want {
		t.Errorf("%s\nwant\n%s", text, want)
	}
	for text, want := range map[string]string{
		"": "10", "state=no+leader": "5", "state=on+hold&name=E6": "1", "revision=stable": "6", "revision=canary": "0", "name=b": "6", "name=none": "0",
		"state=led": `state="led": give one of`, "revision=%3C": "is not a valid revision", "name=" + strings.Repeat("a", 254): "has more than 253 characters",
	} {
		values, err := url.ParseQuery(text)
		harness.Must(t, err)
		q, err := parse(values)
		if got := fmt.Sprint(f.view(q).Shown); err == nil && got != want || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %s rows, error %v, want %s", text, got, err, want)
		}
	}
}

func TestShort(t *testing.T) {
	for text, want := range map[string]string{
		"short": "short", strings.Repeat("é", 12): strings.Repeat("é", 12), "from pilot-5599d85bc4-qz9hp to b": "from pilot-5…z9hp to b",
	} {
		if got := short(12, text); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}
