package verdict

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"incumbent.dev/incumbent/internal/audit"
	"incumbent.dev/incumbent/internal/testutil/auditlog"
	"incumbent.dev/incumbent/internal/testutil/harness"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	home    = auditlog.Home
	bundles = auditlog.Bundles
)

func config() Config {
	return Config{
		Namespace: home,
		Revision: func(user string) string {
			_, revision, _ := strings.Cut(user, ":pilot-")
			return revision
		},
		Guards: []audit.Guard{{Lock: bundles, Resources: []string{"configmaps"}, Name: "bundle"}},
	}
}

// history reads and orders the log.
func history(t *testing.T, s *auditlog.Script) audit.History {
	t.Helper()
	log := audit.NewLog()
	log.Objects = true
	harness.Must(t, log.Read("log", bytes.NewReader(s.Lines.Bytes())))
	return log.History()
}

func judged(t *testing.T, s *auditlog.Script, c Config) Verdict {
	t.Helper()
	return Judge(history(t, s), c)
}

// begun is the start of each log: stable is the default revision, leads, and has served a namespace.
func begun(t *testing.T) *auditlog.Script {
	s := auditlog.New(t)
	s.Play("flip stable; lock stable-1 stable-1 1; space shop; bundle stable-1 shop right")
	return s
}

const flipped = "flip canary; lock stable-1 canary-1 2; lock canary-1 canary-1 2; "

func TestJudge_CorrectLog(t *testing.T) {
	for name, play := range map[string]string{
		"two flips, and repairs by both leaders": flipped + "space more; bundle canary-1 more right; bundle admin shop wrong; bundle canary-1 shop right; " +
			"flip stable; lock canary-1 stable-1 3; lock stable-1 stable-1 3; bundle admin shop wrong; bundle stable-1 shop right",
		"a deleted and recreated object": "remove configmaps shop bundle; bundle stable-1 shop right",
	} {
		s := begun(t)
		s.Play(play)
		if err := judged(t, s, config()).Err(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Each log violates one rule once.
func TestJudge_Violation(t *testing.T) {
	for name, test := range map[string]struct {
		rule       Rule
		play, want string
	}{
		"without a term": {audit.Unelected, "bundle admin shop wrong; bundle stable-2 shop right",
			"patch by stable-2 of configmaps shop/bundle at 6, without a term of bundles"},
		"after the next term began": {audit.Late, flipped + "bundle stable-1 shop right", "the term of canary-1 began at 7"},
		"written back": {Returned, flipped + "bundle canary-1 shop other; lock canary-1 stable-1 3; lock stable-1 stable-1 3; bundle stable-1 shop right",
			"although the default revision did not return to stable"},
		"written back before the flip": {Returned, flipped + "bundle canary-1 shop right2; lock canary-1 stable-1 3; lock stable-1 stable-1 3; " +
			"bundle stable-1 shop right; flip stable; flip canary", "did not return to stable"},
		"a gap in the log of the lock": {Incomplete, "lock stable-1 stable-1 3", "goes from 1 transitions to 3"},
	} {
		t.Run(name, func(t *testing.T) {
			s := begun(t)
			s.Play(test.play)
			v := judged(t, s, config())
			if err := v.Err(); len(v.Violations) != 1 || v.Violations[0].Rule != test.rule || !strings.Contains(err.Error(), test.want) {
				t.Errorf("want one violation of %s with %q: %v", test.rule, test.want, err)
			}
		})
	}
}

// If the Gateway of a route is deleted, each revision removes its entry from the status.
func TestJudge_DeletedGateway(t *testing.T) {
	for change, returned := range map[string]bool{"put gateways shop web {}": true, "remove gateways shop web": false} {
		s := begun(t)
		s.Play("put gateways shop web {}; " + change)
		write := func(who string, entries ...string) {
			s.Put(who, "patch", "httproutes/status", "shop", "web", auditlog.Fields{
				"spec": auditlog.Fields{"parentRefs": []auditlog.Fields{{"name": "web"}}}, "status": auditlog.Fields{"parents": entries},
			})
		}
		write("stable-1")
		write("canary-1", "entry")
		write("stable-1")
		c := config()
		c.Guards = append(c.Guards, audit.Guard{Lock: "status", PerRevision: true, Resources: []string{"httproutes/status"}})
		if err := judged(t, s, c).Err(Returned); (err != nil) != returned {
			t.Errorf("after %q: %v", change, err)
		}
	}
}

func TestJudge_EmptyLog(t *testing.T) {
	v := judged(t, auditlog.New(t), config())
	if err := v.Err(); len(v.Violations) != 2 || !strings.Contains(err.Error(), "no write is guarded by bundles") ||
		!strings.Contains(err.Error(), "never a default revision") {
		t.Error(err)
	}
}

func TestJudge_FailedRequests(t *testing.T) {
	c := config()
	c.Requests = Requests{Sent: 10, Failed: 1, Drain: 5 * time.Second, Errors: []string{"refused"}}
	if err := judged(t, begun(t), c).Err(); err == nil || !strings.Contains(err.Error(), "requests: 1 of 10 failed, with a drain of 5s: refused") {
		t.Error(err)
	}
}

// Late writes of other electors are counted.
func TestJudge_Peers(t *testing.T) {
	s := begun(t)
	s.Play("flip canary; lock canary-1 canary-1 2")
	s.Play("bundle stable-1 shop right2; bundle canary-1 shop right; bundle stable-1 shop right2; bundle canary-1 shop right")
	c := config()
	c.Peers = []string{"stable"}
	v := judged(t, s, c)
	if v.LateWrites != 2 || v.Overlap != 3*time.Second {
		t.Errorf("%d late writes, over %v", v.LateWrites, v.Overlap)
	}
	for _, violation := range v.Violations {
		if violation.Rule != Returned {
			t.Error(violation)
		}
	}
}

func TestFigures(t *testing.T) {
	s := begun(t) // 4 s
	s.Play("flip canary; wait 1; lock stable-1 canary-1 2; lock canary-1 canary-1 2; space a; bundle canary-1 a wrong; bundle canary-1 a right; flip stable; flip canary")
	v := judged(t, s, config())
	harness.Must(t, v.Err())
	text := v.String()
	for _, want := range []string{
		"median 0s, p99 3s (2 flips, 1 unfinished)", "terms: 2; longest time without a leader: 1s (bundles, handed over by stable-1)",
		"guarded writes: 3 to 2 objects",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}
