package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"

	"incumbent.dev/incumbent/internal/testutil/apiserver"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/leaderelection"
)

// TestAwaitKinds also shows that a kind counts as served if the API server does not answer. The caches report that.
func TestAwaitKinds(t *testing.T) {
	kinds := []schema.GroupVersionResource{{Group: "x.y", Version: "v1", Resource: "widgets"}, {Version: "v1", Resource: "pods"}, {Group: "x.y", Version: "v1", Resource: "parts"}}
	lists := func(names ...string) func(apiserver.Request) apiserver.Fault {
		return func(apiserver.Request) apiserver.Fault {
			all := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}}
			for _, name := range names {
				all.APIResources = append(all.APIResources, metav1.APIResource{Name: name})
			}
			return apiserver.Fault{Object: all}
		}
	}
	none := func(apiserver.Request) apiserver.Fault {
		return apiserver.Fault{Err: apierrors.NewNotFound(schema.GroupResource{Group: "x.y"}, "v1")}
	}
	for name, test := range map[string]struct {
		answers []func(apiserver.Request) apiserver.Fault // of the group, for each check
		missing string
		took    time.Duration
	}{
		"all served":       {[]func(apiserver.Request) apiserver.Fault{lists("widgets", "parts")}, "", 0},
		"API server fails": {[]func(apiserver.Request) apiserver.Fault{away}, "", 0},
		"group missing":    {[]func(apiserver.Request) apiserver.Fault{none, none, lists("parts", "widgets")}, "[widgets.x.y parts.x.y]", 10 * time.Second},
		"one missing":      {[]func(apiserver.Request) apiserver.Fault{lists("parts"), lists("parts", "widgets")}, "[widgets.x.y]", 5 * time.Second},
		"older version": {
			[]func(apiserver.Request) apiserver.Fault{lists("parts"), lists("parts"), lists("parts"), lists("parts", "widgets")},
			"[widgets.x.y/v1 (only v1beta1 is served: install a newer definition)]", 15 * time.Second,
		},
		"one appears first": {[]func(apiserver.Request) apiserver.Fault{none, lists("parts"), none, away}, "[widgets.x.y parts.x.y]", 15 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				config := goodConfig()
				text := &harness.Log{}
				config.Logger = slog.New(slog.NewTextHandler(text, nil))
				looks := 0
				config.RESTConfig = answered(func(r apiserver.Request) apiserver.Fault {
					switch r.URL.Path {
					case "/api/v1":
						return lists("pods")(r)
					case "/apis/x.y/v1":
						looks++ // two for each look: one for each kind
						return test.answers[min((looks-1)/2, len(test.answers)-1)](r)
					case "/apis/x.y/v1beta1":
						return lists("widgets")(r)
					case "/apis/x.y":
						if name == "older version" {
							return apiserver.Fault{Object: metav1.APIGroup{Versions: []metav1.GroupVersionForDiscovery{{Version: "v1beta1"}}}}
						}
					}
					return apiserver.Fault{Err: fmt.Errorf("unexpected request %s", r.URL.Path)}
				})
				s, err := newServer(config, newController().rows())
				harness.Must(t, err)
				began := time.Now()
				if err := s.awaitKinds(t.Context(), "x", kinds, config.Logger); err != nil || time.Since(began) != test.took {
					t.Errorf("the wait took %v: %v", time.Since(began), err)
				}
				logged := map[bool]int{true: 1}[test.missing != ""]
				changes := logged
				if name == "one appears first" {
					changes = 3
				}
				if text.Count("waiting for missing CustomResourceDefinitions", `missing="`+test.missing+`"`)+text.Count("waiting for missing CustomResourceDefinitions", "missing="+test.missing) < logged ||
					text.Count("waiting for missing CustomResourceDefinitions") != changes || text.Count("all CustomResourceDefinitions are served") != logged {
					t.Errorf("the log is\n%s", text)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		config := goodConfig()
		config.RESTConfig = answered(none)
		s, err := newServer(config, newController().rows())
		harness.Must(t, err)
		ctx, cancel := context.WithTimeoutCause(t.Context(), 12*time.Second, errAway)
		defer cancel()
		began := time.Now()
		if err := s.awaitKinds(ctx, "x", kinds[:1], quiet); !errors.Is(err, errAway) || !strings.Contains(err.Error(), "widgets.x.y") || time.Since(began) != 12*time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		if _, _, page := get(t, s, "/metrics"); !strings.Contains(page, `incumbent_election_missing_kinds{name="x"} 1`) {
			t.Errorf("the metrics are\n%s", page)
		}
	})
}

// TestStaleTags_PreventWrites shows that no controller writes before the tags are current again. With stale tags, two
// revisions could overwrite each other's changes to a Gateway.
func TestStaleTags_PreventWrites(t *testing.T) {
	e := newEnvironment(t)
	client := e.gateways(t)
	if _, err := client.Gateways(e.home).Create(t.Context(), newGateway("gw"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	rows := 0
	for _, row := range table {
		if !row.tagged {
			continue
		}
		rows++
		t.Run(row.id, func(t *testing.T) {
			before, err := client.Gateways(e.home).Get(t.Context(), "gw", metav1.GetOptions{})
			harness.Must(t, err)
			changed := func() bool {
				now, err := client.Gateways(e.home).Get(t.Context(), "gw", metav1.GetOptions{})
				harness.Must(t, err)
				return now.ResourceVersion != before.ResourceVersion
			}
			tags := &fakeTags{current: make(chan struct{})}
			log := slog.New(slog.DiscardHandler)
			j, err := row.newJob(e.admin, Config{Config: leaderelection.Config{Namespace: e.home, Revision: e.home}, DisableGatewayClass: true}, tools{log: log, events: &events{}, tags: tags})
			harness.Must(t, err)
			harness.Background(t, j.Run)
			await(t, "the controller waits for current tags", func() bool { return tags.asked.Load() > 0 })
			if changed() {
				t.Error("the controller writes before the tags are current")
			}
			close(tags.current)
			await(t, "it writes", changed)
		})
	}
	if rows != 2 {
		t.Errorf("%d rows use tags", rows)
	}
}

func TestWarmupWaitsForTags(t *testing.T) {
	for name, test := range map[string]struct {
		tagged, synced bool
		want           error
		warmed         int
	}{
		"not tagged":   {false, false, nil, 1},
		"tags unknown": {true, false, context.Canceled, 0},
		"tags known":   {true, true, nil, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				watcher := &fakeTags{}
				s := &site{tags: newTags(watcher, quiet, nil)}
				c := newController()
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- s.warm(election{tagged: test.tagged}, c, "x", quiet)(ctx) }()
				synctest.Wait()
				if test.tagged && len(c.warms) > 0 {
					t.Error("warmed before the tags are known")
				}
				for range 2 { // handlers are called for each change
					if test.synced {
						watcher.handlers[0](sets.New("stable"))
					}
				}
				synctest.Wait()
				cancel()
				if err := <-ended; !errors.Is(err, test.want) || len(c.warms) != test.warmed {
					t.Errorf("error %v, warmed %d times", err, len(c.warms))
				}
			})
		})
	}
}
