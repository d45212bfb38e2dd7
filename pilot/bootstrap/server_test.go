package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/tests/cluster"
)

func TestServerParts(t *testing.T) {
	config := goodConfig()
	config.StopLimit = 7 * time.Second
	config.Fence = true
	config.DebugAddress = "127.0.0.1:0"
	config.RemoteKubeconfig = filepath.Join(t.TempDir(), "remote")
	harness.Must(t, cluster.WriteKubeconfig(config.RemoteKubeconfig, &rest.Config{Host: "https://10.0.0.2:6443"}, ""))
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
	if mustNew(t, goodConfig(), nil).fence != nil {
		t.Error("a self-test without a fence")
	}
}

func TestServerEnd(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	harness.Must(t, err)
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
		config.Disabled = true
		config.Logger = slog.New(slog.NewTextHandler(text, nil))
		config.RESTConfig = answered(away)
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

// A server does not take part twice in the elections of its own cluster.
func TestServerRemoteCluster_IsOwn(t *testing.T) {
	config := goodConfig()
	config.RemoteKubeconfig = filepath.Join(t.TempDir(), "own")
	harness.Must(t, cluster.WriteKubeconfig(config.RemoteKubeconfig, config.RESTConfig, ""))
	if _, err := New(config); !errors.Is(err, errOwnCluster) {
		t.Errorf("the own cluster as the remote cluster: %v", err)
	}
}

func TestFailedController_IsLogged(t *testing.T) {
	var log harness.Log
	wrong := errors.New("no disk")
	run := logged(slog.New(slog.NewTextHandler(&log, nil)), func(context.Context) error { return wrong })
	if err := run(t.Context()); !errors.Is(err, wrong) || log.Count("run function started") != 1 || log.Count("level=ERROR", "run function ended", `err="no disk"`) != 1 {
		t.Errorf("error %v, log:\n%s", err, &log)
	}
}

// A witness connects to the API server of each lock, in any order.
func TestWitness_ConnectsToEachCluster(t *testing.T) {
	config := Config{RESTConfig: &rest.Config{Host: "https://10.0.0.1:6443"}, RemoteKubeconfig: filepath.Join(t.TempDir(), "remote")}
	harness.Must(t, cluster.WriteKubeconfig(config.RemoteKubeconfig, &rest.Config{Host: "https://10.0.0.2:6443"}, ""))
	connect := config.witnessOptions().Connect
	for _, name := range []string{"", remoteLabel, ""} {
		want := map[string]string{"": "https://10.0.0.1:6443", remoteLabel: "https://10.0.0.2:6443"}[name]
		if got, err := connect(name); err != nil || got.Host != want {
			t.Errorf("cluster %q: %v, %v, want %s", name, got, err, want)
		}
	}
}
