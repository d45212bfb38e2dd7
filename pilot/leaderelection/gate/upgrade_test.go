package gate_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/gate"
)

func TestTransport_KindsOfRequests(t *testing.T) {
	const read, write, upgrade = "read", "write", "upgrade"
	const far = "/api/v1/namespaces/a/services/b/proxy/apis/authorization.k8s.io/v1/subjectaccessreviews"
	closed, _ := newGate()
	open := openGate(time.Hour)
	for _, x := range []struct{ want, method, path, header string }{
		{read, "GET", "/api/v1/pods", ""},
		{read, "HEAD", "/api/v1/pods", ""},
		{read, "POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", ""},
		{read, "POST", "/apis/authorization.k8s.io/v1/namespaces/a/localsubjectaccessreviews", ""},
		{read, "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", ""},
		{read, "POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", ""},
		{read, "POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", ""},
		{read, "POST", "/apis/authentication.k8s.io/v1/tokenreviews", ""},
		{read, "GET", "/api/v1/namespaces/a/pods/exec", ""},
		{read, "GET", "/api/v1/namespaces/exec", ""},
		{read, "GET", "/apis/apps/v1/namespaces/a/deployments/b/exec", ""},
		{read, "GET", "/api/v1/namespaces/portforward/pods/attach", ""},
		{read, "GET", "/apis/example.com/v1/namespaces/a/things/b/api/v1/namespaces/a/pods/b/exec-is-no-subresource-of-this", ""},
		{write, "POST", "/apis/authorization.k8s.io/v1/things", ""},
		{write, "POST", "/apis/authentication.k8s.io/v1/tokenreviewsx", ""},
		{write, "POST", "/apis/example.com/v1/tokenreviews", ""},
		{write, "POST", "/api/v1/namespaces/a/configmaps", ""},
		{write, "PUT", "/api/v1/namespaces/a/configmaps/b", ""},
		{write, "PATCH", "/api/v1/namespaces/a/configmaps/b", ""},
		{write, "DELETE", "/api/v1/namespaces/a/configmaps/b", ""},
		{write, "POST", "/api/v1/nodes/a/proxy/x", ""},
		{write, "POST", far, ""},
		{write, "GET", far, ""},
		{write, "GET", "/api/v1/namespaces/a/pods/b/proxy/exec", ""},
		{upgrade, "GET", "/api/v1/namespaces/a/pods/b/exec", ""},
		{upgrade, "POST", "/api/v1/namespaces/a/pods/b/exec", ""},
		{upgrade, "GET", "/api/v1/namespaces/a/pods/b/attach", ""},
		{upgrade, "GET", "/prefix/api/v1/namespaces/a/pods/b/portforward", ""},
		{upgrade, "GET", "/api/v1/nodes", "Upgrade"},
		{upgrade, "GET", "/api/v1/nodes", "Sec-Websocket-Protocol"},
		{upgrade, "GET", "/api/v1/nodes", "X-Stream-Protocol-Version"},
		{upgrade, "CONNECT", "/x", ""},
	} {
		for g, rejection := range map[*gate.Gate]map[string]error{
			closed: {write: gate.ErrNotLeader, upgrade: gate.ErrNotLeader},
			open:   {upgrade: gate.ErrUpgrade},
		} {
			req := requestOf(t.Context(), t, x.method, x.path, strings.NewReader("{}"))
			if x.header != "" {
				req.Header.Set(x.header, "SPDY/3.1")
			}
			if err := send(g, server{}, req); !errors.Is(err, rejection[x.want]) {
				t.Errorf("%s %s %s: %v, want %v", x.method, x.path, x.header, err, rejection[x.want])
			}
		}
	}
	open.Drain() // an upgrade is not pending
}

// switching responds to each request with an upgrade, and records whether the connection was closed.
type switching struct{ closed atomic.Bool }

func (s *switching) RoundTrip(req *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusSwitchingProtocols, Body: s, Request: req}, nil
}

func (s *switching) Read([]byte) (int, error) { return 0, io.EOF }

func (s *switching) Close() error {
	s.closed.Store(true)
	return nil
}

// dials upgrades each connection, as client-go's SPDY round tripper does. It sets the headers below the gate.
type dials struct {
	switching
	asked atomic.Bool
}

func (d *dials) RoundTrip(req *http.Request) (*http.Response, error) {
	d.asked.Store(true)
	return d.switching.RoundTrip(req)
}

func (*dials) Dial(*http.Request) (net.Conn, error) { return nil, nil }

// wrapped is a round tripper around another one, as in client-go.
type wrapped struct{ http.RoundTripper }

func (w wrapped) WrappedRoundTripper() http.RoundTripper { return w.RoundTripper }

func TestTransport_RejectsHiddenUpgrades(t *testing.T) {
	g := openGate(time.Hour)
	rejected := uint64(0)
	for _, path := range []string{"/api/v1/pods", "/api/v1/nodes/a/proxy/exec/x", "/api/v1/namespaces/a/services/b/proxy/", "/apis/aggregated.example.com/v1/things/a/connect"} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			plain, spdy := &switching{}, &dials{}
			for _, next := range []http.RoundTripper{plain, spdy, wrapped{wrapped{spdy}}} {
				if err := send(g, next, requestOf(t.Context(), t, method, path, nil)); !errors.Is(err, gate.ErrUpgrade) {
					t.Errorf("%s %s by a %T: %v", method, path, next, err)
				}
				rejected++
			}
			if !plain.closed.Load() || spdy.asked.Load() {
				t.Errorf("%s %s: connection closed: %v, upgrade requested: %v", method, path, plain.closed.Load(), spdy.asked.Load())
			}
		}
	}
	if err := send(g, wrapped{wrapped{server{}}}, write(t.Context(), t)); err != nil {
		t.Errorf("a wrapped transport without upgrades: %v", err)
	}
	if byGate, _ := g.Refused(); byGate != rejected {
		t.Errorf("%d rejections were counted, want %d", byGate, rejected)
	}
}
