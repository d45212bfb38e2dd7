package members

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/testutil/harness"
)

// counting is an API server that stores nothing and records requests.
type counting struct {
	mu     sync.Mutex
	asked  []string
	bodies []string
	// bounds are the timeouts of the requests.
	queries []url.Values
	bounds  []time.Duration
	status  int // or hangs
	answer  any // to accepted requests
}

func (c *counting) client(t *testing.T) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(&rest.Config{
		Host: "http://api", Transport: c, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// hangs is the status of a server that does not respond.
const hangs = -1

func (c *counting) RoundTrip(r *http.Request) (*http.Response, error) {
	c.mu.Lock()
	if c.status == hangs {
		c.mu.Unlock()
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	defer c.mu.Unlock()
	c.asked = append(c.asked, r.Method+" "+r.URL.Path)
	body := []byte{}
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
	}
	c.bodies, c.queries = append(c.bodies, string(body)), append(c.queries, r.URL.Query())
	until, _ := r.Context().Deadline()
	c.bounds = append(c.bounds, time.Until(until))
	answer := c.answer
	if c.status >= http.StatusBadRequest {
		answer = metav1.Status{Status: metav1.StatusFailure, Code: int32(c.status), Reason: reasons[c.status], Message: "refused"}
	}
	raw, err := json.Marshal(answer)
	return &http.Response{
		StatusCode: c.status, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(raw)), Request: r,
	}, err
}

var reasons = map[int]metav1.StatusReason{http.StatusForbidden: metav1.StatusReasonForbidden, http.StatusNotFound: metav1.StatusReasonNotFound}

// writes returns the number of writes since the last call.
func (c *counting) writes(t *testing.T) int {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, asked := range c.asked {
		if asked != "PATCH /apis/coordination.k8s.io/v1/namespaces/istio-system/leases/incumbent-member-pilot-1" {
			t.Errorf("request %s", asked)
		}
	}
	n := len(c.asked)
	c.asked = nil
	return n
}

// published is a Publisher in a synctest bubble.
type published struct {
	server *counting
	state  State // under the server's mutex
	log    harness.Log
	end    func()
}

// publish runs a Publisher of a Pod.
func publish(t *testing.T, uid types.UID) *published {
	t.Helper()
	p := &published{server: &counting{status: http.StatusOK, answer: coordinationv1.Lease{}}, state: State{Revision: "stable", Cluster: Local, Version: "v1"}}
	publisher, err := New(Config{
		Client: p.server.client(t), Namespace: "istio-system", Identity: "pilot-1", PodUID: uid, State: p.says,
		Logger: slog.New(slog.NewTextHandler(&p.log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- publisher.Run(ctx) }()
	p.end = func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	synctest.Wait()
	return p
}

func (p *published) says() State {
	p.server.mu.Lock()
	defer p.server.mu.Unlock()
	return p.state
}

// say changes the elections in the state.
func (p *published) say(elections ...Election) {
	p.server.mu.Lock()
	defer p.server.mu.Unlock()
	p.state.Elections = elections
}

func (p *published) answer(status int) {
	p.server.mu.Lock()
	defer p.server.mu.Unlock()
	p.server.status = status
}

// pass sleeps.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func TestPublisher_TwoWritesAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := publish(t, "u")
		if n := p.server.writes(t); n != 1 {
			t.Errorf("%d writes at start", n)
		}
		pass(10*time.Minute + time.Second)
		if n := p.server.writes(t); n != 20 {
			t.Errorf("%d writes in ten minutes", n)
		}
		p.end()
		if last := p.server.asked[len(p.server.asked)-1]; len(p.server.asked) != 1 || !strings.HasPrefix(last, "DELETE /") {
			t.Errorf("requests at the end: %q", p.server.asked)
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
		p.server.writes(t)
		p.say(Election{Name: "istio-leader", Candidate: true, Warm: true})
		pass(time.Second)
		if n := p.server.writes(t); n != 1 {
			t.Errorf("%d writes after a change", n)
		}
		if body := p.server.bodies[len(p.server.bodies)-1]; !strings.Contains(body, `{\"name\":\"istio-leader\",\"candidate\":true,\"warm\":true,\"fit\":false}`) {
			t.Errorf("body: %s", body)
		}
		for n := range 60 { // a change every second
			p.say(Election{Name: "istio-leader", Fit: n%2 == 0})
			pass(time.Second)
		}
		if n := p.server.writes(t); n < 10 || n > 12 {
			t.Errorf("%d writes in a minute of changes", n)
		}
		p.end()
	})
}

func TestPublisher_Forbidden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := publish(t, "u")
		p.answer(http.StatusForbidden)
		p.server.writes(t)
		for n := range 10 * 60 {
			p.say(Election{Name: "e", Fit: n%2 == 0})
			pass(time.Second)
		}
		if n := p.server.writes(t); n < 19 || n > 21 {
			t.Errorf("%d attempts in ten minutes", n)
		}
		if n := strings.Count(p.log.String(), "failed to write the member Lease"); n != 1 || !strings.Contains(p.log.String(), "istio-system/incumbent-member-pilot-1") {
			t.Errorf("log:\n%s", p.log.String())
		}
		p.answer(http.StatusOK)
		pass(Every)
		if n := strings.Count(p.log.String(), "written again"); n != 1 {
			t.Errorf("log:\n%s", p.log.String())
		}
		p.answer(http.StatusForbidden)
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
				t.Errorf("owners: %s", body)
			}
			if query := p.server.queries[0]; query.Get("fieldManager") != "incumbent-member" || query.Get("force") != "true" {
				t.Errorf("query: %v", query)
			}
			if p.server.bounds[0] != 5*time.Second {
				t.Errorf("request timeout %v", p.server.bounds[0])
			}
		})
	}
}

// The publisher ends immediately. If the server does not respond, it ends within StopTimeout.
func TestPublisher_End(t *testing.T) {
	for name, x := range map[string]struct {
		status int
		took   time.Duration
	}{
		"deleted":      {http.StatusOK, 0},
		"already gone": {http.StatusNotFound, 0},
		"no response":  {hangs, 2 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := publish(t, "u")
			pass(10*time.Second + time.Millisecond)
			p.answer(x.status)
			if x.status == hangs {
				p.say(Election{Name: "e"})
				pass(time.Second) // a write is under way
			}
			began := time.Now()
			p.end()
			if took := time.Since(began); took != x.took {
				t.Errorf("%s: took %v", name, took)
			}
			if p.log.Count() > 0 {
				t.Errorf("%s: log:\n%s", name, &p.log)
			}
		})
	}
}
