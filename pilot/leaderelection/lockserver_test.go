package leaderelection

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"

	k8sruntime "k8s.io/apimachinery/pkg/runtime"

	"incumbent.dev/incumbent/internal/testutil/apiserver"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/internal/testutil/lives"
	"incumbent.dev/incumbent/internal/testutil/locktest"
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
	lives.Recorder
	lives.Process
	old   *apiserver.Client // to the ConfigMap
	lease *apiserver.Client
	log   harness.Log
	token uint64 // of the newest term

	mu     sync.Mutex
	events []string
}

func (a *candidate) Eventf(_ k8sruntime.Object, _, reason, _ string, _ ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.events = append(a.events, reason)
}

func (a *candidate) Lives() (string, lives.Spans) { return a.cfg.Identity, a.Spans() }

func (a *candidate) work(ctx context.Context) error {
	term, _ := k8sleaderelection.TermFromContext(ctx)
	a.token = term.Token
	_, ended := a.Begin()
	<-ctx.Done()
	ended()
	return nil
}

// candidate returns an election that does not run yet.
func (s *lockServer) candidate(t *testing.T, name string, change ...func(*Config)) *candidate {
	t.Helper()
	a := &candidate{old: s.objects.Client(name), lease: s.leases.Client(name)}
	k := playKube{configMaps: a.old, leases: a.lease}
	cfg := Config{
		Namespace: locktest.Namespace, ElectionID: locktest.Name, Identity: name, Revision: "stable", Lock: LockTypeLease,
		LeaseDuration: playLease, RenewDeadline: playRenew, RetryPeriod: playRetry,
		LockClient: k, Logger: slog.New(slog.NewTextHandler(&a.log, nil)), EventRecorder: a, Clock: bubbleClock(),
	}
	for _, f := range change {
		f(&cfg)
	}
	l, err := New(playClient{kube: k}, cfg)
	harness.Must(t, err)
	a.LeaderElection = l
	return a
}

// starts runs the election until the test ends or calls Quit.
func (a *candidate) starts(t *testing.T) *candidate {
	a.Start(t.Context(), a.RunContext)
	t.Cleanup(func() { _ = a.Quit() })
	return a
}

func (a *candidate) admits(t *testing.T) bool {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://play.invalid/api/v1/namespaces/default/configmaps", http.NoBody)
	harness.Must(t, err)
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
