package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pkg/revisions"
)

// get returns a page of a server that is not running.
func get(t *testing.T, s *Server, path string) (code int, kind, text string) {
	t.Helper()
	recorder := httptest.NewRecorder()
	s.handler().ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, path, nil))
	return recorder.Code, recorder.Header().Get("Content-Type"), recorder.Body.String()
}

func TestPages_BeforeStart(t *testing.T) {
	s := mustNew(t, goodConfig(), nil)
	const plain = "text/plain; charset=utf-8"
	for path, want := range map[string]struct {
		code       int
		kind, text string
	}{
		"/":                {200, plain, "/debug/elections"},
		"/healthz":         {200, plain, "ok\n"},
		"/readyz":          {503, plain, errNotReached.Error()},
		"/metrics":         {200, "text/plain", `leader_election_master_status{name="istio-namespace-controller-election"} 0`},
		"/debug/elections": {200, "application/json", "[\n  {\n    \"namespace\": \"istio-system\",\n    \"name\": \"istio-namespace-controller-election\""},
		"/elsewhere":       {404, plain, ""},
	} {
		if code, kind, text := get(t, s, path); code != want.code || !strings.HasPrefix(kind, want.kind) || !strings.Contains(text, want.text) {
			t.Errorf("%s: %d, %s:\n%s", path, code, kind, text)
		}
	}
	if s.Address() != "" {
		t.Errorf("the server listens on %s", s.Address())
	}
}

func TestPages_Profiling(t *testing.T) {
	for _, profiling := range []bool{false, true} {
		config := goodConfig()
		config.Profiling = profiling
		s := mustNew(t, config, nil)
		for path, words := range map[string]string{"cmdline": os.Args[0], "": "goroutine", "symbol": "num_symbols", "trace?seconds=0.01": "go 1", "profile?seconds=1": ""} {
			code, _, text := get(t, s, "/debug/pprof/"+path)
			if found := code == http.StatusOK && strings.Contains(text, words); found != profiling {
				t.Errorf("profiling %v: %q answers %d", profiling, path, code)
			}
		}
		if _, _, text := get(t, s, "/"); strings.Contains(text, "/debug/pprof/") != profiling {
			t.Errorf("profiling %v: the index is\n%s", profiling, text)
		}
	}
}

// fakeWatcher is a watcher of the default revision with a fixed state.
type fakeWatcher struct {
	revisions.DefaultWatcher
	synced  bool
	problem error
}

func (w *fakeWatcher) HasSynced() bool { return w.synced }
func (w *fakeWatcher) Problem() error  { return w.problem }

func TestReady(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "x"}, "", errors.New("no"))
	for name, test := range map[string]struct {
		first   fakeWatcher
		ready   bool
		problem string
	}{
		"not synced":    {fakeWatcher{}, false, errNotReached.Error()},
		"fails":         {fakeWatcher{problem: errAway}, false, errAway.Error()},
		"invalid token": {fakeWatcher{problem: apierrors.NewUnauthorized("no")}, false, "no"},
		"synced":        {fakeWatcher{synced: true}, true, ""},
		"forbidden":     {fakeWatcher{problem: forbidden}, true, ""},
		"synced, fails": {fakeWatcher{synced: true, problem: errAway}, true, ""},
	} {
		s := mustNew(t, goodConfig(), nil)
		now := test.first
		s.watcher = &now
		if err := s.ready(); (err == nil) != test.ready || err != nil && (!errors.Is(err, errNotReached) || !strings.Contains(err.Error(), test.problem)) {
			t.Errorf("%s: %v", name, err)
		}
		now = fakeWatcher{problem: errAway}
		if err := s.ready(); (err == nil) != test.ready {
			t.Errorf("%s, then the API server fails: %v", name, err)
		}
		s.stopping.Store(true)
		if err := s.ready(); !errors.Is(err, errStopping) {
			t.Errorf("%s, then the server stops: %v", name, err)
		}
	}
}

func TestHealth_StuckController(t *testing.T) {
	t.Parallel()
	e := newEnvironment(t)
	config := e.config(t, "a")
	config.LeaseDuration = 3 * time.Second
	config.RenewDeadline = 1500 * time.Millisecond
	config.RetryPeriod = time.Second
	config.HealthTolerance = 100 * time.Millisecond
	c := newController()
	c.held = make(chan struct{})
	r := start(t, config, c.rows())
	<-c.began
	e.breakRecord(t)
	await(t, "the server is unhealthy", func() bool {
		code, text := r.page(t, "/healthz")
		return code == http.StatusServiceUnavailable && strings.Contains(text, "run functions")
	})
	if code, _ := r.page(t, "/readyz"); code != http.StatusOK {
		t.Errorf("/readyz answers %d", code)
	}
	close(c.held)
	await(t, "the server is healthy again", func() bool { code, _ := r.page(t, "/healthz"); return code == http.StatusOK })
}

func TestHTTPServerStop(t *testing.T) {
	for name, ends := range map[string]bool{"request ends": true, "request hangs": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			arrived := make(chan struct{})
			release := make(chan struct{})
			h := newHTTPServer("--address", "127.0.0.1:0", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				close(arrived)
				<-release
				fmt.Fprint(w, "answer")
			}), quiet)
			if h.address() != "" {
				t.Error("the server listens before listen")
			}
			harness.Must(t, h.listen())
			if limit := h.server.ReadHeaderTimeout; limit <= 0 || limit > headerTimeout {
				t.Errorf("the header may take %v", limit)
			}
			if ends {
				h.bound = time.Hour
			}
			ctx, cancel := context.WithCancel(t.Context())
			served := make(chan error, 1)
			answer := make(chan string, 1)
			go func() { served <- h.serve(ctx) }()
			go func() {
				_, text := harness.Page(t, h.address(), "/")
				answer <- text
			}()
			<-arrived
			cancel()
			if ends {
				await(t, "new connections are refused", func() bool {
					conn, err := net.Dial("tcp", h.address())
					if err == nil {
						conn.Close()
					}
					return errors.Is(err, syscall.ECONNREFUSED)
				})
				close(release)
			} else {
				defer close(release)
			}
			if err := <-served; err != nil {
				t.Errorf("serve returned %v", err)
			}
			if got := <-answer; (got == "answer") != ends {
				t.Errorf("got %q", got)
			}
		})
	}
}
