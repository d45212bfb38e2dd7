package members

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// What is written is a member's Lease, all of it ours, whatever is there; it belongs to the Pod if there is one.
func TestWhatIsWritten(t *testing.T) {
	for uid, owners := range map[string]string{"u": `"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"pilot-1","uid":"u"}]`, "": ""} {
		synctest.Test(t, func(t *testing.T) {
			p := publishFor(t, uid)
			p.server.mu.Lock()
			defer p.end()
			defer p.server.mu.Unlock()
			body := p.server.bodies[0]
			for _, want := range []string{`"labels":{"incumbent.dev/member":"true"}`, `"holderIdentity":"pilot-1"`, `"leaseDurationSeconds":90`, owners} {
				if !strings.Contains(body, want) {
					t.Errorf("%s is not in %s", want, body)
				}
			}
			if strings.Contains(body, "ownerReferences") != (owners != "") {
				t.Errorf("its owners: %s", body)
			}
			if query := p.server.queries[0]; query.Get("fieldManager") != "incumbent-member" || query.Get("force") != "true" {
				t.Errorf("it is written with %v", query)
			}
			if p.server.bounds[0] != 5*time.Second {
				t.Errorf("a request may take %v", p.server.bounds[0])
			}
		})
	}
}

// Whatever a process says of itself is written soon when it changes.
func TestEachChangeIsWritten(t *testing.T) {
	for name, change := range map[string]func(*State){
		"revision": func(s *State) { s.Revision = "canary" }, "cluster": func(s *State) { s.Cluster = Remote }, "version": func(s *State) { s.Version = "v2" },
	} {
		synctest.Test(t, func(t *testing.T) {
			p := publish(t)
			defer p.end()
			pass(10 * time.Second)
			p.server.writes(t)
			p.server.mu.Lock()
			change(&p.state)
			p.server.mu.Unlock()
			pass(2 * time.Second)
			if n := p.server.writes(t); n != 1 {
				t.Errorf("%d writes after another %s", n, name)
			}
		})
	}
}

// A publisher ends at once, and where the server does not answer, within its bound. What it can then not do is no news.
func TestThePublishersEnd(t *testing.T) {
	for name, x := range map[string]struct {
		status int
		took   time.Duration
	}{
		"all is well":          {http.StatusOK, 0},
		"somebody was quicker": {http.StatusNotFound, 0},
		"nobody answers":       {hangs, 2 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := publish(t)
			pass(10*time.Second + time.Millisecond)
			p.answer(x.status)
			if x.status == hangs {
				p.say(Election{Name: "e"})
				pass(time.Second) // a write is under way
			}
			began := time.Now()
			p.end()
			if took := time.Since(began); took != x.took {
				t.Errorf("%s: it takes %v", name, took)
			}
			if p.log.Count() > 0 {
				t.Errorf("%s: it says\n%s", name, &p.log)
			}
		})
	}
}

func TestWhatAPublisherNeeds(t *testing.T) {
	client, err := kubernetes.NewForConfig(&rest.Config{Host: "http://api"})
	if err != nil {
		t.Fatal(err)
	}
	good := Config{Client: client, Namespace: "a", Identity: "b", State: func() State { return State{} }}
	if p, err := New(good); err != nil || p.cfg.Logger != slog.Default() {
		t.Errorf("%v, %+v", err, p)
	}
	good.Logger = slog.New(slog.DiscardHandler)
	if p, err := New(good); err != nil || p.cfg.Logger != good.Logger {
		t.Errorf("%v, %+v", err, p)
	}
	for _, without := range []func(*Config){func(c *Config) { c.Client = nil }, func(c *Config) { c.State = nil }} {
		config := good
		without(&config)
		if _, err := New(config); err == nil || !strings.Contains(err.Error(), "give a Client and a State") {
			t.Errorf("%+v: %v", config, err)
		}
	}
}
