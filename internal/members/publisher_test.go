package members

import (
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"incumbent.dev/incumbent/internal/testutil/apiserver"
	"incumbent.dev/incumbent/internal/testutil/harness"
)

// writes returns the number of writes since the last call.
func (p *published) writes(t *testing.T) int {
	t.Helper()
	all := p.server.Requests()
	for _, r := range all {
		if got := r.String(); got != "patch leases istio-system/incumbent-member-pilot-1" {
			t.Errorf("request %s", got)
		}
		p.last = r
	}
	return len(all)
}

// published is a Publisher in a synctest bubble.
type published struct {
	server *apiserver.Server
	last   apiserver.Request
	mu     sync.Mutex
	state  State
	log    harness.Log
	end    func()
}

// publish runs a Publisher of a Pod.
func publish(t *testing.T, uid types.UID) *published {
	t.Helper()
	p := &published{server: apiserver.New(), state: State{Revision: "stable", Cluster: Local, Version: "v1"}}
	publisher, err := New(Config{
		Client: p.server.Kube(), Namespace: "istio-system", Identity: "pilot-1", PodUID: uid, State: p.says,
		Logger: slog.New(slog.NewTextHandler(&p.log, nil)),
	})
	harness.Must(t, err)
	p.end = harness.Background(t, publisher.Run)
	synctest.Wait()
	return p
}

func (p *published) says() State {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state
}

// say changes the elections in the state.
func (p *published) say(elections ...Election) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state.Elections = elections
}

func (p *published) fail(fault apiserver.Fault) {
	p.server.On(func(apiserver.Request) apiserver.Fault { return fault })
}

var (
	forbidden = apiserver.Fault{Err: apierrors.NewForbidden(coordinationv1.Resource("leases"), "x", nil)}
	notFound  = apiserver.Fault{Err: apierrors.NewNotFound(coordinationv1.Resource("leases"), "x")}
)

// text returns a body as JSON.
func text(t *testing.T, body any) string {
	t.Helper()
	raw, err := json.Marshal(body)
	harness.Must(t, err)
	return string(raw)
}

var pass = harness.Pass

func TestPublisher_TwoWritesAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := publish(t, "u")
		if n := p.writes(t); n != 1 {
			t.Errorf("%d writes at start", n)
		}
		pass(10*time.Minute + time.Second)
		if n := p.writes(t); n != 20 {
			t.Errorf("%d writes in ten minutes", n)
		}
		p.end()
		if all := p.server.Requests(); len(all) != 1 || all[0].Verb != "delete" {
			t.Errorf("requests at the end: %v", all)
		}
		if p.log.Count() > 0 {
			t.Errorf("log:\n%s", p.log.String())
		}
	})
}

func TestPublisher_LimitsWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := publish(t, "u")
		pass(10 * time.Second)
		p.writes(t)
		p.say(Election{Name: "istio-leader", Candidate: true, Warm: true})
		pass(time.Second)
		if n := p.writes(t); n != 1 {
			t.Errorf("%d writes after a change", n)
		}
		if body := text(t, p.last.Body); !strings.Contains(body, `{\"name\":\"istio-leader\",\"candidate\":true,\"warm\":true,\"fit\":false}`) {
			t.Errorf("body: %s", body)
		}
		for n := range 60 { // a change every second
			p.say(Election{Name: "istio-leader", Fit: n%2 == 0})
			pass(time.Second)
		}
		if n := p.writes(t); n < 10 || n > 12 {
			t.Errorf("%d writes in a minute of changes", n)
		}
		p.end()
	})
}

func TestPublisher_Forbidden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := publish(t, "u")
		p.fail(forbidden)
		p.writes(t)
		for n := range 10 * 60 {
			p.say(Election{Name: "e", Fit: n%2 == 0})
			pass(time.Second)
		}
		if n := p.writes(t); n < 19 || n > 21 {
			t.Errorf("%d attempts in ten minutes", n)
		}
		if n := strings.Count(p.log.String(), "permission denied"); n != 1 || !strings.Contains(p.log.String(), "istio-system/incumbent-member-pilot-1") {
			t.Errorf("log:\n%s", p.log.String())
		}
		p.fail(apiserver.Fault{})
		pass(every)
		if n := strings.Count(p.log.String(), "succeeded again"); n != 1 {
			t.Errorf("log:\n%s", p.log.String())
		}
		p.fail(forbidden)
		p.end()
		if n := strings.Count(p.log.String(), "failed to delete the member Lease"); n != 1 {
			t.Errorf("log:\n%s", p.log.String())
		}
	})
}

func TestNew_Invalid(t *testing.T) {
	_, err := New(Config{Namespace: "A"})
	for _, want := range []string{"Client and State are required", `namespace "A"`, "Identity is required"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func TestPublisher_WrittenLease(t *testing.T) {
	for uid, owners := range map[types.UID]string{"u": `"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"pilot-1","uid":"u"}]`, "": ""} {
		synctest.Test(t, func(t *testing.T) {
			p := publish(t, uid)
			defer p.end()
			p.writes(t)
			body := text(t, p.last.Body)
			for _, want := range []string{`"labels":{"incumbent.dev/member":"true"}`, `"holderIdentity":"pilot-1"`, `"leaseDurationSeconds":90`, owners} {
				if !strings.Contains(body, want) {
					t.Errorf("%s is not in %s", want, body)
				}
			}
			if strings.Contains(body, "ownerReferences") != (owners != "") {
				t.Errorf("owners: %s", body)
			}
			if query := p.last.URL.Query(); query.Get("fieldManager") != "incumbent-member" || query.Get("force") != "true" {
				t.Errorf("query: %v", query)
			}
			if p.last.Limit != 5*time.Second {
				t.Errorf("request timeout %v", p.last.Limit)
			}
		})
	}
}

// The publisher ends immediately. If the server does not respond, it ends within StopTimeout.
func TestPublisher_End(t *testing.T) {
	for name, x := range map[string]struct {
		fault apiserver.Fault
		took  time.Duration
		lines int
	}{
		"deleted":      {apiserver.Fault{}, 0, 0},
		"already gone": {notFound, 0, 0},
		"no response":  {apiserver.Fault{Hang: true}, 2 * time.Second, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := publish(t, "u")
			pass(10*time.Second + time.Millisecond)
			p.fail(x.fault)
			if x.fault.Hang {
				p.say(Election{Name: "e"})
				pass(time.Second) // a write is under way
			}
			began := time.Now()
			p.end()
			if took := time.Since(began); took != x.took {
				t.Errorf("%s: took %v", name, took)
			}
			if p.log.Count() != x.lines {
				t.Errorf("%s: log:\n%s", name, &p.log)
			}
		})
	}
}
