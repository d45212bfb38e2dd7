package harness

import (
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"incumbent.dev/incumbent/internal/testutil/waits"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestHowAProcessEnds(t *testing.T) {
	t.Setenv("INCUMBENT_MUTANT", "0")
	t.Setenv("FOREIGN", "1")
	p := Start(t, "speaker", []string{"OWN=2"}, "/bin/sh", "-c", `echo "$OWN,$FOREIGN,$INCUMBENT_MUTANT"; echo wrong >&2; exit 3`)
	if code := p.Exit(t); code != 3 || p.Out.String() != "2,,0\n" || p.Errors.String() != "wrong\n" {
		t.Errorf("%d, %q, %q", code, &p.Out, &p.Errors)
	}
	p = Start(t, "sleeper", nil, "/bin/sh", "-c", "echo $$; exec sleep 1000")
	waits.Until(t, "it runs", func() bool { return strings.HasSuffix(p.Out.String(), "\n") })
	select {
	case <-p.Ended():
		t.Error("it has ended")
	default:
	}
	p.Signal(t, syscall.SIGTERM)
	if code := p.Exit(t); code != -int(syscall.SIGTERM) {
		t.Errorf("it ended with %d", code)
	}
}

// What a test leaves running ends with it.
func TestAProcessEndsWithItsTest(t *testing.T) {
	var p *Process
	t.Run("which starts it", func(t *testing.T) { p = Start(t, "sleeper", nil, "/bin/sh", "-c", "exec sleep 1000") })
	select {
	case <-p.Ended():
	default:
		t.Error("it runs on")
	}
	if code := p.Exit(t); code != -int(syscall.SIGKILL) {
		t.Errorf("it ended with %d", code)
	}
}
