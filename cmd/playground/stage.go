package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	gatewayclient "sigs.k8s.io/gateway-api/pkg/client/clientset/versioned/typed/apis/v1"

	"incumbent.dev/incumbent/internal/testutil/certs"
	"incumbent.dev/incumbent/pilot/controllers/namespace"
	"incumbent.dev/incumbent/tests/cluster"
	"incumbent.dev/incumbent/tests/cluster/node"
)

// revisions of the control plane, in the order in which they are installed: the first is the default one.
func (set settings) revisions() []string {
	if set.coordinated { // the newer version is the one that comes later
		return []string{"canary", "stable"}
	}
	return []string{"stable", "canary"}
}

// replicas is how many a revision has, by its chart.
func (s *stage) replicas() int {
	if s.lawless {
		return 1
	}
	return 2
}

// readyLimit bounds the wait for replicas to be ready.
const readyLimit = time.Minute

// stage is a running cluster with the control plane on it.
type stage struct {
	settings
	screen  *screen
	cluster *cluster.Cluster
	node    *node.Node
	kube    kubernetes.Interface
	objects *objects
	watched *clusterView
	// gateways is nil without a sample, whose requests go to backend.
	gateways gatewayclient.GatewayV1Interface
	backend  string
	journal  *journal
	// bundle is the CA bundle that every namespace should carry, but for the excluded.
	bundle   string
	excluded map[string]bool
	// releases are those that helm was asked to install.
	releases []string
	// installed is when the first Deployment was about to be made.
	installed time.Time

	// stopNode ends the pods' processes, stopWatching all that only looks.
	stopNode, stopWatching context.CancelFunc
	pods, watchers         sync.WaitGroup
	// abandon ends the play because a part of the stage is broken.
	abandon context.CancelCauseFunc
}

// broken is why a part of the stage has ended by itself.
type broken struct{ error }

// raise starts everything. What it returns is to be ended even beside an error.
func raise(ctx context.Context, set settings, out *screen, abandon context.CancelCauseFunc) (*stage, error) {
	s := &stage{
		settings: set, screen: out, journal: &journal{}, abandon: abandon, excluded: map[string]bool{},
		stopNode: func() {}, stopWatching: func() {},
	}
	for _, name := range namespace.DefaultExcluded() {
		s.excluded[name] = true
	}
	if err := s.startCluster(ctx); err != nil {
		return s, err
	}
	if err := s.startSample(ctx); err != nil {
		return s, err
	}
	if err := s.startPods(ctx); err != nil {
		return s, err
	}
	return s, s.setUp(ctx)
}

func (s *stage) startCluster(ctx context.Context) error {
	if s.kubeconfig == "" {
		s.screen.print("Starting etcd, kube-apiserver and kube-controller-manager …\n")
	}
	began := time.Now()
	var err error
	options := cluster.Options{Assets: s.programs, External: s.kubeconfig, Services: true}
	if s.coordinated {
		options.APIServerArgs = []string{"--feature-gates=CoordinatedLeaderElection=true", "--runtime-config=coordination.k8s.io/v1beta1=true"}
	}
	s.cluster, err = cluster.Start(ctx, options)
	if err != nil {
		return err
	}
	if s.kube, err = kubernetes.NewForConfig(s.cluster.Admin()); err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	if s.kubeconfig == "" {
		s.screen.print(fmt.Sprintf("They are up after %s.\n", round(time.Since(began))))
	}
	watchCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stopWatching = stop
	s.watched, err = watchCluster(ctx, watchCtx, s.kube)
	return err
}

// startPods starts the node that runs pods as processes, and what listens to them.
func (s *stage) startPods(ctx context.Context) error {
	images := map[string]string{image: s.pilot}
	if s.coordinated {
		images[olderImage] = s.older
	}
	if s.dataplane != "" {
		images[anyProxy] = s.dataplane
	}
	var err error
	s.node, err = node.New(node.Options{
		Config: s.cluster.Admin(),
		Dir:    filepath.Join(s.cluster.Dir(), "pods"),
		Images: images,
		// So that Services have endpoints.
		PodNetwork: !s.cluster.External(),
		Logger:     slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx)
	nodeCtx, stop := context.WithCancel(ctx)
	s.stopNode = stop
	s.pods.Go(func() {
		if err := s.node.Run(nodeCtx); err != nil {
			s.abandon(broken{fmt.Errorf("the node has ended: %w", err)})
		}
	})
	watchCtx, stopWatching := context.WithCancel(ctx)
	s.stopWatching = both(s.stopWatching, stopWatching)
	listeners := &processes{pods: s.node.Pods, journal: s.journal, byUID: map[types.UID]*podProcess{}}
	s.watchers.Go(func() {
		if err := listeners.run(watchCtx); err != nil {
			s.abandon(broken{err})
		}
	})
	return nil
}

func both(first, second func()) func() {
	return func() { first(); second() }
}

// setUp puts the control plane into the cluster.
func (s *stage) setUp(ctx context.Context) error {
	authority, err := certs.NewAuthority("incumbent demo")
	if err != nil {
		return err
	}
	s.bundle = string(authority.PEM)
	file := filepath.Join(s.cluster.Dir(), "root-cert.pem")
	if err := os.WriteFile(file, authority.PEM, 0o600); err != nil {
		return fmt.Errorf("writing the CA bundle: %w", err)
	}
	client, err := dynamic.NewForConfig(s.cluster.Admin())
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	s.objects = &objects{client: client}
	if err := s.install(ctx, file); err != nil {
		return err
	}
	return s.putSample(ctx)
}

// awaitReady waits for all replicas of a number of revisions. It does not wait for processes that end
// again and again: their last words are the cause.
func (s *stage) awaitReady(ctx context.Context, revisions int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyLimit, fmt.Errorf("not within %v", readyLimit))
	defer cancel()
	var ends error
	err := s.watched.await(ctx, drawInterval, func(v view) (bool, string) {
		ready := 0
		for _, p := range v.pods {
			if p.ready {
				ready++
			}
		}
		if ends = s.endsAgain(); ends != nil {
			return true, ""
		}
		return ready == s.replicas()*revisions, fmt.Sprintf("%d of %d replicas are ready", ready, s.replicas()*revisions)
	})
	return errors.Join(ends, err)
}

// endsAgain is an error when a pod's process has ended twice without ever being ready.
func (s *stage) endsAgain() error {
	for _, p := range s.node.Pods() {
		if p.Restarts >= 2 && !p.Ready {
			return fmt.Errorf("the process of pod %s has ended %d times; the last lines of its log:\n%s", p.Name, p.Restarts, lastLines(p.Log))
		}
	}
	return nil
}

// lastLines is the end of a log, indented.
func lastLines(name string) string {
	const most = 5
	text, err := os.ReadFile(name)
	if err != nil {
		return "   " + err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return "   " + strings.Join(lines[max(0, len(lines)-most):], "\n   ")
}
