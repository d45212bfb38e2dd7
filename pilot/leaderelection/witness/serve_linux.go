package witness

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"incumbent.dev/incumbent/internal/apirequest"
)

// eofGrace is the minimum grace after the end of a connection. Other descriptors of the process may close slightly later.
const eofGrace = 100 * time.Millisecond

// Serve is the witness of all processes that connect to the socket at path, until ctx ends. The socket may be used by processes
// of the same user only, for terms of Options.Identity. An existing socket is replaced, unless another witness listens on it.
func Serve(ctx context.Context, path string, o Options) error {
	if o = o.withDefaults(); o.Identity == "" {
		return errors.New("the identity of the candidate is missing: set Options.Identity")
	}
	listener, err := listen(path)
	if err != nil {
		return fmt.Errorf("listen on socket %s: %w", path, err)
	}
	o.Logger.Info("witness is listening", "socket", path)
	open := &sessions{identity: o.Identity}
	var running sync.WaitGroup
	defer running.Wait()
	defer context.AfterFunc(ctx, func() { _ = listener.Close() })()
	for {
		conn, err := listener.AcceptUnix()
		switch {
		case err == nil:
			running.Go(func() { o.serve(ctx, conn, open) }) // closes conn, even if ctx has ended
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("listen on socket %s: %w", path, err)
		default: // for example too many open files
			o.Logger.Warn("failed to accept a connection", "err", err)
			_ = apirequest.Pause(ctx, maxRetry)
		}
	}
}

func (o Options) serve(ctx context.Context, conn *net.UnixConn, open *sessions) {
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	defer conn.Close()
	pid, err := peer(conn)
	if err != nil {
		o.Logger.Warn("rejecting a connection", "err", err)
		return
	}
	s, err := open.add(conn, int(pid))
	if err != nil {
		reject(conn, err, o)
		return
	}
	o.Logger.Info("process connected", "pid", pid)
	ended := s.receive(o)
	s.close()
	if ended && ctx.Err() == nil && len(s.terms) > 0 {
		o.Logger.Info("process has ended", "pid", pid, "terms", len(s.terms))
		o.release(ctx, s.terms, eofGrace)
	}
}

// peer returns the process at the other end. It must belong to the user of this process.
func peer(conn *net.UnixConn) (pid int32, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var peer *syscall.Ucred
	if ctrl := raw.Control(func(fd uintptr) {
		peer, err = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	}); ctrl != nil {
		return 0, ctrl
	}
	if err != nil {
		return 0, err
	}
	if own := os.Getuid(); int(peer.Uid) != own {
		return 0, fmt.Errorf("process %d belongs to user %d: only processes of user %d may register terms. Run both containers as the same user", peer.Pid, peer.Uid, own)
	}
	return peer.Pid, nil
}

// listen creates the socket. A socket that a previous witness left is removed.
func listen(path string) (*net.UnixListener, error) {
	address := &net.UnixAddr{Name: path, Net: "unixpacket"}
	switch info, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case info.Mode().Type() != fs.ModeSocket:
		return nil, fmt.Errorf("the path exists and is no socket (%v). Give another path", info.Mode().Type())
	default:
		if conn, err := net.DialUnix("unixpacket", nil, address); err == nil {
			_ = conn.Close()
			return nil, errors.New("another witness listens on it. Give another path")
		}
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	listener, err := net.ListenUnix("unixpacket", address)
	if errors.Is(err, syscall.EROFS) {
		err = fmt.Errorf("%w. Mount the volume without readOnly", err)
	}
	if err != nil {
		return nil, err
	}
	return listener, os.Chmod(path, 0o600)
}
