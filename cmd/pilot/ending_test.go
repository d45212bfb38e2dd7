package main

import (
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/pilot/bootstrap"
	"incumbent.dev/incumbent/tests/cluster"
)

// endBound is far below the lease: who ends within it has not waited for anything to run out.
const endBound = 30 * time.Second

func longTiming() []string {
	return []string{"--lease-duration=" + longLease.String(), "--renew-deadline=5m", "--retry-period=1s"}
}

// noBundle is a file with which a server leads and writes nothing.
func noBundle(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return "--ca-bundle=" + file
}

// A signal ends the process in order: the work has ended, the lock's record says that it was
// released, and the exit code is 0, long before a lease could have run out.
func TestSignalEndsTheProcessInOrder(t *testing.T) {
	t.Parallel()
	for name, signal := range map[string]os.Signal{"SIGTERM": syscall.SIGTERM, "SIGINT": os.Interrupt} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			home := newNamespaces(t, "signal", 1)[0]
			p := launch(t, name, []string{"POD_NAME=a", "POD_NAMESPACE=" + home, "KUBECONFIG=" + kubeconfig(t, identity(t, home, "a"))},
				append([]string{"server", "--address=127.0.0.1:0", noBundle(t)}, longTiming()...)...)
			p.leads(t)
			before := configMapRecord(t, home)
			if before.record.HolderIdentity != "a" || !strings.HasPrefix(before.marker, "v1 a ") {
				t.Fatalf("the lock says %+v", before)
			}
			sent := time.Now()
			p.Signal(t, signal)
			if code := p.Exit(t); code != 0 {
				t.Errorf("it ended with %d", code)
			}
			if took := time.Since(sent); took > endBound {
				t.Errorf("it took %v to end", took)
			}
			after := configMapRecord(t, home)
			if r := after.record; r.HolderIdentity != "" || r.LeaseDurationSeconds != 1 || r.LeaderTransitions != before.record.LeaderTransitions || after.marker != "" {
				t.Errorf("the lock was not released: %+v", after)
			}
			inOrder(t, p.log(), "run function started", "stopping", "run function ended", "server stopped")
			if p.Errors.String() != "" {
				t.Errorf("it complains:\n%s", &p.Errors)
			}
		})
	}
}

// inOrder: these are in a log, one after the other.
func inOrder(t *testing.T, log string, words ...string) {
	t.Helper()
	rest := log
	for _, word := range words {
		_, after, found := strings.Cut(rest, word)
		if !found {
			t.Errorf("%q is missing, or not in the order of %q", word, words)
			return
		}
		rest = after
	}
}

// lockState is a ConfigMap lock as it is on the wire.
type lockState struct {
	record struct {
		HolderIdentity                          string
		LeaseDurationSeconds, LeaderTransitions int
	}
	marker string
}

func configMapRecord(t *testing.T, home string) (state lockState) {
	t.Helper()
	names, _ := bootstrap.Elections(bootstrap.Config{})
	lock, err := cluster.Shared(t).Client(t).Kube().CoreV1().ConfigMaps(home).Get(t.Context(), names[0], metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(lock.Annotations["control-plane.alpha.kubernetes.io/leader"]), &state.record); err != nil {
		t.Fatal(err)
	}
	state.marker = lock.Annotations["incumbent.dev/leader"]
	return state
}

// stuck is a leader whose write gets no answer, so that its controller does not end.
func stuck(t *testing.T, args ...string) *process {
	t.Helper()
	home := newNamespaces(t, "stuck", 1)[0]
	file, _ := bundle(t)
	front := newFront(t, isBundleWrite)
	p := launch(t, "stuck", []string{"POD_NAME=a", "POD_NAMESPACE=" + home, "KUBECONFIG=" + kubeconfig(t, front.before(identity(t, home, "a")))},
		append(append([]string{"server", "--address=127.0.0.1:0", "--lock=lease", "--ca-bundle=" + file}, longTiming()...), args...)...)
	p.leads(t)
	select {
	case <-front.held:
	case <-time.After(patience):
		t.Fatal("it has not written")
	}
	return p
}

// stuckProcessEnds: a controller that outstays the shutdown timeout ends the process with a
// code of its own, and its lock is not released.
func stuckProcessEnds(t *testing.T, _ *world) {
	p := stuck(t, "--shutdown-timeout=1s")
	sent := time.Now()
	p.Signal(t, syscall.SIGTERM)
	await(t, "it is not ready any more", func() bool {
		code, _ := p.page(t, "/readyz")
		return code == http.StatusServiceUnavailable || code == 0
	})
	// 3, which dashboards and scripts go by, and not whatever the elector calls it.
	if code := p.Exit(t); code != 3 {
		t.Errorf("it ended with %d", code)
	}
	// By default it would be 20 s.
	if took := time.Since(sent); took < time.Second || took > 19*time.Second {
		t.Errorf("it ended after %v", took)
	}
	if log := p.log(); !strings.Contains(log, "run functions have outstayed the drain limit") || strings.Contains(log, "server stopped") {
		t.Error("the log does not say why it ended")
	}
}

// A second signal kills, whatever is still under way.
func TestSecondSignalKills(t *testing.T) {
	t.Parallel()
	p := stuck(t, "--shutdown-timeout=10m")
	p.Signal(t, syscall.SIGTERM)
	await(t, "it stops", func() bool { return strings.Contains(p.log(), "stopping") })
	await(t, "it is killed", func() bool {
		// Again and again: the first one's handler goes a moment later, and so may the process.
		_ = p.Send(syscall.SIGTERM)
		select {
		case <-p.Ended():
			return true
		default:
			return false
		}
	})
	if code := p.Exit(t); code != -int(syscall.SIGTERM) {
		t.Errorf("it ended with %d", code)
	}
}

// What cannot start says why, on standard error, and ends with 1.
func TestWhatCannotStartEndsWithOne(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	config := "--kubeconfig=" + kubeconfig(t, identity(t, newNamespaces(t, "wrong", 1)[0], "a"))
	for want, args := range map[string][]string{
		"pilot: --identity is empty":                        {"server", config, "--address=127.0.0.1:0", "--ca-bundle=x"},
		"listening on " + taken.Addr().String():             {"server", config, "--identity=a", "--ca-bundle=x", "--address=" + taken.Addr().String()},
		`pilot: unknown command "serve"`:                    {"serve"},
		`pilot: unknown command "instal" for "pilot fence"`: {"fence", "instal"},
		"pilot: unknown flag: --leas-duration":              {"server", "--leas-duration=1s"},
		"pilot: the fence is not in effect":                   {"fence", "verify", "--kubeconfig=" + kubeconfig(t, adminConfig(t)), "--namespace=default", "--revisions=only"},
		"pilot: environment variable ENABLE_WRITE_GATE=\"x": {"server", "--ca-bundle=x"},
	} {
		var env []string
		if strings.Contains(want, "environment") {
			env = []string{"ENABLE_WRITE_GATE=x", "POD_NAME=a"}
		}
		p := launch(t, want, env, args...)
		code := p.Exit(t)
		// One line, and no usage.
		if said := p.Errors.String(); code != 1 || !strings.Contains(said, want) || strings.Count(said, "pilot: ") != 1 || strings.Contains(said, "Usage:") {
			t.Errorf("%v: it ended with %d:\n%s", args, code, said)
		}
	}
	if p := launch(t, "version", nil, "version"); p.Exit(t) != 0 || !strings.HasPrefix(p.Out.String(), "pilot ") {
		t.Errorf("pilot version: %s", &p.Out)
	}
}
