package cluster_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/tests/cluster"
)

// server is a process of a cluster.
type server struct {
	program string
	pid     int
}

// servers are the processes with a cluster's folder in their command line.
func servers(t *testing.T, folder string) (found []server) {
	t.Helper()
	entries, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		line, err := os.ReadFile(entry)
		if err != nil || !bytes.Contains(line, []byte(folder)) {
			continue // it may have ended meanwhile
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(entry)))
		if err != nil {
			t.Fatal(err)
		}
		program, _, _ := bytes.Cut(line, []byte{0})
		found = append(found, server{filepath.Base(string(program)), pid})
	}
	return found
}

func programs(all []server) (names []string) {
	for _, s := range all {
		names = append(names, s.program)
	}
	slices.Sort(names)
	return names
}

// listening are the addresses at which a process takes connections.
func (s server) listening(t *testing.T) (all []string) {
	t.Helper()
	inodes := map[string]bool{}
	open, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", s.pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range open {
		if to, err := os.Readlink(fd); err == nil && strings.HasPrefix(to, "socket:[") {
			inodes[strings.Trim(strings.TrimPrefix(to, "socket:"), "[]")] = true
		}
	}
	for _, table := range []string{"tcp", "tcp6"} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", s.pid, table))
		if err != nil {
			continue // a machine without it
		}
		for line := range strings.Lines(string(text)) {
			fields := strings.Fields(line)
			if len(fields) < 10 || fields[3] != "0A" || !inodes[fields[9]] {
				continue
			}
			host, _, _ := strings.Cut(fields[1], ":")
			raw, err := hex.DecodeString(host)
			if err != nil {
				t.Fatal(err)
			}
			for word := range slices.Chunk(raw, 4) { // as the machine has them
				slices.Reverse(word)
			}
			all = append(all, net.IP(raw).String())
		}
	}
	return all
}

// The servers of a cluster: they listen at its addresses and no other, where another cluster or
// the machine may be, have nothing of the environment that would lead them elsewhere, and end one
// after the other, etcd last, with nothing left.
func TestServersOfAClusterKeepToThemselves(t *testing.T) {
	t.Setenv("KUBECONFIG", "/no/such/kubeconfig")
	t.Setenv("ETCD_QUOTA_BACKEND_BYTES", "1")
	c, err := cluster.Start(t.Context(), cluster.Options{})
	if err != nil {
		t.Fatal(err)
	}
	stopped := false
	defer func() {
		if !stopped {
			t.Error(c.Stop())
		}
	}()
	client := clientFor(t, c.Admin())
	_, noAccount := client.CoreV1().ServiceAccounts("default").Get(t.Context(), "default", metav1.GetOptions{})
	_, noBundle := client.CoreV1().ConfigMaps("default").Get(t.Context(), "kube-root-ca.crt", metav1.GetOptions{})
	if err := errors.Join(noAccount, noBundle); err != nil {
		t.Errorf("it has started before its controllers work: %v", err)
	}
	if _, err := c.AddAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	at, err := url.Parse(c.URL())
	if err != nil {
		t.Fatal(err)
	}
	block := at.Hostname()[:strings.LastIndexByte(at.Hostname(), '.')+1]
	all := servers(t, c.Dir())
	if want := []string{"etcd", "kube-apiserver", "kube-apiserver", "kube-controller-manager"}; !slices.Equal(programs(all), want) {
		t.Errorf("its processes are %v, want %v", programs(all), want)
	}
	for _, s := range all {
		places := s.listening(t)
		if (s.program == "kube-controller-manager") != (len(places) == 0) {
			t.Errorf("%s listens at %q", s.program, places)
		}
		for _, place := range places {
			if !strings.HasPrefix(place, block) {
				t.Errorf("%s listens at %s, and the cluster's addresses are %s…", s.program, place, block)
			}
		}
		environment, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", s.pid))
		if err != nil {
			t.Fatal(err)
		}
		for entry := range bytes.SplitSeq(environment, []byte{0}) {
			if name, _, _ := bytes.Cut(entry, []byte("=")); string(name) == "KUBECONFIG" || bytes.HasPrefix(name, []byte("ETCD_")) {
				t.Errorf("%s has %s in its environment", s.program, entry)
			}
		}
	}

	stopped = true
	ended := make(chan error, 1)
	go func() { ended <- c.Stop() }()
	endInOrder(t, c.Dir(), ended)
	// What reserves the addresses: package loopback.
	free, err := net.Listen("tcp4", block+"254:61000")
	if err != nil {
		t.Fatalf("its addresses are not given back: %v", err)
	}
	if err := free.Close(); err != nil {
		t.Error(err)
	}
}

// orphaned: what a server needs has ended before it.
func orphaned(left []string) bool {
	has := func(program string) bool { return slices.Contains(left, program) }
	return !has("etcd") && has("kube-apiserver") || !has("kube-apiserver") && has("kube-controller-manager")
}

// endInOrder watches processes end: none before one that needs it.
func endInOrder(t *testing.T, folder string, ended <-chan error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	for {
		left := programs(servers(t, folder))
		// What was seen may have ended while others were looked at: seen again, it is there.
		if orphaned(left) {
			if again := programs(servers(t, folder)); orphaned(again) {
				t.Errorf("left without what they need: %v", again)
			}
		}
		select {
		case err := <-ended:
			if left := servers(t, folder); err != nil || len(left) > 0 {
				t.Errorf("it has stopped (%v), and there are still %v", err, left)
			}
			if _, err := os.Stat(folder); !os.IsNotExist(err) {
				t.Errorf("its folder is still there: %v", err)
			}
			return
		case <-ctx.Done():
			t.Fatalf("it has not stopped within %v, there are still %v", bound, left)
		case <-time.After(time.Millisecond):
		}
	}
}
