package witness

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/internal/testutil/relay"
)

// limitMemory moves processes into a new memory cgroup. The kernel kills the largest of them when they use 128 MiB more than
// now. The test is skipped if this machine cannot make a cgroup.
func limitMemory(t *testing.T, pids ...int) {
	t.Helper()
	const most = "134217728"
	parent := "/sys/fs/cgroup"
	limits := [][2]string{{"memory.max", most}, {"memory.swap.max", "0"}}
	for line := range strings.Lines(readFile(t, "/proc/self/cgroup")) {
		if _, own, v1 := strings.Cut(strings.TrimSpace(line), ":memory:"); v1 {
			parent = filepath.Join("/sys/fs/cgroup/memory", own)
			limits = [][2]string{{"memory.limit_in_bytes", most}, {"memory.memsw.limit_in_bytes", most}}
		}
	}
	group, err := os.MkdirTemp(parent, "incumbent-")
	if err == nil {
		t.Cleanup(func() {
			harness.Until(t, group+" is removed", func() bool { return os.Remove(group) == nil })
		})
		for _, limit := range limits { // a machine without swap may lack the second file
			if failed := os.WriteFile(filepath.Join(group, limit[0]), []byte(limit[1]), 0); failed != nil && limit == limits[0] {
				err = failed
			}
		}
	}
	if err != nil {
		harness.Skip(t, "this machine cannot limit the memory of processes: %v. Run as root with the memory controller of cgroups", err)
	}
	for _, pid := range pids {
		harness.Must(t, os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0))
	}
}

// queued returns the bytes that the kernel has for the connections to a port of the loopback address: bytes that it has not sent,
// and bytes that the program of that port has not read.
func queued(t *testing.T, port string) (unsent, unread int) {
	t.Helper()
	n, err := strconv.Atoi(port)
	harness.Must(t, err)
	want := fmt.Sprintf("0100007F:%04X", n)
	lines := bufio.NewScanner(strings.NewReader(readFile(t, "/proc/net/tcp")))
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) < 5 {
			continue
		}
		var sending, receiving int
		if _, err := fmt.Sscanf(words[4], "%x:%x", &sending, &receiving); err != nil {
			continue
		}
		switch want {
		case words[2]:
			unsent += sending
		case words[1]:
			unread += receiving
		}
	}
	return unsent, unread
}

// The leader is killed while the kernel has a write that it cannot send. It must not arrive after the release of the lock. With a
// fence the witness does not wait for the grace.
func TestDeath_HeldWrite(t *testing.T) {
	for name, env := range map[string][]string{"grace": nil, "fence": {"FENCED=yes"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, "leases")
			p := s.leader("a", append(env, "FAULT=held write")...)
			p.signal(syscall.SIGUSR1)
			harness.Until(t, "the first write succeeds", func() bool { return strings.Contains(p.Out.String(), "wrote") })
			p.relay.Present(relay.Fate{Up: relay.Flow{Stall: true}})
			p.signal(syscall.SIGUSR1)
			_, port, _ := net.SplitHostPort(p.relay.Addr())
			var unsent, unread int
			harness.Until(t, "the write is in the kernel", func() bool {
				unsent, unread = queued(t, port)
				return unsent+unread > workSize-32<<10 // the buffer of the relay
			})
			p.signal(syscall.SIGKILL)
			p.Exit(t)
			if state := s.state(); state != "free" {
				t.Errorf("lock is %s, want free", state)
			}
			if left, _ := queued(t, port); unsent == 0 || left != 0 {
				t.Errorf("the kernel had %d bytes to send at the death, and has %d after the release, want none", unsent, left)
			}
			p.relay.Present(relay.Fate{})
			harness.Until(t, "the connections have ended", func() bool { return p.relay.Open() == 0 })
			work, err := s.admin.CoreV1().ConfigMaps(s.namespace).Get(t.Context(), workName, metav1.GetOptions{})
			if err != nil || len(work.Data) != 0 {
				t.Errorf("the write arrived after the release, or %v", err)
			}
			t.Logf("at the death %d bytes were unsent, and the proxy had not read %d", unsent, unread)
		})
	}
}
