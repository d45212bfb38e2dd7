package k8sleaderelection_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	le "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock/locktest"
)

// The timing of the migration's electors.
const (
	moveLease = 10 * time.Second
	moveRenew = 6 * time.Second
	moveRetry = 1500 * time.Millisecond
)

var (
	moveSeeds = flag.Int("migration.seeds", 150, "how many random migrations to play")
	moveFirst = flag.Int("migration.first", 0, "the first seed")
)

// kindOf is by which objects a replica elects.
type kindOf int

const (
	primaryOnly kindOf = iota
	bothLocks
	secondaryOnly
)

func (k kindOf) String() string { return [...]string{"configmap", "both", "lease"}[k] }

// move is one random run of replicas in two neighbouring steps of a migration.
type move struct {
	t               *testing.T
	rand            *rand.Rand
	pair            locktest.Pair
	single          kindOf // the kind that takes part beside bothLocks
	twist           func(*k8sresourcelock.MultiLock) lockOf
	defaultRevision string
	logMu           sync.Mutex
	log             *strings.Builder
	calm            bool

	replicas  []*mover
	untouched time.Time // no process starts before: it would not know what was deleted
	started   time.Time

	mu         sync.Mutex
	live       map[string]int
	violations []string
	terms      int
}

// lockOf is what an elector needs of its lock.
type lockOf = locktest.Subject

// mover is one process of a replica.
type mover struct {
	m        *move
	name     string
	revision string
	kind     kindOf
	elector  *le.LeaderElector
	clients  []*locktest.Client
	cancel   context.CancelFunc
	done     chan struct{}
	dead     bool // guarded by m.mu: killed, so its function's end counts no more
	running  bool // guarded by m.mu
}

func (m *move) logf(format string, args ...any) {
	m.logMu.Lock()
	defer m.logMu.Unlock()
	fmt.Fprintf(m.log, "%v "+format+"\n", append([]any{time.Since(m.started)}, args...)...)
}

// start runs a process of that name.
func (m *move) start(name, revision string, kind kindOf) *mover {
	p := &mover{m: m, name: name, revision: revision, kind: kind, done: make(chan struct{})}
	var lock lockOf
	switch kind {
	case primaryOnly:
		l := m.pair.Primary.Lock(name, revision)
		lock, p.clients = l.Locker, []*locktest.Client{l.Client}
	case secondaryOnly:
		l := m.pair.Secondary.Lock(name, revision)
		lock, p.clients = l.Locker, []*locktest.Client{l.Client}
	case bothLocks:
		l := m.pair.Lock(name, revision)
		lock, p.clients = m.twist(l.MultiLock), []*locktest.Client{l.Primary.Client, l.Secondary.Client}
	}
	p.network(m.faults)
	elector, err := le.NewLeaderElector(le.LeaderElectionConfig{
		Lock: lock, LeaseDuration: moveLease, RenewDeadline: moveRenew, RetryPeriod: moveRetry,
		ReleaseOnCancel: true, Ranked: true, Name: name, Clock: bubbleClock(),
		Work:   []func(context.Context) error{p.work},
		Logger: slog.New(slog.NewTextHandler(&stamped{m}, nil)),
	})
	if err != nil {
		m.t.Fatal(err)
	}
	p.elector = elector
	elector.SetDefaultRevision(le.DefaultRevision{Synced: true, Revision: m.defaultRevision})
	ctx, cancel := context.WithCancel(m.t.Context())
	p.cancel = cancel
	go func() {
		defer close(p.done)
		_ = elector.Campaign(ctx) // a stuck drain would be an overlap, and is seen as that
	}()
	m.logf("start %s (%s, %v)", name, revision, kind)
	m.replicas = append(m.replicas, p)
	return p
}

type stamped struct{ m *move }

func (s *stamped) Write(b []byte) (int, error) {
	s.m.logf("%s", strings.TrimSpace(string(b)))
	return len(b), nil
}

// work is the run function: it must never be alive twice.
func (p *mover) work(ctx context.Context) error {
	m := p.m
	m.mu.Lock()
	for other, n := range m.live {
		if n > 0 {
			m.violations = append(m.violations, fmt.Sprintf("%v: %s started while %s runs", time.Since(m.started), p.name, other))
		}
	}
	m.live[p.name]++
	p.running = true
	m.terms++
	drain := time.Duration(m.rand.Int64N(int64(2 * time.Second)))
	m.logf("%s works", p.name)
	m.mu.Unlock()
	<-ctx.Done()
	after(drain)
	m.mu.Lock()
	defer m.mu.Unlock()
	if !p.dead {
		p.running = false
		m.live[p.name]--
		m.logf("%s has stopped", p.name)
	}
	return nil
}

// network has f decide on each request of the process.
func (p *mover) network(f func(locktest.Verb) locktest.Fault) {
	for _, c := range p.clients {
		c.SetFault(f)
	}
}

// faults is a network that is mostly quick, now and then slow, and loses things.
func (m *move) faults(locktest.Verb) locktest.Fault {
	m.mu.Lock()
	defer m.mu.Unlock()
	some := func(d time.Duration) time.Duration { return time.Duration(m.rand.Int64N(int64(d))) }
	f := locktest.Fault{Before: some(20 * time.Millisecond), After: some(20 * time.Millisecond)}
	if m.calm {
		return f
	}
	switch n := m.rand.IntN(100); {
	case n < 3:
		f.Lose = locktest.TheRequest
	case n < 7:
		f.Lose = locktest.TheReply
	case n < 9:
		f.Lose, f.Hang = locktest.TheReply, true
	case n < 15:
		f.Before, f.Arrives = some(4*time.Second), true
	case n < 20:
		f.After = some(3 * time.Second)
	}
	return f
}

func dark(locktest.Verb) locktest.Fault { return locktest.Fault{Hang: true} }

func (p *mover) cut(is bool) {
	for _, c := range p.clients {
		c.MuteWatches(is)
	}
	if is {
		p.network(dark)
	} else {
		p.network(p.m.faults)
	}
}

// kill ends the process without a word: nothing it does from now on counts or arrives.
func (p *mover) kill() {
	p.m.logf("kill %s", p.name)
	p.m.mu.Lock()
	p.dead = true
	if p.running {
		p.m.live[p.name]--
	}
	p.m.mu.Unlock()
	p.cut(true)
	p.cancel()
	p.m.forget(p)
}

// quit ends the process in order.
func (p *mover) quit() {
	p.m.logf("quit %s", p.name)
	p.cancel()
	p.m.forget(p)
	<-p.done
	p.m.logf("%s has quit", p.name)
}

func (m *move) forget(p *mover) {
	for i, r := range m.replicas {
		if r == p {
			m.replicas = append(m.replicas[:i:i], m.replicas[i+1:]...)
			return
		}
	}
}

func (m *move) pick() *mover { return m.replicas[m.intn(len(m.replicas))] }

func (m *move) intn(n int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rand.IntN(n)
}

func (m *move) kind() kindOf {
	if m.intn(2) == 0 {
		return bothLocks
	}
	return m.single
}
