package gate_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/leaderelection/gate"
	le "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

const ours = `{"message":"ValidatingAdmissionPolicy 'incumbent-fence.a.b.lease.work-1' with binding 'x' denied request: no"}`

func TestTransport_Retries(t *testing.T) {
	text := func() io.Reader { return strings.NewReader("body") }
	const always, limit = 1000, 36 // responses, and the attempts within 15 s
	for name, x := range map[string]struct {
		status    int
		message   string
		responses int // with message
		body      io.Reader
		getBody   func() (io.ReadCloser, error)
		tries     int
	}{
		"lag":                            {status: 403, message: ours, responses: 3, body: text(), tries: 4},
		"long lag":                       {status: 403, message: ours, responses: 15, body: text(), tries: 16},
		"always":                         {status: 403, message: ours, responses: always, body: text(), tries: limit},
		"missing lock":                   {status: 422, message: ours, responses: always, body: text(), tries: limit},
		"without a body":                 {status: 403, message: ours, responses: always, tries: limit},
		"with NoBody":                    {status: 403, message: ours, responses: always, body: http.NoBody, tries: limit},
		"other status":                   {status: 409, message: ours, responses: always, body: text(), tries: 1},
		"RBAC":                           {status: 403, message: `{"message":"forbidden: RBAC"}`, responses: always, body: text(), tries: 1},
		"another policy":                 {status: 403, message: `ValidatingAdmissionPolicy 'theirs' denied`, responses: always, body: text(), tries: 1},
		"body that can be read once":     {status: 403, message: ours, responses: always, body: &body{Reader: text()}, tries: 1},
		"body that cannot be read again": {status: 403, message: ours, responses: always, body: text(), getBody: func() (io.ReadCloser, error) { return nil, errBroken }, tries: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, clock := newGate()
				g.Set(le.Term{Token: 7}, clock.Now().Plus(15*time.Second))
				time.Sleep(time.Second)
				g.Set(le.Term{Token: 7}, clock.Now().Plus(15*time.Second)) // writes are retried in old terms too
				var bodies []*body
				var received string
				api := roundTripper(func(req *http.Request) (*http.Response, error) {
					if req.Body != nil {
						text, err := io.ReadAll(req.Body)
						if err != nil {
							return nil, err
						}
						received += string(text)
					}
					bodies = append(bodies, &body{Reader: strings.NewReader(x.message)})
					if len(bodies) > x.responses {
						return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("done")), Request: req}, nil
					}
					return &http.Response{StatusCode: x.status, Body: bodies[len(bodies)-1], Request: req}, nil
				})
				req := requestOf(t.Context(), t, http.MethodPost, "/x", x.body)
				if x.getBody != nil {
					req.GetBody = x.getBody
				}
				begun := time.Now()
				resp, err := g.Transport(api).RoundTrip(req)
				harness.Must(t, err)
				if took := time.Since(begun); len(bodies) != x.tries || (took == 15*time.Second) != (x.tries == limit) {
					t.Errorf("%d attempts in %v", len(bodies), took)
				}
				want := x.message
				if x.tries > x.responses {
					want = "done"
				}
				if got, err := io.ReadAll(resp.Body); err != nil || string(got) != want {
					t.Errorf("response %q, %v", got, err)
				}
				if err := resp.Body.Close(); err != nil {
					t.Error(err)
				}
				for i, b := range bodies[:min(x.responses, x.tries)] {
					if b.closed != 1 {
						t.Errorf("response %d of %d was closed %d times", i, len(bodies), b.closed)
					}
				}
				if all := strings.Repeat("body", x.tries); received != all && x.body != nil && x.body != http.NoBody {
					t.Errorf("received %q", received)
				}
				g.Drain() // no write is pending
				rejected := x.message == ours && x.status != http.StatusConflict
				if byGate, byFence := g.Refused(); byGate != 0 || (byFence > 0) != rejected {
					t.Errorf("%d rejections by the gate, %d by the fence", byGate, byFence)
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
		if got := gate.IsRefusal(err); got != want {
			t.Errorf("%v: %v", err, got)
		}
	}
}

func TestTransport_CutWriteIsUnknown(t *testing.T) {
	for name, x := range map[string]struct {
		end    func(g *gate.Gate)
		after  time.Duration
		reason string
	}{
		"by the end of the validity": {func(*gate.Gate) {}, 15 * time.Second, "validity ended"},
		"by the end of the term":     {func(g *gate.Gate) { g.Set(le.Term{}, le.Validity{}) }, 3 * time.Second, "the term ended"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, begun := openGate(15*time.Second), time.Now()
				time.AfterFunc(3*time.Second, func() { x.end(g) })
				err := send(g, server{takes: time.Minute}, write(t.Context(), t))
				var unknown *gate.OutcomeUnknownError
				if !errors.As(err, &unknown) || errors.Is(err, gate.ErrNotLeader) || unknown.Reason != x.reason || unknown.Term.Token != 7 {
					t.Errorf("%v", err)
				}
				if took := time.Since(begun); took != x.after {
					t.Errorf("after %v", took)
				}
				time.Sleep(time.Minute) // for the timer
			})
		})
	}
}

func TestTransport_ClosesRejectedBody(t *testing.T) {
	g, _ := newGate()
	b := &body{Reader: strings.NewReader("{}")}
	if err := send(g, server{}, requestOf(t.Context(), t, "POST", "/x", b)); !errors.Is(err, gate.ErrNotLeader) || b.closed != 1 {
		t.Errorf("closed %d times: %v", b.closed, err)
	}
	if err := send(g, server{}, requestOf(t.Context(), t, "DELETE", "/x", nil)); !errors.Is(err, gate.ErrNotLeader) {
		t.Errorf("without a body: %v", err)
	}
}

func TestTransport_PassesErrors(t *testing.T) {
	g := openGate(time.Hour)
	g.AllowUpgrades(func(req *http.Request) bool { return strings.HasSuffix(req.URL.Path, "/exec") })
	broken := roundTripper(func(*http.Request) (*http.Response, error) { return nil, errBroken })
	for name, req := range map[string]*http.Request{
		"read":                          requestOf(t.Context(), t, "GET", "/api/v1/pods", nil),
		"write":                         write(t.Context(), t),
		"write of an unlimited context": write(context.Background(), t),
		"upgrade":                       requestOf(t.Context(), t, "POST", "/api/v1/namespaces/a/pods/b/exec", nil),
	} {
		if err := send(g, broken, req); !errors.Is(err, errBroken) || errors.Is(err, gate.ErrOutcomeUnknown) {
			t.Errorf("%s: %v", name, err)
		}
	}
	g.Drain() // no write is pending

	g = openGate(time.Hour)
	for _, status := range []int{http.StatusOK, http.StatusForbidden, http.StatusUnprocessableEntity} {
		resp, err := g.Transport(answering(status, &body{Reader: &breaksOnce{}, onEnd: errBroken})).RoundTrip(write(t.Context(), t))
		harness.Must(t, err)
		if _, err := io.ReadAll(resp.Body); !errors.Is(err, errBroken) {
			t.Errorf("%d: reading the response: %v", status, err)
		}
		if err := resp.Body.Close(); !errors.Is(err, errBroken) {
			t.Errorf("%d: closing the response: %v", status, err)
		}
	}
	g.Drain()
}

// breaksOnce fails once and then ends, so a lost error would look like a complete body.
type breaksOnce struct{ broke bool }

func (b *breaksOnce) Read([]byte) (int, error) {
	if b.broke {
		return 0, io.EOF
	}
	b.broke = true
	return 0, errBroken
}

func TestTransport_CallerCancelsRead(t *testing.T) {
	for name, x := range map[string]struct {
		onRead  error
		givesUp bool
		want    error
	}{
		"canceled":                   {errBroken, true, errGaveUp},
		"broken, not canceled":       {errBroken, false, errBroken},
		"complete before it cancels": {nil, true, nil},
	} {
		g := openGate(time.Hour)
		ctx, cancel := context.WithCancelCause(t.Context())
		b := &body{Reader: strings.NewReader("{}"), onRead: x.onRead}
		resp, err := g.Transport(answering(http.StatusOK, b)).RoundTrip(write(ctx, t))
		harness.Must(t, err)
		if x.givesUp {
			cancel(errGaveUp)
		}
		if _, err := io.ReadAll(resp.Body); !errors.Is(err, x.want) {
			t.Errorf("%s: %v, want %v", name, err, x.want)
		}
		if err := resp.Body.Close(); err != nil || b.closed != 1 {
			t.Errorf("%s: closed %d times: %v", name, b.closed, err)
		}
		cancel(nil)
	}
}
