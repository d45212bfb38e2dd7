package witness

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"incumbent.dev/incumbent/internal/testutil/harness"
)

// serve runs a witness on a socket until stop, or until the end of the test.
func serve(t *testing.T, path string) (log *harness.Log, stop func()) {
	t.Helper()
	log = &harness.Log{}
	stop = harness.Background(t, func(ctx context.Context) error {
		return Serve(ctx, path, Options{Identity: "a", Logger: slog.New(slog.NewTextHandler(log, nil))})
	})
	harness.Until(t, "the witness is listening", func() bool { return log.Count("witness is listening") > 0 })
	return log, stop
}

// A client connects again only after the witness has closed its connection.
func TestServe_ClosesConnections(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	for range 50 {
		_, stop := serve(t, path)
		conn, err := net.Dial("unixpacket", path)
		harness.Must(t, err)
		stop()
		_ = conn.SetReadDeadline(time.Now().Add(harness.Patience))
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
			t.Fatal("after the end of the witness, a read returns", err)
		}
		_ = conn.Close()
	}
}

// packet sends a message on its own connection, and returns the reply.
func packet(t *testing.T, path, text string) string {
	t.Helper()
	conn, err := net.Dial("unixpacket", path)
	harness.Must(t, err)
	defer conn.Close()
	if _, err := conn.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	reply := make([]byte, 1024)
	n, err := conn.Read(reply)
	if err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	return string(reply[:n])
}

func TestServe_RejectsMessages(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	log, _ := serve(t, path)
	for text, want := range map[string]string{
		`{"version":2,"register":{"holder":"a","name":"b","lockType":"leases"}}`: "protocol version 2 is not supported",
		`hello`:                       "not valid JSON",
		`{"version":1}`:               "neither a term",
		`{"version":1,"register":{}}`: "no holder",
		`{"version":1,"register":{"holder":"b","name":"b","lockType":"leases"}}`: "is not a, the candidate of this witness",
		`{"version":1,"register":true}`:                                          "not valid",
		`{"version":1,"remove":{"name":"` + strings.Repeat("x", 9000) + `"}}`:    "longer than 8192 bytes",
	} {
		if got := packet(t, path, text); !strings.Contains(got, want) {
			t.Errorf("%.40s: %s, want %s", text, got, want)
		}
	}
	if log.Count("has ended") > 0 {
		t.Errorf("witness logged %s", log)
	}
}

// registered returns a connection that has registered a term.
func registered(t *testing.T, path string, n int) *Client {
	t.Helper()
	c := Dial(path, slog.New(slog.NewTextHandler(t.Output(), nil)))
	c.Register(term(n))
	t.Cleanup(c.close)
	return c
}

// Another process must not end the term of a live one.
func TestServe_TermOfOther(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	log, _ := serve(t, path)
	leader, other := registered(t, path, 1), registered(t, path, 1)
	harness.Until(t, "one process is rejected", func() bool { return leader.Connected() != other.Connected() })
	if !leader.Connected() { // its message was read later
		leader, other = other, leader
	}
	if log.Count("has registered the term of lock") != 1 {
		t.Error(log)
	}
	other.close()
	leader.close()
	harness.Until(t, "the end of the leader is reported", func() bool { return log.Count("process has ended") > 0 })
	registered(t, path, 1)
	harness.Until(t, "the term has no other process", func() bool { return log.Count("process connected") == 3 })
	if log.Count("process has ended") > 1 || log.Count("has registered the term") > 1 {
		t.Error(log)
	}
}

// Connections without a term are closed before the descriptors are exhausted. A connection with a term stays.
func TestServe_ManyConnections(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	log, _ := serve(t, path)
	leader := registered(t, path, 1)
	harness.Until(t, "the leader is connected", func() bool { return log.Count("process connected") == 1 })
	const all = 1500
	var first, last net.Conn
	for n := range all {
		conn, err := net.Dial("unixpacket", path)
		harness.Must(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		if last = conn; n == 0 {
			first = conn
		}
	}
	harness.Until(t, "each connection is accepted", func() bool { return log.Count("process connected") == 1+all })
	_ = first.SetReadDeadline(time.Now().Add(harness.Patience))
	_ = last.SetReadDeadline(time.Now())
	_, ended := first.Read(make([]byte, 1))
	_, open := last.Read(make([]byte, 1))
	if !errors.Is(ended, io.EOF) || !errors.Is(open, os.ErrDeadlineExceeded) {
		t.Errorf("the first connection: %v, want EOF. The last one: %v, want a timeout", ended, open)
	}
	leader.close()
	harness.Until(t, "the end of the leader is reported", func() bool { return log.Count("process has ended") == 1 })
}

// At a limit, a new connection displaces one without a term only.
func TestSessions_Limits(t *testing.T) {
	const own = 7
	for name, c := range map[string]struct {
		pid  func(n int) int
		most int
	}{
		"one process": {func(int) int { return own }, maxPeer},
		"all":         {func(n int) int { return own + n }, maxConnections},
	} {
		t.Run(name, func(t *testing.T) {
			a := sessions{}
			for n := range c.most {
				s, err := a.add(&net.UnixConn{}, c.pid(n))
				harness.Must(t, err)
				s.terms[lockKey{}] = registration{}
			}
			if _, err := a.add(&net.UnixConn{}, own); err == nil || len(a.open) != c.most {
				t.Errorf("%d connections, %v", len(a.open), err)
			}
			idle := a.open[1]
			clear(idle.terms)
			s, err := a.add(&net.UnixConn{}, own)
			if err != nil || slices.Contains(a.open, idle) || a.open[c.most-1] != s || len(a.open) != c.most {
				t.Errorf("the connection without terms was not replaced: %v", err)
			}
		})
	}
}

// Another user cannot connect, or register a term.
func TestServe_RejectsOtherUser(t *testing.T) {
	if os.Getuid() != 0 {
		harness.Skip(t, "only root can become another user. Run as root")
	}
	folder, err := os.MkdirTemp("/tmp", "witness") // t.TempDir has a parent that another user cannot enter
	harness.Must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	harness.Must(t, os.Chmod(folder, 0o711))
	path := filepath.Join(folder, "socket")
	log, _ := serve(t, path)
	dial := func() error {
		result := make(chan error)
		go func() {
			runtime.LockOSThread() // the thread ends with the goroutine
			_, _, _ = syscall.RawSyscall(syscall.SYS_SETRESUID, 65534, 65534, 65534)
			fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_SEQPACKET|syscall.SOCK_CLOEXEC, 0)
			if err == nil {
				err = syscall.Connect(fd, &syscall.SockaddrUnix{Name: path})
				_ = syscall.Close(fd)
			}
			result <- err
		}()
		return <-result
	}
	if err := dial(); !errors.Is(err, syscall.EACCES) {
		t.Errorf("connecting: %v", err)
	}
	harness.Must(t, os.Chmod(path, 0o666))
	if err := dial(); err != nil {
		t.Error(err)
	}
	harness.Until(t, "the witness rejects the connection", func() bool { return log.Count("belongs to user 65534") > 0 })
}

func TestServe_SocketPath(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "file")
	harness.Must(t, os.WriteFile(file, nil, 0o600))
	used := filepath.Join(folder, "used")
	serve(t, used)
	for path, want := range map[string]string{
		folder:                                  "is no socket (d",
		file:                                    "is no socket",
		filepath.Join(folder, "no/socket"):      "no such file or directory",
		"/proc/socket":                          "listen on socket /proc/socket",
		used:                                    "another witness listens on it",
		"/" + strings.Repeat("long/", 30) + "x": "listen on socket",
	} {
		if err := Serve(t.Context(), path, Options{Identity: "a"}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", path, err, want)
		}
	}
}

// The volume of the socket may be mounted without the right to write.
func TestServe_ReadOnlyVolume(t *testing.T) {
	folder := t.TempDir()
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // its mounts end with the goroutine
		err := syscall.Unshare(syscall.CLONE_NEWNS)
		if err == nil {
			err = syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, "")
		}
		if err == nil {
			err = syscall.Mount("none", folder, "tmpfs", syscall.MS_RDONLY, "")
		}
		if err == nil {
			err = Serve(t.Context(), filepath.Join(folder, "socket"), Options{Identity: "a"})
		}
		result <- err
	}()
	err := <-result
	if errors.Is(err, syscall.EPERM) {
		harness.Skip(t, "this machine cannot mount a volume: %v. Run as root", err)
	}
	if want := "read-only file system. Mount the volume without readOnly"; err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}
