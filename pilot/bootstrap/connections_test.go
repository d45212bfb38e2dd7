package bootstrap

import (
	"context"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"

	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/fence/install"
)

// line passes TCP connections on to an API server, and counts them.
type line struct {
	listener net.Listener
	target   string
	all      sync.WaitGroup

	mu         sync.Mutex
	made, open int
}

// through is a configuration that reaches its API server by a line of its own.
func through(t *testing.T, config *rest.Config) (*rest.Config, *line) {
	t.Helper()
	at, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &line{listener: listener, target: at.Host}
	l.all.Go(l.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		l.all.Wait() // for the clients to close theirs, too
	})
	by := rest.CopyConfig(config)
	by.Host, by.ServerName = "https://"+listener.Addr().String(), at.Hostname() // which the certificate is for
	return by, l
}

func (l *line) accept() {
	for {
		client, err := l.listener.Accept()
		if err != nil {
			return
		}
		l.count(1, 1)
		l.all.Go(func() {
			defer l.count(0, -1)
			defer client.Close()
			server, err := net.Dial("tcp", l.target)
			if err != nil {
				return
			}
			l.all.Go(func() {
				_, _ = io.Copy(client, server)
				client.Close()
			})
			_, _ = io.Copy(server, client) // until the client closes it
			server.Close()
		})
	}
}

func (l *line) count(made, open int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.made, l.open = l.made+made, l.open+open
}

func (l *line) counted() (made, open int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.made, l.open
}

// A server that has ended has closed its connections: those of the work, and all others.
func TestAServerThatHasEndedHasNoConnections(t *testing.T) {
	t.Parallel()
	e := newEnvironment(t)
	config := e.config(t, "a")
	var to *line
	config.RESTConfig, to = through(t, config.RESTConfig)
	c := newController()
	r := start(t, config, c.rows())
	r.leads(t)
	own, _ := to.counted()
	if err := c.write(t.Context(), e.home, "written"); err != nil {
		t.Fatal(err)
	}
	if all, _ := to.counted(); own == 0 || all == own {
		t.Errorf("%d connections, %d after a controller's first write: the work has none of its own", own, all)
	}
	if err := r.end(); err != nil {
		t.Error(err)
	}
	await(t, "no connection is left", func() bool { _, open := to.counted(); return open == 0 })
}

// So has each of an administrator's commands, to every API server that it asks.
func TestACommandThatHasEndedHasNoConnections(t *testing.T) {
	t.Parallel()
	e := newEnvironment(t)
	here, one := through(t, e.cluster.Admin())
	there, other := through(t, e.cluster.Admin())
	config := install.Config{
		Elections:  FencedElections(Config{}),
		RESTConfig: here, Namespace: e.home, Revisions: []string{"stable"}, Lock: "lease", APIServers: []string{there.Host}, AllowUnclear: true, Wait: patience,
	}
	listed := config
	listed.APIServers, listed.Wait = nil, 0
	ctx, out := t.Context(), io.Discard
	defer func() {
		callCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		_ = config.Remove(callCtx, out)
	}()
	for _, command := range []struct {
		name  string
		run   func(context.Context, io.Writer) error
		asked int // API servers by these lines
	}{
		{"install", config.Install, 2},
		{"verify", config.Verify, 2},
		{"remove", config.Remove, 2},
		{"install, and not wait", listed.Install, 1},
		{"remove, as listed", listed.Remove, 1},
	} {
		before, _ := one.counted()
		otherBefore, _ := other.counted()
		if err := command.run(ctx, out); err != nil {
			t.Errorf("%s: %v", command.name, err)
		}
		after, _ := one.counted()
		otherAfter, _ := other.counted()
		if after == before || (otherAfter > otherBefore) != (command.asked == 2) {
			t.Errorf("%s has made %d and %d connections, to %d API servers", command.name, after-before, otherAfter-otherBefore, command.asked)
		}
		await(t, command.name+" leaves no connection", func() bool {
			_, open := one.counted()
			_, otherOpen := other.counted()
			return open+otherOpen == 0
		})
	}
}
