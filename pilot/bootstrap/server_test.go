package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/tests/cluster"
)

func TestServerParts(t *testing.T) {
	config := goodConfig()
	config.ShutdownTimeout = 7 * time.Second
	config.Fence = true
	config.DebugAddress = "127.0.0.1:0"
	config.RemoteKubeconfig = filepath.Join(t.TempDir(), "remote")
	if err := cluster.WriteKubeconfig(config.RemoteKubeconfig, &rest.Config{Host: "https://10.0.0.2:6443"}, ""); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range mustNew(t, config, nil).parts() {
		got = append(got, fmt.Sprint(p.name, " ", p.bound))
	}
	want := []string{
		"HTTP server 7s", "elections page 7s",
		"event recorder 7s", "default revision watcher 5s", "fence self-test 5s", "lock type check 5s", "member Lease 7s", "candidate watcher 5s", "tag watcher 5s",
		"event recorder of the remote cluster 7s", "default revision watcher of the remote cluster 5s", "lock type check of the remote cluster 5s",
		"member Lease of the remote cluster 7s", "candidate watcher of the remote cluster 5s",
		"elections 17s",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestServerEnd(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for name, test := range map[string]struct {
		address, wrong string
		closed         bool
	}{
		"canceled":          {"127.0.0.1:0", "", true},
		"address is in use": {taken.Addr().String(), "give another --address", false},
	} {
		config := goodConfig()
		text := &harness.Log{}
		config.Address = test.address
		config.DisableElections = true
		config.Logger = slog.New(slog.NewTextHandler(text, nil))
		config.RESTConfig = answered(func(*http.Request) (*http.Response, error) { return nil, errAway })
		c := newController()
		s := mustNew(t, config, c.rows())
		ctx, cancel := context.WithCancelCause(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		if test.wrong == "" {
			<-c.began
			cancel(errors.New("canceled by the test"))
		}
		err := <-ended
		cancel(nil)
		if (err == nil) != (test.wrong == "") || err != nil && (!strings.Contains(err.Error(), test.wrong) || !strings.Contains(err.Error(), "server pilot-a: ")) {
			t.Errorf("%s: Run returned %v", name, err)
		}
		if c.closed != test.closed || !errors.Is(s.ready(), errStopping) {
			t.Errorf("%s: the controller is closed: %v, ready: %v", name, c.closed, s.ready())
		}
		if test.wrong == "" && text.Count("stopping", "canceled by the test") != 1 {
			t.Errorf("%s: the cause is not in the log\n%s", name, text)
		}
	}
}

func TestServerClients(t *testing.T) {
	config := goodConfig()
	config.QPS = 3
	config.Burst = 4
	s := mustNew(t, config, newController().rows())
	if s.events.client != s.own {
		t.Error("Events use the client of the controllers")
	}
	own := s.own.RESTConfig()
	work := s.work.RESTConfig()
	if own.QPS >= 0 || work.QPS != 3 || work.Burst != 4 || own.UserAgent != userAgent || work.UserAgent != userAgent {
		t.Errorf("limits are %v, and %v, %d of %q and %q", own.QPS, work.QPS, work.Burst, own.UserAgent, work.UserAgent)
	}
}

// TestServerRemoteCluster uses a remote cluster that answers no request. tests/integration/controllers uses a real one.
func TestServerRemoteCluster(t *testing.T) {
	t.Parallel()
	e := newEnvironment(t)
	listed := make(chan struct{}, 1000)
	remote := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/namespaces") {
			select {
			case listed <- struct{}{}:
			default:
			}
		}
		http.Error(w, "not now", http.StatusServiceUnavailable)
	}))
	t.Cleanup(remote.Close)
	config := e.config(t, "a")
	config.RemoteKubeconfig = filepath.Join(t.TempDir(), "remote")
	if err := cluster.WriteKubeconfig(config.RemoteKubeconfig, &rest.Config{Host: remote.URL}, ""); err != nil {
		t.Fatal(err)
	}
	config.ExcludedNamespaces = []string{"default"}
	r := start(t, config, table[:1])
	r.leads(t)
	<-listed
	states := r.states(t)
	if len(states) != 2 || states[0].Cluster != "" || states[0].Key != "stable" || states[1].Cluster != "remote" || states[1].Key != "^stable" || states[1].Leading {
		t.Errorf("the elections are %+v", states)
	}
	sample := `{cluster="remote",name="` + leaderelection.NamespaceController + `"}`
	if got := r.metric(t, "leader_election_master_status"+sample); got != "0" {
		t.Errorf("the metric of the remote election is %q", got)
	}
	if code, text := r.page(t, "/readyz"); code != http.StatusOK {
		t.Errorf("not ready: %s", text)
	}
	r.stop(t)
	config.RemoteKubeconfig = filepath.Join(t.TempDir(), "own")
	if err := cluster.WriteKubeconfig(config.RemoteKubeconfig, config.RESTConfig, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := New(config); !errors.Is(err, errOwnCluster) {
		t.Errorf("the own cluster as the remote cluster: %v", err)
	}
}

func TestServerStop_StuckController(t *testing.T) {
	t.Parallel()
	e := newEnvironment(t)
	config := e.config(t, "a")
	config.ShutdownTimeout = time.Second
	c := newController()
	c.held = make(chan struct{})
	r := start(t, config, c.rows())
	r.leads(t)
	stopped := time.Now()
	ended := make(chan error, 1)
	go func() { ended <- r.end() }()
	var err error
	select {
	case err = <-ended:
		if took := time.Since(stopped); took < config.ShutdownTimeout || took >= defaultShutdownTimeout {
			t.Errorf("the server stopped after %v", took)
		}
	case <-time.After(patience):
	}
	close(c.held)
	if !errors.Is(err, k8sleaderelection.ErrStuckDrain) || strings.Contains(err.Error(), "\n") {
		t.Errorf("Run returned %v", err)
	}
	if !c.closed {
		t.Error("the controller was not closed")
	}
}

func TestFailedController_IsLogged(t *testing.T) {
	t.Parallel()
	e := newEnvironment(t)
	failing := newController()
	r := start(t, e.config(t, "a"), failing.rows())
	<-failing.began
	failing.fails <- errors.New("no disk")
	await(t, "the failure is logged", func() bool { return r.lines.Count("level=ERROR", "run function ended", `err="no disk"`) == 1 })
	if n := r.lines.Count("occurred"); n > 0 {
		t.Errorf("%d lines contain a list of errors", n)
	}
}

// A witness connects to the API server of each lock, in any order.
func TestWitness_ConnectsToEachCluster(t *testing.T) {
	config := Config{RESTConfig: &rest.Config{Host: "https://10.0.0.1:6443"}, RemoteKubeconfig: filepath.Join(t.TempDir(), "remote")}
	if err := cluster.WriteKubeconfig(config.RemoteKubeconfig, &rest.Config{Host: "https://10.0.0.2:6443"}, ""); err != nil {
		t.Fatal(err)
	}
	connect := config.witnessOptions().Connect
	for _, name := range []string{"", remoteLabel, ""} {
		want := map[string]string{"": "https://10.0.0.1:6443", remoteLabel: "https://10.0.0.2:6443"}[name]
		if got, err := connect(name); err != nil || got.Host != want {
			t.Errorf("cluster %q: %v, %v, want %s", name, got, err, want)
		}
	}
}
