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
	"strings"
	"syscall"
	"testing"

	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/leaderelection/witness"
)

// sidecar is a running witness with a socket.
type sidecar struct {
	path string
	log  harness.Log
	stop func()
}

// sidecar starts a witness. It ends with the test.
func (s *stage) sidecar(path string) *sidecar {
	s.Helper()
	c := &sidecar{path: path}
	ctx, cancel := context.WithCancel(s.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- witness.Serve(ctx, path, witness.Options{
			Logger:  slog.New(slog.NewTextHandler(&c.log, nil)),
			Connect: func(string) (*rest.Config, error) { return s.cluster.Admin(), nil },
		})
	}()
	var stopped bool
	c.stop = func() {
		if cancel(); !stopped {
			stopped = true
			if err := <-ended; err != nil {
				s.Error(err)
			}
		}
	}
	s.Cleanup(c.stop)
	c.logs(s, "witness is listening")
	return c
}

func (c *sidecar) logs(s *stage, text string) {
	s.Helper()
	harness.Until(s.TB, text+" is logged", func() bool { return strings.Contains(c.log.String(), text) })
}

func TestSidecar_Releases(t *testing.T) {
	for name, kill := range map[string]func(*testing.T, *process){
		"kill": func(_ *testing.T, p *process) { p.Kill() },
		"out of memory": func(t *testing.T, p *process) {
			limitMemory(t, p.PID())
			p.Signal(t, syscall.SIGUSR1)
			p.Exit(t)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, "leases")
			c := s.sidecar(filepath.Join(t.TempDir(), "socket"))
			kill(t, s.leader("a", "SOCKET="+c.path, "FAULT="+name))
			s.freed()
		})
	}
}

// The candidate registers its term again at a renewal. The next renewal is sent after the registration.
func TestSidecar_Restarts(t *testing.T) {
	t.Parallel()
	s := newStage(t, "leases")
	c := s.sidecar(filepath.Join(t.TempDir(), "socket"))
	p := s.leader("a", "SOCKET="+c.path, "LEASE=16s")
	c.stop()
	if state := s.state(); !strings.HasPrefix(state, "held") {
		t.Fatal("without a witness the lock is", state)
	}
	c = s.sidecar(c.path)
	c.logs(s, "connected")
	connected := s.read().ResourceVersion
	harness.Until(t, "the candidate renews", func() bool { return s.read().ResourceVersion != connected })
	p.Kill()
	s.freed()
}

// packet sends a message on its own connection, and returns the reply.
func packet(t *testing.T, path, text string) string {
	t.Helper()
	conn, err := net.Dial("unixpacket", path)
	if err != nil {
		t.Fatal(err)
	}
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

func TestSidecar_Rejects(t *testing.T) {
	t.Parallel()
	s := newStage(t, "leases")
	c := s.sidecar(filepath.Join(t.TempDir(), "socket"))
	for text, want := range map[string]string{
		`{"version":2,"register":{"holder":"a","name":"b","lockType":"leases"}}`: "protocol version 2 is not supported",
		`hello`:                         "not valid JSON",
		`{"version":1}`:                 "neither a term",
		`{"version":1,"register":{}}`:   "no holder",
		`{"version":1,"register":true}`: "not valid",
		`{"version":1,"remove":{"name":"` + strings.Repeat("x", 9000) + `"}}`: "longer than 8192 bytes",
	} {
		if got := packet(t, c.path, text); !strings.Contains(got, want) {
			t.Errorf("%.40s: %s, want %s", text, got, want)
		}
	}
	if log := c.log.String(); strings.Contains(log, "has ended") {
		t.Errorf("witness logged %s", log)
	}
}

// Another user cannot connect, or register a term.
func TestSidecar_RejectsOtherUser(t *testing.T) {
	if os.Getuid() != 0 {
		skip(t, "only root can become another user. Run as root")
	}
	s := newStage(t, "leases")
	folder, err := os.MkdirTemp("/tmp", "witness") // t.TempDir has a parent that another user cannot enter
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	if err := os.Chmod(folder, 0o711); err != nil {
		t.Fatal(err)
	}
	c := s.sidecar(filepath.Join(folder, "socket"))
	dial := func() error {
		result := make(chan error)
		go func() {
			runtime.LockOSThread() // the thread ends with the goroutine
			_, _, _ = syscall.RawSyscall(syscall.SYS_SETRESUID, 65534, 65534, 65534)
			fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_SEQPACKET|syscall.SOCK_CLOEXEC, 0)
			if err == nil {
				err = syscall.Connect(fd, &syscall.SockaddrUnix{Name: c.path})
				_ = syscall.Close(fd)
			}
			result <- err
		}()
		return <-result
	}
	if err := dial(); !errors.Is(err, syscall.EACCES) {
		t.Errorf("connecting: %v", err)
	}
	if err := os.Chmod(c.path, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := dial(); err != nil {
		t.Error(err)
	}
	c.logs(s, "belongs to user 65534")
}

func TestServe_SocketPath(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	file := filepath.Join(folder, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s := newStage(t, "leases")
	used := s.sidecar(filepath.Join(folder, "used"))
	for path, want := range map[string]string{
		folder:                                  "is no socket (d",
		file:                                    "is no socket",
		filepath.Join(folder, "no/socket"):      "no such file or directory",
		"/proc/socket":                          "listen on socket /proc/socket",
		used.path:                               "another witness listens on it",
		"/" + strings.Repeat("long/", 30) + "x": "listen on socket",
	} {
		if err := witness.Serve(t.Context(), path, witness.Options{}); err == nil || !strings.Contains(err.Error(), want) {
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
			err = witness.Serve(t.Context(), filepath.Join(folder, "socket"), witness.Options{})
		}
		result <- err
	}()
	err := <-result
	if errors.Is(err, syscall.EPERM) {
		skip(t, "this machine cannot mount a volume: %v. Run as root", err)
	}
	if want := "read-only file system. Mount the volume without readOnly"; err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}
