package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pkg/kube"
	"incumbent.dev/incumbent/tests/cluster"
)

// What a server is made of, each with the time that it has to end: together they stay within a
// Deployment's grace period.
func TestPartsOfAServer(t *testing.T) {
	config := goodConfig()
	config.ShutdownTimeout = 7 * time.Second
	const grace = 5 * time.Second
	type want struct {
		name, run, start string
		bound            time.Duration
	}
	of := func(where string) []want {
		all := []want{
			{"the recorder of events" + where, "(*events).run", "", 2*time.Second + grace},
			{"the watcher of the default revision" + where, "(*site).watch", "", grace},
			{"the look-out for other locks" + where, "(*otherLocks).run", "", grace},
		}
		if where == "" { // no fence knows the pods of another cluster
			all = append(all, want{"the fence's self-test", "(*SelfTest).Run", "", grace})
		}
		return append(all, want{"the member Lease" + where, "(*Publisher).Run", "", 2*time.Second + grace})
	}
	first, last := want{"the HTTP server", "(*httpServer).serve", "(*Server).listen", 2*time.Second + grace}, want{"the elections", "(*Server).campaign", "", 7*time.Second + 2*grace}
	called := func(function any) string {
		value := reflect.ValueOf(function)
		if value.IsNil() {
			return ""
		}
		name := runtime.FuncForPC(value.Pointer()).Name()
		return strings.TrimSuffix(name[strings.LastIndex(name, ".(")+1:], "-fm")
	}
	home := append(of(""), want{"the watcher of tags", "(*tags).run", "", grace}) // which the remote cluster's controllers do not ask for
	for remote, all := range map[string][]want{
		"":                      slices.Concat([]want{first}, home, []want{last}),
		"https://10.0.0.2:6443": slices.Concat([]want{first}, home, of(" of the remote cluster"), []want{last}),
	} {
		if remote != "" {
			config.RemoteKubeconfig = filepath.Join(t.TempDir(), "remote")
			if err := cluster.WriteKubeconfig(config.RemoteKubeconfig, &rest.Config{Host: remote}, ""); err != nil {
				t.Fatal(err)
			}
		} else {
			config.RemoteKubeconfig = ""
		}
		config.Fence = true
		s, err := New(config)
		if err != nil {
			t.Fatal(err)
		}
		got := s.parts()
		if len(got) != len(all) {
			t.Fatalf("%d parts", len(got))
		}
		for i, w := range all {
			if p := got[i]; p.name != w.name || p.bound != w.bound || called(p.run) != w.run || called(p.start) != w.start {
				t.Errorf("part %d is %s by %s, %s within %v; want %+v", i, p.name, called(p.start), called(p.run), p.bound, w)
			}
		}
	}
}

// Each duration that is negative is named, with its value.
func TestNegativeDurationsAreNamed(t *testing.T) {
	config := goodConfig()
	config.LeaseDuration, config.RenewDeadline, config.RetryPeriod, config.ShutdownTimeout, config.Burst = -1, -2, -3, -4, -5
	err := config.Validate()
	for _, words := range []string{
		"--lease-duration=-1ns is negative", "--renew-deadline=-2ns is negative", "--retry-period=-3ns is negative",
		"--shutdown-timeout=-4ns is negative", "--kube-burst=-5 is negative",
	} {
		if err == nil || strings.Count(err.Error(), words) != 1 {
			t.Errorf("%q is not in %v", words, err)
		}
	}
	config.LeaseDuration, config.RenewDeadline, config.RetryPeriod, config.ShutdownTimeout, config.Burst = 0, 0, 0, 0, 0
	if err := config.Validate(); err != nil {
		t.Errorf("zero stands for the defaults: %v", err)
	}
}

// Pages say what they are, and only pages that were asked for profile the process.
func TestWhatPagesAre(t *testing.T) {
	for _, profiling := range []bool{false, true} {
		config := goodConfig()
		config.Profiling = profiling
		s, err := New(config)
		if err != nil {
			t.Fatal(err)
		}
		for path, want := range map[string]string{
			"/": "text/plain; charset=utf-8", "/healthz": "text/plain; charset=utf-8", "/readyz": "text/plain; charset=utf-8",
			"/debug/elections": "application/json",
		} {
			recorder := httptest.NewRecorder()
			s.handler().ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, path, nil))
			if kind := recorder.Header().Get("Content-Type"); kind != want {
				t.Errorf("%s is %q", path, kind)
			}
			if path == "/readyz" && (recorder.Body.String() != errNotReached.Error()+"\n" || recorder.Code != http.StatusServiceUnavailable) {
				t.Errorf("%d, %q", recorder.Code, recorder.Body)
			}
			if path == "/debug/elections" && !strings.HasPrefix(recorder.Body.String(), "[\n  {\n    \"id\"") {
				t.Errorf("people cannot read\n%s", recorder.Body)
			}
		}
		for path, words := range map[string]string{"cmdline": os.Args[0], "": "goroutine", "symbol": "num_symbols"} {
			code, text := get(t, s, "/debug/pprof/"+path)
			if found := code == http.StatusOK && strings.Contains(text, words); found != profiling {
				t.Errorf("profiling %v: %q answers %d", profiling, path, code)
			}
		}
		if _, text := get(t, s, "/"); strings.Contains(text, "/debug/pprof/") != profiling {
			t.Errorf("profiling %v, and the index says\n%s", profiling, text)
		}
	}
}

// Every word of an election's state comes from the one field that it is named after.
func TestStateOfAnElection(t *testing.T) {
	since := time.Now()
	got := stateOf(leaderelection.Status{
		ElectionID: "id", Namespace: "ns", Lock: "lock", LockType: "kind", Identity: "me", Key: "key", Phase: "phase", Reason: "why",
		Leading: true, Holder: "you", HolderKey: "your-key", Transitions: 7, Token: "9", Since: since, Default: "rev", DefaultKnown: true,
	})
	revision := "rev"
	want := electionState{
		ID: "id", Namespace: "ns", Lock: "lock", LockType: "kind", Phase: "phase", Reason: "why", Since: &since, Leading: true,
		Identity: "me", Key: "key", LeaderIdentity: "you", LeaderKey: "your-key", Transitions: 7, Token: "9", DefaultRevision: &revision,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	if empty := stateOf(leaderelection.Status{Default: "rev"}); !reflect.DeepEqual(empty, electionState{}) {
		t.Errorf("of nothing it says %+v", empty)
	}
}

// A configuration of which no client can be made is New's error, whichever client it is.
func TestNoClient(t *testing.T) {
	config := goodConfig()
	config.RESTConfig = &rest.Config{Host: "https://%zz"}
	if s, err := New(config); err == nil || s != nil || !strings.Contains(err.Error(), "%zz") {
		t.Errorf("%v, %v", s, err)
	}
	config = goodConfig()
	wrong := errors.New("no controller")
	rows := newController().rows()
	rows[0].guards = func(kube.Client, Config, tools) (job, error) { return nil, wrong }
	if s, err := newServer(config, rows); !errors.Is(err, wrong) || s != nil {
		t.Errorf("%v, %v", s, err)
	}
}

// Only a lock that goes by --lock may be of the other kind elsewhere. What is always a Lease has no right to a ConfigMap.
func TestWhichLocksMayBeOfAnotherKind(t *testing.T) {
	config := goodConfig()
	config.RESTConfig = answered(func(*http.Request) (*http.Response, error) { return nil, errAway })
	first, always := newController().rows()[0], newController().rows()[0]
	always.id, always.lease = "always-a-lease", true
	s, err := newServer(config, []election{first, always})
	if err != nil {
		t.Fatal(err)
	}
	if all := s.others.elections; len(all) != 1 || all[0].Status().Lock != electionID {
		t.Errorf("%d elections are looked after", len(all))
	}
}

// The look-out for other locks looks at its start, when it is woken and, while there is something
// to see, at the elections' pace; for a lock of both kinds, or without elections, never.
func TestWhenOtherLocksAreLookedFor(t *testing.T) {
	for name, test := range map[string]struct {
		change  func(*Config)
		away    bool
		looks   int // within ten minutes and a second
		retries time.Duration
	}{
		"nothing to see": {func(*Config) {}, false, 1, leaderelection.DefaultRetryPeriod},
		"nobody answers": {func(*Config) {}, true, 1 + int(10*time.Minute/leaderelection.DefaultRetryPeriod), leaderelection.DefaultRetryPeriod},
		"at another pace": {func(c *Config) {
			c.RetryPeriod = time.Minute
			c.RenewDeadline = 2 * time.Minute
			c.LeaseDuration = time.Hour
		}, true, 11, time.Minute},
		"a lock of both kinds": {func(c *Config) { c.Lock = "multi" }, true, 0, 0},
		"no elections":         {func(c *Config) { c.DisableElections = true }, true, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				config := goodConfig()
				test.change(&config)
				var looked atomic.Int64
				config.RESTConfig = answered(func(r *http.Request) (*http.Response, error) {
					looked.Add(1)
					if test.away {
						return nil, errAway
					}
					return failed(r, apierrors.NewNotFound(schema.GroupResource{Resource: "leases"}, "x"))
				})
				config.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
				s, err := newServer(config, newController().rows())
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- s.others.run(ctx) }()
				time.Sleep(10*time.Minute + time.Second)
				synctest.Wait()
				if looks := int(looked.Load()); looks != test.looks {
					t.Errorf("looked %d times, not %d", looks, test.looks)
				}
				s.others.wake.nudge()
				synctest.Wait()
				if woken := int(looked.Load()) - test.looks; woken != min(1, test.looks) {
					t.Errorf("woken, it looked %d times", woken)
				}
				began := time.Now()
				cancel()
				if err := <-ended; err != nil || time.Since(began) > 0 {
					t.Errorf("it ended after %v with %v", time.Since(began), err)
				}
			})
		})
	}
}

// A row whose kinds are missing looks for them every few seconds, says so once, and says once that
// they have come; what cannot be found out counts as known, and is for the caches to report.
func TestHowKindsAreWaitedFor(t *testing.T) {
	kinds := []schema.GroupVersionResource{{Group: "x.y", Version: "v1", Resource: "widgets"}, {Version: "v1", Resource: "pods"}, {Group: "x.y", Version: "v1", Resource: "parts"}}
	lists := func(names ...string) func(r *http.Request) (*http.Response, error) {
		return func(r *http.Request) (*http.Response, error) {
			all := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}}
			for _, name := range names {
				all.APIResources = append(all.APIResources, metav1.APIResource{Name: name})
			}
			return jsonAnswer(r, all)
		}
	}
	none := func(r *http.Request) (*http.Response, error) {
		return failed(r, apierrors.NewNotFound(schema.GroupResource{Group: "x.y"}, "v1"))
	}
	away := func(*http.Request) (*http.Response, error) { return nil, errAway }
	for name, test := range map[string]struct {
		answers []func(r *http.Request) (*http.Response, error) // of the group, look by look
		missing string
		took    time.Duration
	}{
		"all are there":       {[]func(r *http.Request) (*http.Response, error){lists("widgets", "parts")}, "", 0},
		"nobody answers":      {[]func(r *http.Request) (*http.Response, error){away}, "", 0},
		"the group is not":    {[]func(r *http.Request) (*http.Response, error){none, none, lists("parts", "widgets")}, "[widgets.x.y parts.x.y]", 10 * time.Second},
		"one of two is not":   {[]func(r *http.Request) (*http.Response, error){lists("parts"), lists("parts", "widgets")}, "[widgets.x.y]", 5 * time.Second},
		"another comes first": {[]func(r *http.Request) (*http.Response, error){none, lists("parts"), none, away}, "[widgets.x.y parts.x.y]", 15 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				config := goodConfig()
				text := &harness.Log{}
				config.Logger = slog.New(slog.NewTextHandler(text, nil))
				looks := 0
				config.RESTConfig = answered(func(r *http.Request) (*http.Response, error) {
					switch r.URL.Path {
					case "/api/v1":
						return lists("pods")(r)
					case "/apis/x.y/v1":
						looks++ // two for each look: one for each kind
						return test.answers[min((looks-1)/2, len(test.answers)-1)](r)
					}
					return nil, fmt.Errorf("the test: nobody asks for %s", r.URL.Path)
				})
				s, err := newServer(config, newController().rows())
				if err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				if err := s.known(t.Context(), "x", kinds, config.Logger); err != nil || time.Since(began) != test.took {
					t.Errorf("it took %v: %v", time.Since(began), err)
				}
				said := map[bool]int{true: 1}[test.missing != ""]
				if text.Count("does not know some kinds", `missing="`+test.missing+`"`)+text.Count("does not know some kinds", "missing="+test.missing) < said ||
					text.Count("does not know some kinds") != said || text.Count("knows all kinds now") != said {
					t.Errorf("it says\n%s", text)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		config := goodConfig()
		config.RESTConfig = answered(none)
		s, err := newServer(config, newController().rows())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeoutCause(t.Context(), 12*time.Second, errAway)
		defer cancel()
		began := time.Now()
		if err := s.known(ctx, "x", kinds[:1], quiet); !errors.Is(err, errAway) || !strings.Contains(err.Error(), "widgets.x.y") || time.Since(began) != 12*time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}
