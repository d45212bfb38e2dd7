package bootstrap

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/testutil/harness"
)

// A look that does not settle says nothing, whatever one before it has seen; one that settles in
// the end says what it saw last.
func TestALookSaysWhatItSawLast(t *testing.T) {
	// Nobody holds the lock: who is admitted may have taken it just now.
	const settled, unsettled, stands = "unclear", "admitted", "refused"
	for name, test := range map[string]struct {
		answers []string // the last again and again
		want    fenceState
		tries   int
	}{
		"it stands at once":        {[]string{stands}, fenceState{Stands: true, Answer: stands}, 1},
		"it stands in the end":     {[]string{settled, unsettled, settled, stands}, fenceState{Stands: true, Answer: stands}, 4},
		"it is not clear":          {[]string{unsettled, settled}, fenceState{Answer: settled}, checkTries},
		"it does not settle again": {[]string{settled, unsettled}, fenceState{}, checkTries},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newProbed(t, func(_ *Config, row *election) { row.writes = writesTo("a") })
				p.answer = func(string) error {
					n := min(len(p.tried()), len(test.answers)) - 1
					return map[string]error{settled: errAway, stands: refusal()}[test.answers[n]]
				}
				got := p.fence.try(t.Context(), p.le, p.fence.probes[p.le][0])
				if got.Stands != test.want.Stands || got.Answer != test.want.Answer || len(p.tried()) != test.tries {
					t.Errorf("after %d tries: %+v", len(p.tried()), got)
				}
			})
		})
	}
}

// What a fence that does not stand does instead is news as well.
func TestAnotherWrongAnswerIsNews(t *testing.T) {
	p := newProbed(t, func(_ *Config, row *election) { row.writes = writesTo("a") })
	for i, step := range []struct {
		answer string
		lines  int
	}{{"admitted", 1}, {"unclear", 2}, {"unclear", 2}, {"admitted", 3}, {"admitted", 3}} {
		p.fence.report(p.le, fenceState{Answer: step.answer})
		if n := strings.Count(p.log.String(), "\n"); n != step.lines {
			t.Errorf("step %d: %d lines", i, n)
		}
	}
}

// The self-test looks as often as it is told to.
func TestTheSelfTestsOwnPace(t *testing.T) {
	for every, want := range map[time.Duration]int{0: 11, 10 * time.Second: 61} {
		synctest.Test(t, func(t *testing.T) {
			p := newProbed(t, func(c *Config, row *election) { c.fenceEvery, row.writes = every, writesTo("a") })
			p.answer = func(string) error { return refusal() }
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- p.fence.run(ctx) }()
			time.Sleep(10*time.Minute + time.Second)
			cancel()
			if err := <-ended; err != nil || len(p.tried()) != want {
				t.Errorf("every %v: %v, after %d looks", every, err, len(p.tried()))
			}
		})
	}
}

// A run function's life is two lines in the log, and how it ended is the election's to know.
func TestLinesOfARunFunction(t *testing.T) {
	for _, wrong := range []error{nil, errAway} {
		text := &harness.Log{}
		ran := false
		err := logged(slog.New(slog.NewTextHandler(text, nil)), func(context.Context) error {
			ran = text.Count("run function started") == 1 && text.Count("run function ended") == 0
			return wrong
		})(t.Context())
		if !ran || !errors.Is(err, wrong) {
			t.Errorf("ran after its line: %v, ended with %v", ran, err)
		}
		level := map[bool]string{true: "level=INFO", false: "level=ERROR"}[wrong == nil]
		if text.Count("run function ended", level) != 1 || text.Count() != 2 || (text.Count(errAway.Error()) == 1) != (wrong != nil) {
			t.Errorf("it says\n%s", text)
		}
	}
}

// A report leaves no file open.
func TestReportClosesItsLog(t *testing.T) {
	name := filepath.Join(t.TempDir(), "audit.log")
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := (FenceConfig{AuditLog: name}).Report(io.Discard); err != nil {
		t.Fatal(err)
	}
	open, err := filepath.Glob("/proc/self/fd/*")
	if err != nil || len(open) == 0 {
		t.Fatalf("%v: %q", err, open)
	}
	for _, fd := range open {
		if to, _ := os.Readlink(fd); to == name {
			t.Errorf("%s is open", to)
		}
	}
}

// gone is a reader of a page who went away.
type gone struct{ http.ResponseWriter }

func (gone) Write([]byte) (int, error) { return 0, errAway }

// A reader who goes away is a line for those who debug, and nobody else is.
func TestReadersOfThePageWhoGoAway(t *testing.T) {
	text := &harness.Log{}
	config := goodConfig()
	config.Logger = slog.New(slog.NewTextHandler(text, &slog.HandlerOptions{Level: slog.LevelDebug}))
	s, err := newServer(config, newController().rows())
	if err != nil {
		t.Fatal(err)
	}
	const line = "reader of /debug/elections went away"
	if code, _ := get(t, s, "/debug/elections"); code != http.StatusOK || text.Count(line) != 0 {
		t.Errorf("%d, and it says\n%s", code, text)
	}
	s.electionsPage(gone{httptest.NewRecorder()}, httptest.NewRequest(http.MethodGet, "/debug/elections", nil))
	if text.Count("level=DEBUG", line, errAway.Error()) != 1 {
		t.Errorf("it says\n%s", text)
	}
}

// What was installed is looked at again and again until it holds, or for as long as it may take; then
// the error says what the last look met, and for how long it was waited.
func TestAnInstallationIsLookedAtAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looks := 0
		there := answered(func(r *http.Request) (*http.Response, error) {
			looks++
			return nil, errAway
		})
		set, declarations, err := FenceConfig{Revisions: only}.render()
		if err != nil {
			t.Fatal(err)
		}
		late := errors.New("so long and no longer")
		ctx, cancel := context.WithTimeoutCause(t.Context(), 10*lookAgain-time.Millisecond, late)
		defer cancel()
		began := time.Now()
		_, err = FenceConfig{}.await(ctx, []*rest.Config{there}, set, declarations)
		if !errors.Is(err, late) || !strings.Contains(err.Error(), errAway.Error()) || !strings.Contains(err.Error(), there.Host) {
			t.Errorf("it ended with %v", err)
		}
		if took := time.Since(began); took != 10*lookAgain-time.Millisecond || looks != 10 {
			t.Errorf("after %v it was looked at %d times", took, looks)
		}
	})
}
