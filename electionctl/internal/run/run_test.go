//go:build linux

package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/internal/testutil/relay"
	"incumbent.dev/incumbent/pkg/kube"
	"incumbent.dev/incumbent/tests/cluster"
)

func TestMain(m *testing.M) {
	Supervise()
	if text, candidate := os.LookupEnv("RUN"); candidate {
		os.Exit(candidateMain(text))
	}
	cluster.Main(m, cluster.Options{WithoutControllers: true})
}

// candidateConfig is the configuration of a candidate in its own process.
type candidateConfig struct {
	Config
	Kubeconfig, Address, ServerName string
}

// candidateMain runs a candidate. Its exit code is the exit code of the program.
func candidateMain(text string) int {
	var c candidateConfig
	err := errors.Join(os.Unsetenv("RUN"), json.Unmarshal([]byte(text), &c))
	if err == nil {
		c.Client, err = kube.LoadConfig(kube.Source{Path: c.Kubeconfig})
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	c.Client.Host, c.Client.ServerName = c.Address, c.ServerName
	c.Logger = slog.Default()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	code, err := Run(ctx, c.Config)
	if err != nil {
		fmt.Println(err)
		return max(code, 1)
	}
	return code
}

// candidate is a process with a running Run.
type candidate struct {
	t     *testing.T
	c     candidateConfig
	cmd   *exec.Cmd
	ended chan struct{}
	relay *relay.Relay
	out   *os.File
}

// start starts a candidate with a program. Its requests use a relay.
func start(t *testing.T, change func(*Config, *exec.Cmd), program ...string) *candidate {
	t.Helper()
	shared := cluster.Shared(t)
	r := &candidate{t: t, cmd: exec.Command("/proc/self/exe"), ended: make(chan struct{})}
	admin := shared.Admin()
	var err error
	if r.relay, err = relay.Insert(t.Context(), admin); err != nil {
		t.Fatal(err)
	}
	if r.out, err = os.Create(filepath.Join(t.TempDir(), "out")); err != nil {
		t.Fatal(err)
	}
	r.c = candidateConfig{Kubeconfig: shared.Kubeconfig(), Address: admin.Host, ServerName: admin.ServerName, Config: Config{
		Namespace: shared.Namespace(t), Election: "worker", Identity: "a", Program: program, Grace: 20 * time.Second,
		// Longer than any wait of a test: what ends earlier does not end with the validity.
		LeaseDuration: 5 * harness.Patience, RenewDeadline: 2 * harness.Patience, RetryPeriod: time.Second,
	}}
	r.cmd.Stdout, r.cmd.Stderr = r.out, r.out
	// If a member of an orphaned process group is stopped while another ends, the kernel sends SIGHUP to the group.
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if change != nil {
		change(&r.c.Config, r.cmd)
	}
	text, err := json.Marshal(r.c) //nolint:staticcheck // SA1026: Client is nil
	harness.Must(t, err)
	r.cmd.Env = append(os.Environ(), "RUN="+string(text))
	harness.Must(t, r.cmd.Start())
	go func() {
		defer close(r.ended)
		_ = r.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = r.cmd.Process.Kill()
		<-r.ended
		_ = r.relay.Close()
		_ = r.out.Close()
	})
	return r
}

// short has a validity that ends within a test.
func short(c *Config, _ *exec.Cmd) {
	c.LeaseDuration = 12 * time.Second
	c.RenewDeadline = 4 * time.Second
}

func (r *candidate) output() string {
	r.t.Helper()
	raw, err := os.ReadFile(r.out.Name())
	harness.Must(r.t, err)
	return string(raw)
}

func (r *candidate) prints(text string) {
	r.t.Helper()
	harness.Until(r.t, "the program prints "+text, func() bool { return strings.Contains(r.output(), text) })
}

func (r *candidate) signal(s syscall.Signal) { _ = r.cmd.Process.Signal(s) }

// ends waits for the end and compares the exit code. The lock is free then.
func (r *candidate) ends(want int) {
	r.t.Helper()
	select {
	case <-r.ended:
	case <-time.After(harness.Patience):
		r.t.Fatalf("Run did not return: %s", r.output())
	}
	if code := r.cmd.ProcessState.ExitCode(); code != want {
		r.t.Errorf("the candidate ended with %v, want %v. It printed %s", r.cmd.ProcessState, want, r.output())
	}
	lease, err := cluster.Shared(r.t).Client(r.t).Kube().CoordinationV1().Leases(r.c.Namespace).Get(r.t.Context(), "worker", metav1.GetOptions{})
	if err != nil || *lease.Spec.HolderIdentity != "" {
		r.t.Errorf("lock is held by %v (%v), want none", lease.Spec.HolderIdentity, err)
	}
}

// kinds starts a process of each kind, and each of them prints its process ID. They ignore SIGTERM and SIGHUP.
const kinds = `trap "" TERM HUP
p='echo process $$ $0.; exec sleep 1000'
sh -c "$p" background-job &
setsid sh -c "$p" setsid &
(sh -c "$p" double-fork &)
(cd / && setsid sh -c "$p" daemon </dev/null 2>&1 | head -1 &)
sh -c "sh -c '$p' child & exec sleep 1000" &
exec sh -c "$p" program`

var process = regexp.MustCompile(`process (\d+) (\S+)\.`)

// processes returns the processes of kinds.
func (r *candidate) processes() map[string]proc {
	r.t.Helper()
	all := map[string]proc{}
	harness.Until(r.t, "each process has printed its ID", func() bool {
		for _, match := range process.FindAllStringSubmatch(r.output(), -1) {
			pid, _ := strconv.Atoi(match[1])
			p, _ := read(pid)
			all[match[1]+" "+match[2]] = p
		}
		return len(all) == 6
	})
	return all
}

// gone waits until the processes have ended.
func (r *candidate) gone(all map[string]proc) {
	r.t.Helper()
	for name, p := range all {
		pid, _ := strconv.Atoi(strings.Fields(name)[0])
		harness.Until(r.t, name+" has ended", func() bool {
			now, exists := read(pid)
			return !exists || now.zombie || now.start != p.start
		})
	}
}

// supervisor returns the supervisor.
func (r *candidate) supervisor() *os.Process {
	r.t.Helper()
	children, err := harness.Children(r.cmd.Process.Pid)
	if err != nil || len(children) != 1 {
		r.t.Fatal("the candidate has the children", children, err)
	}
	process, err := os.FindProcess(children[0])
	harness.Must(r.t, err)
	return process
}

// validityEnds has the cases in which only the end of the validity ends the program.
var validityEnds = map[string]bool{"candidate is stopped": true, "candidate and supervisor lose the API server": true}

// TestRun_EndsProgram is the table of docs/tools.md. A kill by the OOM killer is a SIGKILL of one of the three processes.
func TestRun_EndsProgram(t *testing.T) {
	for name, end := range map[string]func(r *candidate) (code int){
		"candidate is killed": func(r *candidate) int {
			r.signal(syscall.SIGKILL)
			return -1
		},
		"candidate is stopped": func(r *candidate) int {
			r.signal(syscall.SIGSTOP)
			return -1
		},
		"candidate and supervisor lose the API server": func(r *candidate) int {
			if err := r.relay.Close(); err != nil {
				t.Error(err)
			}
			return -1
		},
		"supervisor is killed": func(r *candidate) int {
			_ = r.supervisor().Kill()
			return 128 + 9
		},
		"supervisor is stopped": func(r *candidate) int {
			_ = r.supervisor().Signal(syscall.SIGSTOP)
			r.signal(syscall.SIGTERM)
			return 128 + 9
		},
		"program is killed": func(r *candidate) int {
			for name := range r.processes() {
				if pid, program, _ := strings.Cut(name, " "); program == "program" {
					number, _ := strconv.Atoi(pid)
					_ = syscall.Kill(number, syscall.SIGKILL)
				}
			}
			return 128 + 9
		},
		"program ignores SIGTERM": func(r *candidate) int {
			r.signal(syscall.SIGTERM)
			return 128 + 9
		},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			r := start(t, func(c *Config, cmd *exec.Cmd) {
				if validityEnds[name] {
					short(c, cmd)
				}
				c.Once = true
				c.Grace = 100 * time.Millisecond
			}, "/bin/sh", "-c", kinds)
			all := r.processes()
			began := time.Now()
			code := end(r)
			r.gone(all)
			t.Logf("all processes have ended %v later", time.Since(began))
			if code >= 0 {
				r.ends(code)
			}
		})
	}
}

func TestRun_Examples(t *testing.T) {
	for name, program := range map[string][]string{"shell": {"testdata/worker.sh"}, "Python": {"python3", "testdata/worker.py"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := start(t, nil, program...)
			r.prints("leading term 0 of worker with token ")
			r.signal(syscall.SIGTERM)
			r.ends(0)
			r.prints("stopping")
		})
	}
}

// Package ctl tests invalid configurations.
func TestRun_ExitCodes(t *testing.T) {
	folder := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(folder, name)
		harness.Must(t, os.WriteFile(path, []byte(text), 0o700))
		return path
	}
	for name, c := range map[string]struct {
		program []string
		code    int
	}{
		"success":     {[]string{"/bin/sh", "-c", `test "$ELECTION_IDENTITY" = a && test "$ELECTION_TOKEN" -gt 0`}, 0},
		"exit code":   {[]string{"/bin/sh", "-c", "exit 7"}, 7},
		"signal":      {[]string{"/bin/sh", "-c", "kill -USR1 $$"}, 128 + int(syscall.SIGUSR1)},
		"interpreter": {[]string{write("interpreter", "#!/no/such")}, NotFound},
		"format":      {[]string{write("format", "text")}, CannotExecute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			start(t, func(c *Config, _ *exec.Cmd) { c.Once = true }, c.program...).ends(c.code)
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

// The program receives the signals that the candidate forwards. They do not end the supervisor.
func TestRun_ForwardsSignals(t *testing.T) {
	t.Parallel()
	r := start(t, nil, "/bin/sh", "-c", `trap "echo reload" HUP; trap "exit 3" TERM; echo ready; while :; do sleep 1000 & wait $!; done`)
	r.prints("ready")
	r.signal(syscall.SIGHUP)
	r.prints("reload")
	r.signal(syscall.SIGTERM)
	r.ends(3)
}

// A program can read the terminal. Otherwise the kernel would stop it while the lock is held.
func TestRun_ReadsTerminal(t *testing.T) {
	t.Parallel()
	keys, screen := harness.Terminal(t)
	r := start(t, func(c *Config, cmd *exec.Cmd) {
		c.Once = true
		cmd.Stdin = screen
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	}, "/bin/sh", "-c", `trap 'echo interrupted; exit 5' INT; echo ready; read -r line; echo "read $line"; read -r line`)
	r.prints("ready")
	_, _ = keys.WriteString("text\n")
	r.prints("read text")
	// The line ends the second read if the signal arrived shortly before it. Then the shell runs the trap.
	_, _ = keys.WriteString("\x03\n")
	r.prints("interrupted")
	r.ends(5)
}
