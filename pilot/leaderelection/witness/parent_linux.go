package witness

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// releaseTimeout bounds the releases of a parent: a read and a write after the grace.
const releaseTimeout = time.Second + 2*callTimeout

// Supervise starts this program again as a child, with the same arguments, environment and standard files, and is its witness. It
// returns only if it cannot start the child. Otherwise it ends this process with the exit code or the signal of the child.
func Supervise(o Options) error {
	c, err := startChild(o)
	if err != nil {
		return fmt.Errorf("start this program as a child of its witness: %w", err)
	}
	c.wait().exit()
	return nil
}

// status is how a child ended.
type status struct {
	code   int            // the exit code
	signal syscall.Signal // is not zero if a signal ended the child
}

// child is a running child.
type child struct {
	pid      int
	process  *os.Process
	options  Options
	signals  chan os.Signal
	session  *session
	received chan struct{}
}

// startChild starts this program again. The goroutine stays on its thread until the end of the process, because the kernel ends
// the child together with this thread.
func startChild(o Options) (*child, error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_SEQPACKET|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
	if err == nil { // each message has its sender: another process may have a copy of the socket
		err = syscall.SetsockoptInt(fds[0], syscall.SOL_SOCKET, syscall.SO_PASSCRED, 1)
	}
	if err != nil {
		return nil, err
	}
	own, theirs := os.NewFile(uintptr(fds[0]), "witness"), os.NewFile(uintptr(fds[1]), "witness")
	defer own.Close()
	defer theirs.Close()
	conn, err := net.FileConn(own)
	if err != nil {
		return nil, err
	}
	socket := conn.(*net.UnixConn)
	c := &child{options: o.withDefaults(), signals: make(chan os.Signal, 16), received: make(chan struct{})}
	nohup := signal.Ignored(syscall.SIGHUP)
	signal.Notify(c.signals)                                        // SIGPIPE too: the release must not end at a closed standard error
	signal.Reset(syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU) // the terminal sends them to both processes
	if nohup {
		signal.Ignore(syscall.SIGHUP) // the child inherits it
	}
	runtime.LockOSThread()
	process, err := os.StartProcess("/proc/self/exe", os.Args, &os.ProcAttr{
		Env:   append(os.Environ(), variable+"=3"),
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr, theirs},
		Sys:   &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL},
	})
	if err != nil {
		signal.Stop(c.signals)
		return nil, errors.Join(err, socket.Close())
	}
	c.pid, c.process = process.Pid, process
	c.session = &session{of: &sessions{identity: o.Identity}, conn: socket, pid: process.Pid, checked: true, terms: terms{}}
	go c.forward()
	go func() {
		defer close(c.received)
		c.session.receive(c.options)
	}()
	return c, nil
}

// forward sends the signals of this process to the child. The terminal sends SIGINT and SIGQUIT to both processes. A process
// descriptor is used, because the process ID of an ended child may belong to another process.
func (c *child) forward() {
	for s := range c.signals {
		n, _ := s.(syscall.Signal)
		switch terminal := isTerminal(); {
		case n == syscall.SIGCHLD || n == syscall.SIGURG || n == syscall.SIGPIPE:
		case terminal && (n == syscall.SIGINT || n == syscall.SIGQUIT):
		default:
			_ = c.process.Signal(n)
		}
	}
}

// isTerminal reports whether this process is in the foreground of its terminal. Its standard files may be others.
func isTerminal() bool {
	terminal, err := os.OpenFile("/dev/tty", os.O_RDONLY|syscall.O_NOCTTY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer terminal.Close()
	group, err := unix.IoctlGetInt(int(terminal.Fd()), unix.TIOCGPGRP)
	return err == nil && group == syscall.Getpgrp()
}

// wait waits for the end of the child, and releases the locks whose terms the child has registered and not removed. The kernel
// reports the end after it has closed all descriptors of all threads.
func (c *child) wait() status {
	ended := c.reap()
	c.lastMessages()
	ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout) //nolint:forbidigo // after the end of the program
	defer cancel()
	c.options.release(ctx, c.session.terms, 0)
	return ended
}

// lastMessages reads the messages that the child sent before its end. They are in the kernel. If another process inherited the
// socket, it does not end, so the number of messages is limited.
func (c *child) lastMessages() {
	_ = c.session.conn.SetReadDeadline(time.Now()) //nolint:forbidigo // a deadline
	<-c.received
	socket, err := c.session.conn.SyscallConn()
	if err != nil {
		return
	}
	raw, from := make([]byte, maxMessage+1), make([]byte, syscall.CmsgSpace(syscall.SizeofUcred))
	_ = socket.Control(func(fd uintptr) {
		for range 100_000 {
			n, length, _, _, err := syscall.Recvmsg(int(fd), raw, from, syscall.MSG_DONTWAIT)
			if n > 0 {
				c.session.message(raw[:n], from[:length], c.options)
			} else if !errors.Is(err, syscall.EINTR) {
				return
			}
		}
	})
}

// reap waits for all children. As process 1 of a container, this process also has the orphans of others.
func (c *child) reap() status {
	for {
		var ended syscall.WaitStatus
		switch pid, err := syscall.Wait4(-1, &ended, 0, nil); {
		case errors.Is(err, syscall.EINTR):
		case err != nil: // cannot happen: only this function waits
			return status{code: 1}
		case pid == c.pid && ended.Signaled():
			return status{signal: ended.Signal()}
		case pid == c.pid:
			return status{code: ended.ExitStatus()}
		}
	}
}

// exit ends this process in the same way.
func (s status) exit() {
	if s.signal == 0 {
		os.Exit(s.code)
	}
	// The core file of the child is sufficient.
	_ = syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{})
	defaultAction(s.signal)
	// The signal must arrive at this thread. Otherwise os.Exit could be earlier.
	runtime.LockOSThread()
	_ = unix.Tgkill(os.Getpid(), syscall.Gettid(), s.signal)
	// SIGKILL always ends this process. Other signals do not end process 1 of a container.
	os.Exit(128 + int(s.signal))
}

// defaultAction sets the default action of a signal. signal.Reset would restore the handler of the Go runtime, which prints
// all goroutines.
func defaultAction(s syscall.Signal) {
	var action [4]uint64 // struct sigaction of the kernel: SIG_DFL is 0
	_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(s), uintptr(unsafe.Pointer(&action)), 0, 8, 0, 0)
}
