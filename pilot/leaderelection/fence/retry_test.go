package fence_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/pilot/leaderelection/fence"
	le "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

// refusing answers by the words of a policy of ours.
type refusing struct {
	status int

	mu     sync.Mutex // a write whose caller has left goes on for a while
	bodies []*body
}

func (r *refusing) answered() []*body {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]*body{}, r.bodies...)
}

func (r *refusing) RoundTrip(req *http.Request) (*http.Response, error) {
	b := &body{Reader: strings.NewReader(ours)}
	r.mu.Lock()
	r.bodies = append(r.bodies, b)
	r.mu.Unlock()
	return &http.Response{StatusCode: r.status, Body: b, Request: req}, nil
}

func TestTransport_NoRetry(t *testing.T) {
	post := func(ctx context.Context, body io.Reader) *http.Request {
		req, err := http.NewRequestWithContext(ctx, "POST", "http://127.0.0.1/x", body)
		if err != nil {
			panic(err)
		}
		return req
	}
	for name, c := range map[string]struct {
		status int
		make   func(context.Context) *http.Request
		tries  int
		takes  time.Duration
	}{
		"status of another kind":      {http.StatusConflict, func(ctx context.Context) *http.Request { return post(ctx, nil) }, 1, 0},
		"a body that can be had once": {http.StatusForbidden, func(ctx context.Context) *http.Request { return post(ctx, &body{Reader: strings.NewReader("{}")}) }, 1, 0},
		"a body that cannot be had again": {http.StatusForbidden, func(ctx context.Context) *http.Request {
			req := post(ctx, strings.NewReader("{}"))
			req.GetBody = func() (io.ReadCloser, error) { return nil, errBroken }
			return req
		}, 1, 0},
		"no body":                {http.StatusForbidden, func(ctx context.Context) *http.Request { return post(ctx, nil) }, 36, 15 * time.Second},
		"no body, by name":       {http.StatusForbidden, func(ctx context.Context) *http.Request { return post(ctx, http.NoBody) }, 36, 15 * time.Second},
		"a policy without param": {http.StatusUnprocessableEntity, func(ctx context.Context) *http.Request { return post(ctx, nil) }, 36, 15 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				gate, clock, _ := newGate()
				gate.Set(le.Term{Token: 7}, clock.Now().Plus(15*time.Second))
				begun, api := time.Now(), &refusing{status: c.status}
				resp, err := gate.Transport(api).RoundTrip(c.make(t.Context()))
				if err != nil {
					t.Fatal(err)
				}
				if took := time.Since(begun); took != c.takes || len(api.answered()) != c.tries {
					t.Errorf("%d tries in %v", len(api.answered()), took)
				}
				if got, err := io.ReadAll(resp.Body); err != nil || string(got) != ours || resp.StatusCode != c.status {
					t.Errorf("%d %q, %v", resp.StatusCode, got, err)
				}
				if err := resp.Body.Close(); err != nil {
					t.Error(err)
				}
				for i, b := range api.answered() {
					if b.closed != 1 {
						t.Errorf("answer %d of %d was closed %d times", i, len(api.answered()), b.closed)
					}
				}
			})
		})
	}
}

func TestTransport_RetriesEnd(t *testing.T) {
	for name, end := range map[string]func(*fence.Gate, context.CancelFunc){
		"caller": func(_ *fence.Gate, cancel context.CancelFunc) { cancel() },
		"term":   func(gate *fence.Gate, _ context.CancelFunc) { gate.Set(le.Term{}, le.Validity{}) },
		"drain":  func(gate *fence.Gate, _ context.CancelFunc) { gate.Drain() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				gate, clock, _ := newGate()
				gate.Set(le.Term{Token: 7}, clock.Now().Plus(15*time.Second))
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				api := &refusing{status: http.StatusForbidden}
				time.AfterFunc(5*time.Second+time.Millisecond, func() { end(gate, cancel) })
				begun := time.Now()
				err := finish(gate.Transport(api).RoundTrip(request(t, ctx)))
				tries, took := len(api.answered()), time.Since(begun)
				if took > 6*time.Second || name == "caller" && !errors.Is(err, fence.ErrOutcomeUnknown) {
					t.Errorf("told after %v: %v", took, err)
				}
				if time.Sleep(5 * time.Second); len(api.answered()) != tries {
					t.Errorf("%d tries after the end", len(api.answered())-tries)
				}
				begun = time.Now()
				if gate.Drain(); time.Since(begun) != 0 {
					t.Errorf("something was still under way for %v", time.Since(begun))
				}
			})
		})
	}
}

func TestIsRefusal(t *testing.T) {
	refused := func(message string) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Message: message}}
	}
	for err, want := range map[error]bool{
		refused("ValidatingAdmissionPolicy 'incumbent-fence.a.b.lease.work-1' with binding"):                  true,
		fmt.Errorf("updating: %w", refused("x ValidatingAdmissionPolicy 'incumbent-fence.a' denied request")): true,
		refused("ValidatingAdmissionPolicy 'theirs' with binding"):                                            false,
		refused(""): false,
		errors.New("ValidatingAdmissionPolicy 'incumbent-fence.a' denied"): false,
	} {
		if got := fence.IsRefusal(err); got != want {
			t.Errorf("%v: %v", err, got)
		}
	}
}

func TestTransport_ReviewsAreReads(t *testing.T) {
	gate, _, _ := newGate()
	for path, read := range map[string]bool{
		"/apis/authorization.k8s.io/v1/subjectaccessreviews":                   true,
		"/apis/authorization.k8s.io/v1/namespaces/a/localsubjectaccessreviews": true,
		"/apis/authorization.k8s.io/v1/selfsubjectaccessreviews":               true,
		"/apis/authorization.k8s.io/v1/selfsubjectrulesreviews":                true,
		"/apis/authentication.k8s.io/v1/selfsubjectreviews":                    true,
		"/apis/authentication.k8s.io/v1/tokenreviews":                          true,
		"/apis/authorization.k8s.io/v1/things":                                 false,
		"/apis/authentication.k8s.io/v1/tokenreviewsx":                         false,
	} {
		if err := send(t, gate, server{}, "POST", path); (err == nil) != read {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// wrapped is a round tripper around another one, as client-go's own are.
type wrapped struct{ http.RoundTripper }

func (w wrapped) WrappedRoundTripper() http.RoundTripper { return w.RoundTripper }

func TestTransport_DetectsUpgrades(t *testing.T) {
	gate, clock, _ := newGate()
	gate.Set(le.Term{Token: 7}, clock.Now().Plus(time.Hour))
	for _, header := range []string{"Upgrade", "Sec-Websocket-Protocol", "X-Stream-Protocol-Version"} {
		if err := send(t, gate, server{}, "GET", "/api/v1/pods", header); !errors.Is(err, fence.ErrUpgrade) {
			t.Errorf("%s: %v", header, err)
		}
	}
	spdy := &dials{}
	for next, want := range map[http.RoundTripper]bool{
		wrapped{wrapped{spdy}}:     true,
		wrapped{wrapped{server{}}}: false,
	} {
		req, err := http.NewRequestWithContext(t.Context(), "GET", "http://127.0.0.1/api/v1/pods", nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := finish(gate.Transport(next).RoundTrip(req)); errors.Is(err, fence.ErrUpgrade) != want {
			t.Errorf("%T around %T: %v", next, next.(wrapped).RoundTripper, err)
		}
	}
	if spdy.asked.Load() {
		t.Error("a request to upgrade got out")
	}
	before, _ := gate.Refused()
	if err := finish(gate.Transport(&switching{}).RoundTrip(request(t, t.Context()))); !errors.Is(err, fence.ErrUpgrade) {
		t.Error(err)
	}
	if after, _ := gate.Refused(); after != before+1 {
		t.Errorf("%d refusals counted", after-before)
	}
	// No word on upgrades is a no, and no panic.
	gate.AllowUpgrades(nil)
	if err := send(t, gate, server{}, "POST", "/api/v1/namespaces/a/pods/b/exec"); !errors.Is(err, fence.ErrUpgrade) {
		t.Errorf("without a declaration: %v", err)
	}
	gate.Drain() // an upgrade is not under way
}
