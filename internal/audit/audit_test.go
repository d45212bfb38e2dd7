package audit

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"incumbent.dev/incumbent/internal/testutil/auditlog"
	"incumbent.dev/incumbent/internal/testutil/harness"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// begun is the start of each log: stable-1 leads and has written an object.
func begun(t *testing.T) *auditlog.Script {
	s := auditlog.New(t)
	s.Play("lock stable-1 stable-1 1; bundle stable-1 shop one")
	return s
}

const (
	flipped = "lock stable-1 canary-1 2; lock canary-1 canary-1 2; "
	// uuid is the end of the identities of client-go's users.
	uuid = "_01234567-89ab-cdef-0123-456789abcdef"
)

func options() Options {
	return Options{Guards: []Guard{{Lock: "bundles", Resources: []string{"configmaps"}, Name: "bundle"}}}
}

func examined(t *testing.T, o Options, logs ...string) Report {
	t.Helper()
	log := NewLog()
	for i, text := range logs {
		harness.Must(t, log.Read(fmt.Sprintf("log%d", i+1), strings.NewReader(text)))
	}
	return Examine(log, o)
}

func summary(r Report) string {
	var all []string
	for _, f := range r.Findings {
		all = append(all, fmt.Sprintf("%s %s %d late %v overlap %v", f.Rule, f.Pod, f.Count, time.Duration(f.Late), time.Duration(f.Overlap)))
	}
	for _, text := range r.Incomplete {
		all = append(all, "incomplete: "+text)
	}
	return strings.Join(all, "; ")
}

func TestExamine(t *testing.T) {
	for name, c := range map[string]struct{ play, want string }{
		"flip":                            {flipped + "bundle canary-1 shop two", ""},
		"renewals between writes":         {"lock stable-1 stable-1 1; bundle stable-1 shop two; lock stable-1 stable-1 1; bundle stable-1 shop three", ""},
		"release":                         {"lock stable-1 - 1; lock stable-2 stable-2 2; bundle stable-2 shop two", ""},
		"handover request":                {"lock canary-1 stable-1 1; bundle stable-1 shop two", ""},
		"deleted lock":                    {"remove leases istio-system bundles; bundle stable-1 shop two; lock stable-1 stable-1 1", ""},
		"unanswered write":                {"lock stable-1 - 1; unanswered stable-2 bundles; lock stable-2 stable-2 3; bundle stable-2 shop two", ""},
		"without a term":                  {"bundle stable-2 shop two", "unelected stable-2 1 late 0s overlap 0s"},
		"before the term":                 {"bundle canary-1 shop two; " + flipped, "unelected canary-1 1 late 0s overlap 0s"},
		"nominated":                       {"lock stable-1 canary-1 2; bundle canary-1 shop two; lock canary-1 canary-1 2", "unelected canary-1 1 late 0s overlap 0s"},
		"after a write of the next term":  {flipped + "bundle canary-1 a one; bundle stable-1 b one", "interleaved stable-1 1 late 3s overlap 2s"},
		"after the next term began":       {flipped + "bundle stable-1 shop two; bundle stable-1 shop three", "late stable-1 2 late 3s overlap 2s"},
		"after the release":               {"lock stable-1 - 1; bundle stable-1 shop two", "late stable-1 1 late 1s overlap 0s"},
		"after the handover":              {"lock stable-1 canary-1 2; bundle stable-1 shop two; lock canary-1 canary-1 2", "late stable-1 1 late 1s overlap 0s"},
		"gap":                             {"lock stable-1 stable-1 3", "incomplete: the log of lock bundles goes from 1 transitions to 3 at 3"},
		"gap, unanswered write elsewhere": {"unanswered stable-1 other; lock stable-1 stable-1 3", "incomplete: the log of lock bundles goes from 1 transitions to 3 at 4"},
		"gap before an unanswered write":  {"lock stable-1 stable-1 3; unanswered stable-1 bundles", "incomplete: the log of lock bundles goes from 1 transitions to 3 at 3"},
		"gap of two, one unanswered":      {"unanswered stable-1 bundles; lock stable-1 stable-1 4", "incomplete: the log of lock bundles goes from 1 transitions to 4 at 4"},
		"two gaps, one unanswered": {"unanswered stable-1 bundles; lock stable-1 stable-1 3; lock stable-1 stable-1 5",
			"incomplete: the log of lock bundles goes from 3 transitions to 5 at 5"},
		"stored, but answered with a timeout": {"failed stable-2 bundles 504 ResponseComplete; lock stable-2 stable-2 3; bundle stable-2 shop two", ""},
		"stored, but the API server panicked": {"failed stable-2 bundles 500 Panic; lock stable-2 stable-2 3; bundle stable-2 shop two", ""},
		"gap after a conflict":                {"failed stable-2 bundles 409 ResponseComplete; lock stable-1 stable-1 3", "incomplete: the log of lock bundles goes from 1 transitions to 3 at 4"},
		"transitions that fall":               {"lock stable-1 stable-1 0", "incomplete: the log of lock bundles goes from 1 transitions to 0 at 3"},
		"restart in one pod":                  {"lock stable-1 stable-1" + uuid + " 2; bundle stable-1 shop two", ""},
	} {
		t.Run(name, func(t *testing.T) {
			for _, resource := range []string{"leases", "configmaps", "endpoints"} {
				s := auditlog.New(t)
				s.Lock = resource
				s.Play("lock stable-1 stable-1 1; bundle stable-1 shop one")
				s.Play(strings.ReplaceAll(c.play, "remove leases", "remove "+resource))
				if resource != "leases" && (strings.Contains(c.play, "unanswered") || strings.Contains(c.play, "failed")) {
					continue // these requests are for Leases
				}
				if got := summary(examined(t, options(), s.Lines.String())); got != c.want {
					t.Errorf("%s: got %q, want %q", resource, got, c.want)
				}
			}
		})
	}
}

// A log without the renewals of a leader may lack a file.
func TestExamine_MissingRenewals(t *testing.T) {
	for _, resource := range []string{"leases", "configmaps"} {
		for wait, want := range map[string]string{
			"28": "[]",
			"40": fmt.Sprintf("[the holder of %s istio-system/bundles did not renew it for 42s until 2026-01-02T12:00:45Z: the log may lack a file, or the holder stopped]", resource),
		} {
			s := auditlog.New(t)
			s.Lock = resource
			s.Lease = 15
			s.Play("lock stable-1 stable-1 1; bundle stable-1 shop one; lock stable-1 stable-1 1; wait " + wait + "; bundle stable-1 shop two; lock stable-1 stable-1 1")
			r := examined(t, options(), s.Lines.String())
			if got := fmt.Sprint(r.Notes); got != want || summary(r) != "" {
				t.Errorf("%s, %s s: %s, %s", resource, wait, got, summary(r))
			}
		}
	}
}

// A guard of an unknown lock would judge no write.
func TestExamine_GuardOfUnknownLock(t *testing.T) {
	o := options()
	o.Guards = append(o.Guards, Guard{Lock: "bundels", Resources: []string{"secrets"}})
	want := "incomplete: the log has no lock bundels, to which a guard assigns secrets"
	if got := summary(examined(t, o, begun(t).Lines.String())); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// The versions order the writes, not the time stamps.
func TestExamine_IgnoresTimestamps(t *testing.T) {
	for name, step := range map[string]time.Duration{"original": time.Second, "backwards": -time.Second, "equal": 0} {
		s := begun(t)
		for _, play := range []string{"lock stable-1 canary-1 2", "lock canary-1 canary-1 2", "bundle stable-1 shop two"} {
			s.Clock = s.Clock.Add(step - time.Second)
			s.Play(play)
		}
		if r := examined(t, options(), s.Lines.String()); len(r.Findings) != 1 || r.Findings[0].Rule != Late || r.ByTime != 0 {
			t.Errorf("%s: %v", name, summary(r))
		}
	}
}

// A deletion follows the writes of its object and of its subresources, also if its request arrived before their responses. The
// response to a deletion has no version.
func TestHistory_DeletionDuringWrite(t *testing.T) {
	for _, resource := range []string{"gateways", "gateways/status"} {
		for _, objects := range []bool{false, true} {
			s := auditlog.New(t)
			s.Play("put " + resource + " shop web {}; wait -2; remove gateways shop web; put gateways shop other {}")
			l := NewLog()
			l.Objects = objects
			harness.Must(t, l.Read("log", strings.NewReader(s.Lines.String())))
			var order []string
			for w := range l.History().All() {
				order = append(order, w.Verb+" "+w.Name)
			}
			if want := "create web, delete web, create other"; strings.Join(order, ", ") != want {
				t.Errorf("%s, objects %v: %q, want %q", resource, objects, order, want)
			}
		}
	}
}

// Without bodies of the guarded writes, time stamps decide. A write within a second of the change is not judged.
func TestExamine_Approximate(t *testing.T) {
	for name, c := range map[string]struct {
		play, want string
		undecided  bool
	}{
		"correct":       {flipped + "wait 3; bundle canary-1 shop two", "", false},
		"late":          {flipped + "wait 3; bundle stable-1 shop two", "late stable-1 1 late 5s overlap 4s", false},
		"at the change": {"lock stable-1 canary-1 2; wait -1; bundle stable-1 shop two; lock canary-1 canary-1 2", "", true},
	} {
		s := auditlog.New(t)
		s.Bare = true
		s.Play("lock stable-1 stable-1 1; bundle stable-1 shop one; " + c.play)
		r := examined(t, options(), s.Lines.String())
		if got := summary(r); got != c.want || r.ByTime == 0 || (len(r.Notes) == 1) != c.undecided {
			t.Errorf("%s: got %q, want %q, %d by time, notes %q", name, got, c.want, r.ByTime, r.Notes)
		}
	}
}

// The log begins in a term.
func TestExamine_Ongoing(t *testing.T) {
	s := begun(t)
	s.Lines.Reset()
	s.Play("bundle stable-1 shop two; bundle canary-1 shop two")
	s.Put("stable-1", "update", "leases", auditlog.Home, "bundles", auditlog.Fields{"spec": auditlog.Fields{
		"holderIdentity": "stable-1", "leaseTransitions": 1, "acquireTime": "2026-01-01T00:00:00Z", "renewTime": "2026-01-02T00:00:00Z",
	}})
	s.Play("lock canary-1 canary-1 2; bundle canary-1 shop three")
	r := examined(t, options(), s.Lines.String())
	if got := summary(r); got != "" || len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "1 writes were not judged") {
		t.Errorf("got %q, notes %q", got, r.Notes)
	}
}

// Without a guard, the lock of the pods that write an object guards it, unless followers write it too.
func TestExamine_Attribution(t *testing.T) {
	for name, c := range map[string]struct {
		play, want string
		notJudged  int
	}{
		"holder only":      {"bundle stable-1 a one; bundle stable-1 b one; " + flipped + "bundle stable-1 c one", "late stable-1 1 late 2s overlap 1s", 0},
		"every replica":    {"bundle stable-2 a one; bundle stable-2 b one; " + flipped + "bundle stable-1 c one", "incomplete: the log has locks, but no other write of their candidates: log these writes too", 4},
		"other accounts":   {"bundle admin a one; bundle admin b one", "", 0},
		"writes of a peer": {"bundle stable-1 a one; bundle stable-1 b one; bundle stable-1 c one; bundle stable-2 d one", "unelected stable-2 1 late 0s overlap 0s", 0},
	} {
		s := begun(t)
		s.Play(c.play)
		r := examined(t, Options{}, s.Lines.String())
		if got := summary(r); got != c.want || r.NotJudged["configmaps:bundle"] != c.notJudged {
			t.Errorf("%s: got %q, want %q, not judged %v", name, got, c.want, r.NotJudged)
		}
	}
}

func TestExamine_LockFacts(t *testing.T) {
	s := begun(t)
	s.Play("lock stable-1 - 1; wait 60; lock stable-2 stable-2 2; lock stable-2 - 2; lock stable-1 stable-1 3; bundle stable-1 shop two")
	o := options()
	r := examined(t, o, s.Lines.String())
	want := LockReport{
		Lock: Lock{"leases", auditlog.Home, "bundles"}, Holder: "stable-1", Terms: 3, Changes: 2, Leaderless: Seconds(61 * time.Second),
		LeaderlessUntil: r.First.Add(63 * time.Second), Judged: 2,
	}
	if len(r.Locks) != 1 || r.Locks[0] != want || len(r.Findings) != 0 {
		t.Errorf("got %+v, want %+v, findings %v", r.Locks, want, r.Findings)
	}
	o.MaxChanges, o.Window, o.MaxLeaderless = 1, time.Minute, time.Minute
	if got := summary(examined(t, o, s.Lines.String())); got != "leaderless stable-1 1 late 1m1s overlap 0s; flapping  2 late 0s overlap 0s" {
		t.Errorf("with limits: %q", got)
	}
}

// The identity of client-go has a UUID. Without a pod in the token, the address and the program identify the writer.
func TestExamine_Identities(t *testing.T) {
	s := auditlog.New(t)
	s.Play("lock stable-1 stable-1" + uuid + " 1; bundle stable-1 shop one; lock stable-2 stable-2" + uuid + " 2; bundle stable-1 shop two; bundle stable-2 shop two")
	const late = " 1 late 1s overlap 1s"
	if got := summary(examined(t, options(), s.Lines.String())); got != "late stable-1"+late {
		t.Errorf("by the token: %q", got)
	}
	node := strings.NewReplacer("stable-1"+uuid, "node-1"+uuid, "stable-2"+uuid, "node-2"+uuid).Replace(s.Lines.String())
	if got := summary(examined(t, options(), node)); got != "late stable-1"+late {
		t.Errorf("by the writer of the lock: %q", got)
	}
	var lines []string
	for line := range strings.Lines(node) {
		address := "10.0.0.1"
		if strings.Contains(line, `["stable-2"]`) {
			address = "10.0.0.2"
		}
		line = strings.Replace(line, `"authentication.kubernetes.io/pod-name"`, `"other"`, 1)
		lines = append(lines, strings.Replace(line, "{", `{"userAgent":"manager/v1","sourceIPs":["`+address+`"],`, 1))
	}
	if got := summary(examined(t, options(), strings.Join(lines, ""))); got != "late node-1"+late {
		t.Errorf("by the address: %q", got)
	}
}

// Several API servers and rotated files may come in any order, and twice.
func TestLog_SeveralFiles(t *testing.T) {
	s := begun(t)
	s.Play(flipped + "bundle canary-1 a one; remove configmaps a bundle; bundle canary-1 a two; unanswered canary-1 bundles; bundle stable-1 b one")
	lines := slices.Collect(strings.Lines(s.Lines.String()))
	slices.Reverse(lines)
	var odd, even string
	for i, line := range lines {
		if i%2 == 0 {
			even += line
		} else {
			odd += line
		}
	}
	const want = "interleaved stable-1 1 late 6s overlap 5s"
	if got := summary(examined(t, options(), odd, even)); got != want {
		t.Errorf("reversed: %q", got)
	}
	if got := summary(examined(t, options(), s.Lines.String(), even)); got != want {
		t.Errorf("twice: %q", got)
	}
}

func TestLog_IgnoresUnstored(t *testing.T) {
	s := begun(t)
	late := auditlog.Request{Verb: "patch", Resource: "configmaps", Namespace: "shop", Name: "bundle", Who: "canary-1", Code: 200, Stage: auditlog.Complete}
	rejected, dry, same := late, late, late
	rejected.Code = 403
	dry.Query = "dryRun=All"
	same.From = "2"
	same.Object = auditlog.Fields{"metadata": auditlog.Fields{"uid": s.UIDs[auditlog.Key("configmaps", "shop", "bundle")], "resourceVersion": "2"}}
	for _, r := range []auditlog.Request{rejected, dry, same} {
		s.Log(r)
	}
	if got := summary(examined(t, options(), s.Lines.String())); got != "" {
		t.Error(got)
	}
}

// Each log does not suffice for an acquittal.
func TestExamine_Insufficient(t *testing.T) {
	blind := auditlog.New(t)
	blind.Blind = true
	blind.Play("lock stable-1 stable-1 1; bundle stable-1 shop one")
	alone := auditlog.New(t)
	alone.Play("lock stable-1 stable-1 1")
	bundle := auditlog.New(t)
	bundle.Play("bundle stable-1 shop one")
	log := begun(t).Lines.String()
	first, rest, _ := strings.Cut(log, "\n")
	for name, c := range map[string]struct{ log, want string }{
		"empty":            {"", "the log is empty"},
		"no lock":          {bundle.Lines.String(), "the log has no lock"},
		"level too low":    {blind.Lines.String(), "2 writes of Leases, ConfigMaps or Endpoints have no body"},
		"partly too low":   {log + blind.Lines.String(), "1 writes of leases istio-system/bundles have no body"},
		"no other write":   {alone.Lines.String(), "no other write of their candidates"},
		"broken line":      {log + rest[:30] + "\n" + first + "\n", "1 lines are not JSON events, first log1:3"},
		"only reads":       {`{"kind":"Event","stage":"ResponseComplete","verb":"get"}` + "\n", "the log has no lock"},
		"lock not written": {log, ""},
	} {
		r := examined(t, options(), c.log)
		if c.want == "" {
			o := options()
			o.Lock = "other"
			r = examined(t, o, c.log)
			c.want = "the log has no lock other"
		}
		if len(r.Incomplete) != 1 || !strings.Contains(r.Incomplete[0], c.want) {
			t.Errorf("%s: got %q, want %q", name, r.Incomplete, c.want)
		}
	}
}

func TestLog_Read(t *testing.T) {
	log := begun(t).Lines.String()
	var packed bytes.Buffer
	writer := gzip.NewWriter(&packed)
	_, _ = writer.Write([]byte(log))
	_ = writer.Close()
	half := log[:strings.LastIndex(strings.TrimSpace(log), "\n")+40]
	for name, c := range map[string]struct {
		text, want       string
		events, unfinish int
	}{
		"plain":                  {log, "", 2, 0},
		"gzip":                   {packed.String(), "", 2, 0},
		"gzip, cut off":          {packed.String()[:packed.Len()-12], "", 2, 0},
		"incomplete last line":   {half, "", 1, 1},
		"restarted API server":   {log + `{"kind":"Event","requestObj` + strings.Replace(log, "{", `{"kind":"Event",`, 1), "", 4, 1},
		"not JSON":               {"level=info msg=hello\n", "log:1: not a JSON event", 0, 0},
		"other JSON":             {"{}\n", "log:1: not an event of an audit log, and no known wrapping of one: it has no fields", 0, 0},
		"unknown wrapping":       {`{"when":1,"what":` + strings.TrimSpace(strings.Replace(log, "\n", "}\n", 1)), `log:1: not an event of an audit log, and no known wrapping of one: it has the fields "when", "what"`, 0, 0},
		"empty lines":            {"\n\n" + log + "\n", "", 2, 0},
		"long line":              {strings.Repeat("x", longestLine+1), "longer than 32 MiB", 0, 0},
		"gzip without an header": {"\x1f\x8b", "log: read gzip", 0, 0},
		"invalid version":        {strings.ReplaceAll(log, `"resourceVersion":"1"`, `"resourceVersion":"x"`), "read resourceVersion", 0, 0},
	} {
		l := NewLog()
		err := l.Read("log", strings.NewReader(c.text))
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil && (l.Events != c.events || len(l.Unfinished) != c.unfinish) {
			t.Errorf("%s: %d events, unfinished %q", name, l.Events, l.Unfinished)
		}
	}
}

func TestParseGuard(t *testing.T) {
	for text, want := range map[string]string{
		"istio-leader=ingresses/status":   "{istio-leader false [ingresses/status] }",
		"a=configmaps:istio-ca-root-cert": "{a false [configmaps] istio-ca-root-cert}",
		"a":                               "error", "=b": "error", "a=Ingress": "error", "a=": "error", "a=ingresses.networking.k8s.io": "error",
	} {
		g, err := ParseGuard(text)
		if got := fmt.Sprint(g); err == nil && got != want || (err != nil) != (want == "error") {
			t.Errorf("%s: %s, %v", text, got, err)
		}
	}
}
