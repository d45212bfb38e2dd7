package core

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"incumbent.dev/incumbent/internal/record"
)

var rewrite = flag.Bool("rewrite", false, "write what the scenarios in testdata show into them")

// scenario plays a text file with inputs and the expected results of Step. See testdata/README.md.
type scenario struct {
	config      Config
	state       State
	action      Action
	slept       time.Duration
	wall        time.Duration // offset of the wall clock
	last        Record        // last own write
	annotations Annotations
	registered  EndedTerm // with the witness
}

func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			old, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			played, err := playScenario(string(old))
			if err != nil {
				t.Fatal(err)
			}
			if played == string(old) {
				return
			}
			if !*rewrite {
				t.Fatalf("the trace differs (go test -run TestScenarios -rewrite updates it):\n%s", firstDifference(string(old), played))
			}
			if err := os.WriteFile(file, []byte(played), 0o644); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func firstDifference(old, played string) string {
	a, b := strings.Split(old, "\n"), strings.Split(played, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("line %d\n  recorded %s\n  played   %s", i+1, a[i], b[i])
		}
	}
	return fmt.Sprintf("%d lines recorded, %d played", len(a), len(b))
}

// playScenario keeps comments and inputs and replaces the traces.
func playScenario(text string) (string, error) {
	s := &scenario{config: testConfig()}
	s.config.PeerGrace, s.config.Patience = 0, time.Second
	var out strings.Builder
	for i, line := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		if strings.HasPrefix(line, " ") {
			continue // a trace of an earlier run
		}
		out.WriteString(line + "\n")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		trace, err := s.play(strings.Fields(line))
		if err != nil {
			return "", fmt.Errorf("line %d, %q: %w", i+1, line, err)
		}
		out.WriteString(trace)
	}
	return out.String(), nil
}

func (s *scenario) play(words []string) (string, error) {
	if words[0] == "config" {
		return "", s.configure(words[1:])
	}
	seconds, err := strconv.ParseFloat(words[0], 64)
	if err != nil || len(words) < 2 {
		return "", fmt.Errorf("want a time and an input")
	}
	at := time.Duration(seconds * float64(time.Second)).Round(time.Microsecond)
	if words[1] == "died" {
		return s.witness(words[2:])
	}
	in, err := s.input(words[1], words[2:])
	if err != nil {
		return "", err
	}
	in.Now = ClockReading{
		Mono: Instant(time.Hour + at - s.slept), Boot: int64(2*time.Hour + at),
		Wall: 1_780_000_000e9 + int64(at+s.wall),
	}
	before := s.state
	if in.Kind == Replied && before.Flight.Op == NoOp {
		return "", fmt.Errorf("a reply, and no call is under way")
	}
	s.state, s.action = s.config.Step(before, in)
	if a := s.action; a.Op != NoOp && a.Op != Read {
		s.last, s.annotations = a.Record, a.Annotations
	}
	if t, acting := s.config.Acting(&s.state); acting {
		s.registered = t
	} else if s.registered.Left(s.state.Snap) != HolderDied {
		s.registered = EndedTerm{}
	}
	return s.trace(before, in.Now), nil
}

// witness returns the decision of the witness about the lock that it reads after the end of the process.
func (s *scenario) witness(words []string) (string, error) {
	snap, err := s.snapshot(words)
	if err != nil {
		return "", err
	}
	t := s.registered
	if t == (EndedTerm{}) {
		return "      witness: no term is registered\n", nil
	}
	line := fmt.Sprintf("      witness of %s/%d: %s", t.Holder, t.Transitions, t.Left(snap))
	if t.Left(snap) == HolderDied {
		r := snap.Released(0)
		line += fmt.Sprintf(", release over @%d %q/%d", snap.Version, r.Holder, r.Transitions)
	}
	return line + "\n", nil
}

func (s *scenario) configure(words []string) error {
	c := &s.config
	for _, w := range words {
		name, value, _ := strings.Cut(w, "=")
		switch name {
		case "key":
			c.Key = value
		case "small": // the durations of explorations
			c.Timing = Timing{Lease: 6 * time.Second, Validity: 3 * time.Second, Retry: time.Second}.Derived(0.02)
		case "unranked":
			c.Ranked = false
		case "external":
			c.Ranked, c.External = false, true
		case "no-release":
			c.Release = false
		case "immediate":
			c.Immediate = true
		case "one-cycle":
			c.OneCycle = true
		case "coordinated":
			c.Coordinated = true
		case "grace", "sync-wait":
			d, err := time.ParseDuration(value)
			if err != nil {
				return err
			}
			if name == "grace" {
				c.PeerGrace = d
			} else {
				c.SyncWait = d
			}
		default:
			return fmt.Errorf("there is no setting %q", name)
		}
	}
	return nil
}

func (s *scenario) input(kind string, args []string) (Input, error) {
	in := Input{}
	var err error
	switch kind {
	case "tick", "watching", "unwatched", "drained", "step-down", "stop":
		in.Kind = Kind(slices.Index(kindNames[:], kind))
		in.Gap = len(args) > 0 && args[0] == "gap"
	case "slept", "wall":
		var d time.Duration
		if len(args) == 1 {
			d, err = time.ParseDuration(args[0])
		}
		if kind == "slept" {
			s.slept += d
		} else {
			s.wall += d
		}
	case "coordinator":
		in.Kind, in.Absent = Coordinator, len(args) > 0 && args[0] == "gone"
	case "barred", "unbarred":
		in.Kind, in.Barred = Bar, kind == "barred"
	case "unfit", "fit":
		in.Kind, in.Unfit = Fitness, kind == "unfit"
	case "default":
		in.Kind = DefaultChanged
		if in.Default.Synced = true; len(args) > 0 {
			in.Default.Revision = args[0]
		}
	case "seen":
		in.Kind, in.Beats = Seen, slices.Contains(args, "beats")
		in.Snap, err = s.snapshot(args)
	case "ok":
		in.Kind, in.Result, in.Beats = Replied, OK, slices.Contains(args, "beats")
		in.Snap, err = s.snapshot(args)
	case "conflict", "unknown", "refused":
		in.Kind, in.Result = Replied, Result(slices.Index(resultNames[:], kind))
		if len(args) == 1 {
			in.RetryAfter, err = time.ParseDuration(args[0])
		}
	default:
		err = fmt.Errorf("there is no input %q", kind)
	}
	return in, err
}

// snapshot parses a lock, for example "@7 b/3 canary stamp=9 marker=b/3", "@7 absent" or "@7 written".
func (s *scenario) snapshot(words []string) (Snapshot, error) {
	snap := Snapshot{Exists: true, UID: "u", Content: record.Readable}
	stamp, renewed, leased := 0, false, false
	for _, w := range words {
		name, value, _ := strings.Cut(w, "=")
		var err error
		switch {
		case w[0] == '@':
			snap.Version, err = strconv.ParseUint(w[1:], 10, 64)
		case w == "absent":
			snap = Snapshot{Version: snap.Version}
		case w == "no-record":
			snap.Content = record.Missing
		case w == "unreadable":
			snap.Content = record.Unreadable
		case w == "written":
			snap.Record, snap.Annotations = s.last, s.annotations
		case w == "unmarked":
			snap.Annotations.Marker = Marker{}
		case w == "free":
			snap.Record.Lease = time.Second
		case name == "uid":
			snap.UID = value
		case name == "trans":
			snap.Record.Transitions, err = strconv.Atoi(value)
		case name == "stamp":
			stamp, err = strconv.Atoi(value)
			snap.Record.Renewed = Stamp(stamp)
		case name == "lease":
			snap.Record.Lease, err = time.ParseDuration(value)
			leased = true
		case name == "marker":
			snap.Annotations.Marker, err = marker(value)
		case name == "request":
			snap.Annotations.Request, err = request(value)
		case w == "strategy":
			snap.Strategy = true
		case name == "preferred":
			snap.Strategy, snap.Preferred = true, value
		case name == "named": // by a coordinator
			snap.Record.Holder, snap.Record.Transitions, err = who(value)
			snap.Record.Lease, snap.Strategy = 5*time.Second, true
			snap.Annotations.Nominated = Nomination{Identity: snap.Record.Holder, Transitions: snap.Record.Transitions, Uncounted: true}
		case name == "hold":
			snap.Annotations.Hold, err = hold(value)
		case w == "beats": // see input
		case w == "renewed":
			renewed = true
		case name == "nominated":
			snap.Annotations.Nominated.Identity, snap.Annotations.Nominated.Transitions, err = who(value)
		case strings.Contains(w, "/"):
			snap.Record.Holder, snap.Record.Transitions, err = who(w)
			snap.Record.Lease = 15 * time.Second
		default:
			snap.Record.Key = w
		}
		if err != nil {
			return snap, err
		}
	}
	if snap.Annotations.Nominated.Identity != "" && !renewed {
		snap.Record.Acquired = snap.Record.Renewed // not written since
		if !leased && !snap.Annotations.Nominated.Uncounted {
			snap.Record.Lease = 16 * time.Second
		}
	}
	if snap.Exists {
		snap.Sum = uint64(snap.Record.Renewed)<<8 ^ uint64(snap.Record.Transitions)<<4 ^ uint64(len(snap.Record.Holder))<<2 ^ uint64(snap.Content)
	}
	return snap, nil
}

// marker parses "b/3" or "b/3+handover+unfit+uncoordinated".
func marker(text string) (m Marker, err error) {
	words := strings.Split(text, "+")
	m.Identity, m.Transitions, err = who(words[0])
	m.Handover, m.Unfit, m.Uncoordinated = slices.Contains(words, "handover"), slices.Contains(words, "unfit"), slices.Contains(words, "uncoordinated")
	return m, err
}

// request parses "c:canary:b/3" (challenger, key, addressed term), then "+accepted", "+refused", "+operator"
// or "+9s" (duration).
func request(text string) (r Request, err error) {
	words := strings.Split(text, "+")
	parts := strings.Split(words[0], ":")
	if len(parts) != 3 {
		return r, fmt.Errorf("%q: want identity:key:holder/transitions", words[0])
	}
	r = Request{Identity: parts[0], Key: parts[1], Reason: record.ForDefaultRevision, Requester: parts[0], Seconds: 4}
	r.Holder, r.Transitions, err = who(parts[2])
	for _, w := range words[1:] {
		switch w {
		case "accepted":
			r.Accepted = true
		case "refused":
			r.Refused = refusedNoRank
		case "operator":
			r.Reason, r.Requester, r.HoldSeconds = record.ForOperator, "operator", 60
		default:
			length, hold := strings.CutPrefix(w, "hold=")
			d, err := time.ParseDuration(length)
			if err != nil {
				return r, err
			}
			if hold {
				r.HoldSeconds = int(d / time.Second)
			} else {
				r.Seconds = int(d / time.Second)
			}
		}
	}
	return r, err
}

// hold parses "b/3:10s" (pause) or "b/3:10s+transfer".
func hold(text string) (h Hold, err error) {
	term, length, _ := strings.Cut(text, ":")
	length, transfer := strings.CutSuffix(length, "+transfer")
	d, err := time.ParseDuration(length)
	if err != nil {
		return h, err
	}
	h = Hold{Seconds: int(d / time.Second), Requester: "operator", Reason: record.HoldForPause}
	if transfer {
		h.Reason = record.HoldForTransfer
	}
	h.Holder, h.Transitions, err = who(term)
	return h, err
}

func who(text string) (string, int, error) {
	id, n, ok := strings.Cut(text, "/")
	if !ok {
		return "", 0, fmt.Errorf("%q: want identity/transitions", text)
	}
	transitions, err := strconv.Atoi(n)
	return id, transitions, err
}

// trace formats the result of Step in one line.
func (s *scenario) trace(before State, now ClockReading) string {
	a := s.action
	line := "      " + s.state.Phase.String()
	if s.state.Phase != before.Phase {
		line = fmt.Sprintf("      %s → %s because %s", before.Phase, s.state.Phase, s.state.Why)
	}
	line += ": " + string(a.Why)
	if a.Op != NoOp {
		line += ", " + call(a)
	}
	if a.Run {
		line += ", runs"
	}
	if a.Gate != (Validity{}) {
		line += fmt.Sprintf(", gate %.3fs", a.Gate.Left(now).Seconds())
	}
	if a.Wake != Never {
		line += fmt.Sprintf(", wake in %.3fs", now.Mono.Until(a.Wake).Seconds())
	}
	return line + "\n"
}

func call(a Action) string {
	if a.Op == Read {
		return "read"
	}
	text := fmt.Sprintf("%s over @%d", a.Op, a.Base.Version)
	if a.Op != Release && a.Op != SendRequest {
		text += fmt.Sprintf(" %s/%d", a.Record.Holder, a.Record.Transitions)
	}
	return text + annotations(a.Annotations) + word(", removes the preference", a.Unprefer)
}

// annotations formats annotations as in scenarios.
func annotations(n Annotations) string {
	text := ""
	if m := n.Marker; m.Identity != "" {
		text += fmt.Sprintf(" marker=%s/%d%s%s%s", m.Identity, m.Transitions, word("+handover", m.Handover), word("+unfit", m.Unfit), word("+uncoordinated", m.Uncoordinated))
	}
	if r := n.Request; r != (Request{}) {
		text += fmt.Sprintf(" request=%s:%s:%s/%d%s%s%s+%ds", r.Identity, r.Key, r.Holder, r.Transitions,
			word("+operator", r.Reason == record.ForOperator), word("+accepted", r.Accepted), word("+refused", r.Refused != ""), r.Seconds)
	}
	if n.Nominated != (Nomination{}) {
		text += fmt.Sprintf(" nominated=%s/%d", n.Nominated.Identity, n.Nominated.Transitions)
	}
	if h := n.Hold; h != (Hold{}) {
		text += fmt.Sprintf(" hold=%s/%d:%ds", h.Holder, h.Transitions, h.Seconds)
	}
	return text
}

func word(w string, so bool) string {
	if so {
		return w
	}
	return ""
}
