package leaderelection

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"

	k8sruntime "k8s.io/apimachinery/pkg/runtime"

	"incumbent.dev/incumbent/internal/testutil/locktest"
	"incumbent.dev/incumbent/internal/testutil/logs"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

// lockServer is an API server with only the locks.
type lockServer struct {
	objects, leases *locktest.Store
}

func inBubble(t *testing.T, f func(t *testing.T, s *lockServer)) {
	synctest.Test(t, func(t *testing.T) {
		objects := locktest.NewStore(locktest.ConfigMap)
		f(t, &lockServer{objects, objects.InSameEtcd(locktest.Lease)})
	})
}

// candidate is an election of one process, with a run function that records its calls.
type candidate struct {
	*LeaderElection
	client *locktest.Client // to the Lease
	old    *locktest.Client // to the ConfigMap
	log    logs.Buffer
	cancel context.CancelFunc
	ended  chan error

	mu     sync.Mutex
	live   bool
	terms  int
	token  uint64 // of the newest term
	events []string
}

func (a *candidate) Eventf(_ k8sruntime.Object, _, reason, _ string, _ ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.events = append(a.events, reason)
}

func (a *candidate) works() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.live
}

func (a *candidate) work(ctx context.Context) error {
	term, _ := k8sleaderelection.TermFromContext(ctx)
	a.mu.Lock()
	a.live = true
	a.terms++
	a.token = term.Token
	a.mu.Unlock()
	<-ctx.Done()
	a.mu.Lock()
	a.live = false
	a.mu.Unlock()
	return nil
}

// candidate returns an election that does not run yet.
func (s *lockServer) candidate(t *testing.T, name string, change ...func(*Config)) *candidate {
	t.Helper()
	a := &candidate{client: s.leases.Client(name), old: s.objects.Client(name), ended: make(chan error, 1)}
	k := playKube{configMaps: a.old, leases: a.client}
	cfg := Config{
		Namespace: locktest.Namespace, ElectionID: locktest.Name, Identity: name, Revision: "stable", Lock: LockTypeLease,
		LeaseDuration: playLease, RenewDeadline: playRenew, RetryPeriod: playRetry,
		LockClient: k, Logger: slog.New(slog.NewTextHandler(&a.log, nil)), EventRecorder: a, Clock: bubbleClock(),
	}
	for _, f := range change {
		f(&cfg)
	}
	l, err := New(playClient{kube: k}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	a.LeaderElection = l
	return a
}

// starts runs the election until the test ends or calls quits.
func (a *candidate) starts(t *testing.T) *candidate {
	ctx, cancel := context.WithCancel(t.Context())
	a.cancel = cancel
	go func() { a.ended <- a.RunContext(ctx) }()
	t.Cleanup(cancel)
	return a
}

func (a *candidate) quits() error {
	a.cancel()
	return <-a.ended
}

func (a *candidate) admits(t *testing.T) bool {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://play.invalid/api/v1/namespaces/default/configmaps", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := a.Gate().Transport(answering{}).RoundTrip(req)
	if err == nil {
		_ = resp.Body.Close()
	}
	return err == nil
}

type answering struct{}

func (answering) RoundTrip(req *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: req}, nil
}
