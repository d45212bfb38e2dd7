package witness

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/internal/testutil/relay"
)

func readFile(t testing.TB, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	harness.Must(t, err)
	return string(raw)
}

// A negative exit is a signal. A Go program ends in the same way after each fatal error. With a fence, the witness has all of its time
// for the release.
func TestDeath_Releases(t *testing.T) {
	usr1 := func(p *process) { p.Signal(t, syscall.SIGUSR1) } // the parent forwards it
	for name, c := range map[string]struct {
		kind string
		kill func(*process)
		exit int
	}{
		"panic":                 {"leases", usr1, 2},
		"exit":                  {"configmaps", usr1, 3},
		"inherited descriptors": {"leases", usr1, -int(syscall.SIGKILL)},
		"kill":                  {"leases", func(p *process) { p.signal(syscall.SIGKILL) }, -int(syscall.SIGKILL)},
		"out of memory": {"leases", func(p *process) {
			limitMemory(t, p.PID(), p.pid("candidate"))
			usr1(p)
		}, -int(syscall.SIGKILL)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, c.kind)
			p := s.leader("a", "FENCED=yes", "FAULT="+name)
			before := s.read()
			c.kill(p)
			if exit := p.Exit(t); exit != c.exit {
				t.Errorf("witness ended with %d, want %d", exit, c.exit)
			}
			after := s.read()
			if state := s.state(); state != "free" || after.Record.LeaderTransitions != before.Record.LeaderTransitions || after.UID != before.UID {
				t.Errorf("lock is %s, transitions %d, want free and %d", state, after.Record.LeaderTransitions, before.Record.LeaderTransitions)
			}
			if orphan := name == "inherited descriptors"; orphan {
				if err := syscall.Kill(p.pid("orphan"), syscall.SIGKILL); err != nil {
					t.Errorf("process with inherited descriptors: %v", err)
				}
			}
		})
	}
}

// The witness releases both locks of an election with a held predecessor, the Lease first.
func TestDeath_HeldPredecessor(t *testing.T) {
	t.Parallel()
	s := newStage(t, "leases")
	p := s.leader("a", "FENCED=yes", "HELD="+election)
	p.signal(syscall.SIGKILL)
	p.Exit(t)
	old, err := s.admin.CoreV1().ConfigMaps(s.namespace).Get(t.Context(), election, metav1.GetOptions{})
	harness.Must(t, err)
	if state, record := s.state(), old.Annotations["control-plane.alpha.kubernetes.io/leader"]; state != "free" || !strings.HasPrefix(record, `{"holderIdentity":"",`) {
		t.Errorf("the Lease is %s, the ConfigMap has the record %s", state, record)
	}
	first, _ := strconv.ParseUint(s.read().ResourceVersion, 10, 64)
	if last, _ := strconv.ParseUint(old.ResourceVersion, 10, 64); first == 0 || last < first {
		t.Errorf("the Lease was released in version %d, the ConfigMap in %d", first, last)
	}
}

// A lock that the witness cannot write is not released. The scenario witness-lock-changed of package core has locks that have changed.
func TestDeath_DoesNotRelease(t *testing.T) {
	for name, c := range map[string]struct {
		kill func(*process)
		want string // part of the state of the lock
		log  string
	}{
		"witness killed first": {func(p *process) {
			pid := p.pid("candidate")
			p.Kill()
			harness.Until(p.s.TB, "the candidate has ended with its parent", func() bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) })
		}, `held by "a"`, ""},
		"API server down": {func(p *process) {
			p.stop()
			p.relay.Coming(relay.Fate{Up: relay.Flow{CutAfter: 1}})
			p.relay.Reset()
			p.signal(syscall.SIGKILL)
		}, `held by "a"`, "its lease expires"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, "configmaps")
			p := s.leader("a", "FENCED=yes")
			c.kill(p)
			p.Exit(t)
			if state := s.state(); !strings.HasPrefix(state, c.want) {
				t.Errorf("lock is %s, want %s", state, c.want)
			}
			if log := p.Errors.String(); !strings.Contains(log, c.log) || strings.Contains(log, "released the lock of a process") {
				t.Errorf("witness logged %s", log)
			}
		})
	}
}

// The kubelet renews the token of a pod in its file. A sidecar tries again during the whole lease.
func TestDeath_TokenRenewed(t *testing.T) {
	t.Parallel()
	s := newStage(t, "leases")
	p := s.pod("a")
	p.Process = p.run(p.serve(), "LEASE=120s")
	harness.Until(t, "a leads", p.leads)
	p.stop()
	p.token("expired")
	p.signal(syscall.SIGKILL)
	harness.Until(t, "the API server rejects the token", func() bool { return strings.Contains(p.sidecar.Errors.String(), "rejected the credentials") })
	p.token(p.config.BearerToken)
	s.freed()
}
