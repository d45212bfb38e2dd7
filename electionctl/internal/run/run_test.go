//go:build unix

package run

import (
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/internal/testutil/relay"
	"incumbent.dev/incumbent/tests/cluster"
)

func TestMain(m *testing.M) { cluster.Main(m, cluster.Options{WithoutControllers: true}) }

// running is a running Run.
type running struct {
	t      *testing.T
	config Config
	relay  *relay.Relay
	cancel context.CancelFunc
	done   chan struct{}
	status *Status
	err    error
}

// start runs a program. Its requests use a relay.
func start(t *testing.T, change func(*Config), program ...string) *running {
	t.Helper()
	c := cluster.Shared(t)
	admin := c.Admin()
	r := &running{t: t, done: make(chan struct{})}
	var err error
	if r.relay, err = relay.Insert(t.Context(), admin); err != nil {
		t.Fatal(err)
	}
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	r.config = Config{
		Client: admin, Namespace: c.Namespace(t), Election: "worker", Identity: "a", Program: program, Grace: 20 * time.Second,
		LeaseDuration: time.Minute, RenewDeadline: 30 * time.Second, RetryPeriod: time.Second,
		Stdin: null, Stdout: out, Stderr: out, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
	if change != nil {
		change(&r.config)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	r.cancel = cancel
	go func() {
		defer close(r.done)
		r.status, r.err = Run(ctx, r.config)
	}()
	t.Cleanup(func() {
		cancel()
		<-r.done
		_ = r.relay.Close()
		_ = out.Close()
		_ = null.Close()
	})
	return r
}

func (r *running) output() string {
	r.t.Helper()
	raw, err := os.ReadFile(r.config.Stdout.Name())
	if err != nil {
		r.t.Fatal(err)
	}
	return string(raw)
}

func (r *running) prints(text string) {
	r.t.Helper()
	harness.Until(r.t, "the program prints "+text, func() bool { return strings.Contains(r.output(), text) })
}

// ends waits for the end and compares the status. The lock is free then.
func (r *running) ends(want Status) {
	r.t.Helper()
	select {
	case <-r.done:
	case <-time.After(harness.Patience):
		r.t.Fatal("Run did not return")
	}
	if r.err != nil || r.status == nil || *r.status != want {
		r.t.Errorf("Run returned %v and %v, want %v. The program printed %s", r.status, r.err, want, r.output())
	}
	lease, err := cluster.Shared(r.t).Client(r.t).Kube().CoordinationV1().Leases(r.config.Namespace).Get(r.t.Context(), "worker", metav1.GetOptions{})
	if err != nil || *lease.Spec.HolderIdentity != "" {
		r.t.Errorf("lock is held by %v (%v), want none", lease.Spec.HolderIdentity, err)
	}
}

// gone waits until a process of the program has ended.
func (r *running) gone() {
	r.t.Helper()
	pid, err := strconv.Atoi(strings.Fields(r.output())[1])
	if err != nil {
		r.t.Fatal(err)
	}
	harness.Until(r.t, "the process has ended", func() bool {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		return err != nil || strings.Contains(string(stat), ") Z ")
	})
}

// Package ctl tests the other exit codes, signals and invalid configurations.
func TestRun_Once(t *testing.T) {
	t.Parallel()
	start(t, func(c *Config) { c.Once = true }, "/bin/sh", "-c", `test "$ELECTION_IDENTITY" = a && test "$ELECTION_TOKEN" -gt 0`).ends(Status{})
}

func TestRun_Examples(t *testing.T) {
	for name, program := range map[string][]string{"shell": {"testdata/worker.sh"}, "Python": {"python3", "testdata/worker.py"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := start(t, nil, program...)
			r.prints("leading term 0 of worker with token ")
			r.cancel()
			r.ends(Status{})
			r.prints("stopping")
		})
	}
}

// Without Once, the program runs again in the next term.
func TestRun_NextTerm(t *testing.T) {
	t.Parallel()
	r := start(t, nil, "/bin/sh", "-c", `echo "run $ELECTION_TRANSITIONS"`)
	r.prints("run 0")
	r.prints("run 1")
}

// A program that ignores SIGTERM is killed with its processes.
func TestRun_IgnoresSIGTERM(t *testing.T) {
	t.Parallel()
	r := start(t, func(c *Config) { c.Grace = 100 * time.Millisecond }, "/bin/sh", "-c", `trap "" TERM; sleep 1000 & echo "started $!"; wait`)
	r.prints("started")
	r.cancel()
	r.ends(Status{Signal: syscall.SIGKILL})
	r.gone()
}

// A program that hangs is killed at the end of the validity, without an API server.
func TestRun_ValidityEnds(t *testing.T) {
	t.Parallel()
	r := start(t, func(c *Config) {
		c.LeaseDuration = 12 * time.Second
		c.RenewDeadline = 4 * time.Second
	}, "/bin/sh", "-c", `trap "" TERM; sleep 1000 & echo "started $!"; wait`)
	r.prints("started")
	if err := r.relay.Close(); err != nil {
		t.Fatal(err)
	}
	r.gone()
}
