package witness

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"syscall"
)

const (
	// maxConnections is the maximum number of connections, and maxPeer of one process. All processes that this one does not see, because they are
	// in another PID namespace, count as one process.
	maxConnections = 128
	maxPeer        = 16
)

// session is the connection of one process.
type session struct {
	of       *sessions
	conn     *net.UnixConn
	pid      int  // of the process; 0 if this process does not see it
	checked  bool // each message has its sender. Messages of other processes than pid are ignored
	terms    terms
	rejected bool
}

// sessions are the open connections of a witness, the oldest first. mu guards their terms.
type sessions struct {
	identity string // of the terms; empty: any
	mu       sync.Mutex
	open     []*session
}

// add adds a connection. At a limit, it closes the oldest connection without a term.
func (a *sessions) add(conn *net.UnixConn, pid int) (*session, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	samePeer := func(s *session) bool { return s.pid == pid }
	each := func(*session) bool { return true }
	for _, limit := range []struct {
		most int
		of   func(*session) bool
	}{{maxPeer, samePeer}, {maxConnections, each}} {
		number, idle := 0, (*session)(nil)
		for _, s := range slices.Backward(a.open) {
			if limit.of(s) {
				number++
				if len(s.terms) == 0 {
					idle = s
				}
			}
		}
		if number < limit.most {
			continue
		}
		if idle == nil {
			return nil, fmt.Errorf("there are %d connections with terms already", number)
		}
		_ = idle.conn.Close()
		a.delete(idle)
	}
	s := &session{of: a, conn: conn, pid: pid, terms: terms{}}
	a.open = append(a.open, s)
	return s, nil
}

func (a *sessions) delete(s *session) {
	a.open = slices.DeleteFunc(a.open, func(other *session) bool { return other == s })
}

// close closes a connection. Another one may register its terms again.
func (s *session) close() {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	s.of.delete(s)
	_ = s.conn.Close()
}

// receive reads messages until the connection ends. ended reports whether the process closed it, and not this witness.
func (s *session) receive(o Options) (ended bool) {
	raw, from := make([]byte, maxMessage+1), make([]byte, syscall.CmsgSpace(syscall.SizeofUcred))
	for {
		n, length, _, _, err := s.conn.ReadMsgUnix(raw, from)
		if n <= 0 {
			// ReadMsgUnix returns EOF for the end of the connection. A closed socket of a process that has not read everything is a
			// reset.
			return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)
		}
		s.message(raw[:n], from[:length], o)
	}
}

// message processes one message. After an invalid one, it ignores all others.
func (s *session) message(raw, from []byte, o Options) {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	if s.rejected || s.checked && sender(from) != s.pid {
		return
	}
	err := s.terms.apply(raw, s.accepts)
	if len(raw) > maxMessage {
		err = fmt.Errorf("message is longer than %d bytes", maxMessage)
	}
	if err != nil {
		s.rejected = true
		clear(s.terms)
		reject(s.conn, err, o)
	}
}

func reject(conn net.Conn, err error, o Options) {
	o.Logger.Warn("rejecting the terms of a process; its leases expire as without a witness", "err", err)
	text, _ := json.Marshal(reply{Version: protocolVersion, Error: err.Error()}) // strings cannot fail
	_, _ = conn.Write(text)
}

// accepts returns an error for a term of another candidate, or of another live process.
func (s *session) accepts(r registration) error {
	// A coordinated candidate has the name of the lock in its identity (coordination.CandidateName).
	if own := s.of.identity; own != "" && r.Holder != own && r.Holder != own+"."+r.Name {
		return fmt.Errorf("holder %.253q is not %s, the candidate of this witness", r.Holder, s.of.identity)
	}
	for _, other := range s.of.open {
		if held, registered := other.terms[r.key()]; other != s && registered && held.UID == r.UID && held.Transitions == r.Transitions && held.Acquired == r.Acquired {
			return fmt.Errorf("another process (%d) has registered the term of lock %.253q", other.pid, r.Name)
		}
	}
	return nil
}

// sender returns the process that sent a message, from its control messages. 0 is unknown.
func sender(from []byte) int {
	all, _ := syscall.ParseSocketControlMessage(from)
	for _, m := range all {
		if process, err := syscall.ParseUnixCredentials(&m); err == nil {
			return int(process.Pid)
		}
	}
	return 0
}
