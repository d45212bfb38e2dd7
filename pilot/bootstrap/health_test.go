package bootstrap

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/atomic"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/pkg/revisions"
	"incumbent.dev/incumbent/tests/cluster"
)

// healthFollowsStuckWork: healthy while the work may go on, unhealthy while it goes on
// although its lease is long over, healthy once it has ended.
func healthFollowsStuckWork(t *testing.T, e *environment) {
	config := e.config(t, "a")
	config.LeaseDuration, config.RenewDeadline, config.RetryPeriod = 3*time.Second, 1500*time.Millisecond, 500*time.Millisecond
	config.healthTolerance = 100 * time.Millisecond
	c := newController()
	c.held = make(chan struct{})
	r := start(t, config, c.rows())
	r.leads(t)
	if code, text := r.page(t, "/healthz"); code != http.StatusOK || text != "ok\n" {
		t.Errorf("a leader answers %d: %s", code, text)
	}
	e.breakRecord(t)
	await(t, "it is unhealthy", func() bool {
		code, text := r.page(t, "/healthz")
		return code == http.StatusServiceUnavailable && strings.Contains(text, "run functions are still alive")
	})
	if code, _ := r.page(t, "/readyz"); code != http.StatusOK {
		t.Errorf("/readyz says %d: it has nothing to do with that", code)
	}
	if r.lines.Count("level=ERROR", "outstayed the drain limit") != 1 {
		t.Error("the log does not say that the controller has outstayed the drain limit")
	}
	close(c.held)
	await(t, "it is healthy again", func() bool { code, _ := r.page(t, "/healthz"); return code == http.StatusOK })
}

var errAway = errors.New("connection refused, says the test")

// away has a configuration's requests fail while the returned value is true.
func away(config *rest.Config) *atomic.Bool {
	gone := atomic.NewBool(true)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			if gone.Load() {
				return nil, errAway
			}
			return next.RoundTrip(req)
		})
	})
	return gone
}

// Not ready until the API server has let the process in; from then on, until the stop.
func TestReadiness(t *testing.T) {
	t.Parallel()
	e := newEnvironment(t)
	config := e.config(t, "a")
	gone := away(config.RESTConfig)
	c := newController()
	c.held = make(chan struct{})
	r := start(t, config, c.rows())
	ready := func(want int, words string) func() bool {
		return func() bool {
			code, text := r.page(t, "/readyz")
			return code == want && strings.Contains(text, words)
		}
	}
	await(t, "it says why it is not ready", ready(503, errAway.Error()))
	await(t, "the log says it too", func() bool { return r.lines.Count("level=WARN", "API server does not answer") == 1 })
	if !ready(503, errNotReached.Error())() {
		t.Error("ready, although the API server was never reached")
	}
	if code, text := r.page(t, "/healthz"); code != http.StatusOK {
		t.Errorf("restarting would not help, and it is unhealthy: %s", text)
	}
	gone.Store(false)
	await(t, "it is ready", ready(200, "ok"))
	r.leads(t)
	gone.Store(true)
	await(t, "it sees that the API server is away", func() bool { return r.lines.Count("level=WARN", errAway.Error()) >= 2 })
	if !ready(200, "ok")() {
		t.Error("not ready any more, because the API server is away")
	}
	gone.Store(false)
	stopped := make(chan error, 1)
	go func() { stopped <- r.end() }()
	await(t, "it is not ready while it stops", ready(503, errStopping.Error()))
	if code, text := r.page(t, "/healthz"); code != http.StatusOK {
		t.Errorf("not healthy while it stops: %s", text)
	}
	close(c.held)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// A server that may not read the default revision was let in all the same, and elects. It stays
// ready when the API server goes away.
func TestReadyWithoutTheRightToReadTheDefaultRevision(t *testing.T) {
	t.Parallel()
	e := newEnvironment(t)
	config := e.config(t, "a")
	config.RESTConfig = e.cluster.Identity(t, cluster.IdentityOptions{
		Namespace: e.home, PodName: "b", ServiceAccount: "other", Rules: e.rules(),
	})
	gone := away(config.RESTConfig)
	gone.Store(false)
	r := start(t, config, newController().rows())
	await(t, "it is ready", func() bool { code, _ := r.page(t, "/readyz"); return code == http.StatusOK })
	r.leads(t)
	if r.lines.Count("level=WARN", "permission is missing") == 0 {
		t.Error("the log does not say that the permission is missing")
	}
	gone.Store(true)
	reporter, _ := r.watcher.(revisions.Reporter)
	await(t, "it sees that the API server is away", func() bool { return errors.Is(reporter.Problem(), errAway) })
	if code, text := r.page(t, "/readyz"); code != http.StatusOK {
		t.Errorf("not ready any more, because the API server is away: %s", text)
	}
	gone.Store(false)
}

// Whoever the API server does not know is not ready.
func TestNotReadyWithATokenThatIsNone(t *testing.T) {
	t.Parallel()
	e := newEnvironment(t)
	config := e.config(t, "a")
	config.RESTConfig.BearerToken = "none"
	r := start(t, config, newController().rows())
	await(t, "it says why it is not ready", func() bool {
		code, text := r.page(t, "/readyz")
		return code == http.StatusServiceUnavailable && strings.Contains(text, "Unauthorized")
	})
}

// What several servers of one process tell is each one's own.
func TestMetricsAreTheServersOwn(t *testing.T) {
	t.Parallel()
	e := newEnvironment(t)
	leads := `leader_election_master_status{name="` + electionID + `"}`
	a := start(t, e.config(t, "a"), newController().rows())
	a.leads(t)
	b := start(t, e.config(t, "b"), newController().rows())
	await(t, "b follows", func() bool { return b.election(t).LeaderIdentity == "a" })
	if one, other := a.metric(t, leads), b.metric(t, leads); one != "1" || other != "0" {
		t.Errorf("a leads: %s, b leads: %s", one, other)
	}
	if err := a.end(); err != nil {
		t.Error(err)
	}
	await(t, "b leads", func() bool { return b.metric(t, leads) == "1" })
	began := `incumbent_election_transitions_total{change="began",name="` + electionID + `",reason=`
	if free := b.metric(t, began+`"lock-free"}`); free != "1" {
		_, text := b.page(t, "/metrics")
		t.Errorf("b did not get a lock that was free:\n%s", text)
	}
	build := ReadBuild()
	if _, text := b.page(t, "/metrics"); !strings.Contains(text, `incumbent_build_info{goversion="`+build.Go+`"`) {
		t.Error("no incumbent_build_info")
	}
}

// What the page says of an election is what the lock says, and what the metrics say.
func TestElectionsPage(t *testing.T) {
	t.Parallel()
	e := newEnvironment(t)
	first := start(t, e.config(t, "first"), newController().rows())
	first.leads(t)
	if err := first.end(); err != nil {
		t.Fatal(err)
	}
	config := e.config(t, "second")
	config.Revision = "canary"
	r := start(t, config, newController().rows())
	r.leads(t)
	await(t, "it knows that there is no default revision", func() bool { return r.election(t).DefaultRevision != nil })
	record, _ := e.configMapRecord(t)
	now := r.election(t)
	if now.Since == nil || *now.DefaultRevision != "" {
		t.Errorf("since %v, default revision %q", now.Since, *now.DefaultRevision)
	}
	if n, err := strconv.ParseFloat(r.metric(t, "incumbent_election_term_token{name=\""+electionID+"\"}"), 64); err != nil || strconv.FormatFloat(n, 'f', -1, 64) != now.Token {
		t.Errorf("the token is %v, %v, and the page says %s", n, err, now.Token)
	}
	if n := r.metric(t, "incumbent_election_term_transitions{name=\""+electionID+"\"}"); n != strconv.Itoa(record.LeaderTransitions) || now.Transitions != record.LeaderTransitions || n == "0" {
		t.Errorf("%s terms by metric, %d by the page, %d by the lock", n, now.Transitions, record.LeaderTransitions)
	}
	now.Since, now.DefaultRevision, now.Token, now.Transitions = nil, nil, "", 0
	want := electionState{
		ID: electionID, Namespace: e.home, Lock: electionID, LockType: "configmap", Phase: "leading", Reason: now.Reason, Leading: true,
		Identity: "second", Key: "canary", LeaderIdentity: "second", LeaderKey: "canary",
	}
	if now != want || now.Reason == "" {
		t.Errorf("got %+v\nwant %+v", now, want)
	}
}

// A controller that fails is logged in one line, and another replica gets its chance.
func TestFailedControllerIsLoggedInOneLine(t *testing.T) {
	t.Parallel()
	e := newEnvironment(t)
	failing := newController()
	a := start(t, e.config(t, "a"), failing.rows())
	a.leads(t)
	b := start(t, e.config(t, "b"), newController().rows())
	await(t, "b follows", func() bool { return b.election(t).LeaderIdentity == "a" })
	failing.fails <- errors.New("no disk")
	b.leads(t)
	if a.lines.Count("level=ERROR", "run function ended", `err="no disk"`) != 1 {
		t.Error("the failure was not logged")
	}
	if n := a.lines.Count("occurred"); n > 0 {
		t.Errorf("%d lines have a list of errors in them", n)
	}
}
