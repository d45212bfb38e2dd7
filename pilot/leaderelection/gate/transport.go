package gate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"

	"incumbent.dev/incumbent/internal/apirequest"
)

// Transport returns a round tripper that passes writes to next only while the gate is open. Set it with rest.Config.Wrap.
// Then each client of that configuration is gated, also dynamic clients and clients of controller-runtime.
//
// Reads always pass: GET, HEAD, OPTIONS, and creations of reviews such as SubjectAccessReview and TokenReview. All other
// requests are writes, also dry runs and requests through a proxy subresource. A request that upgrades its connection is
// always rejected: with ErrNotLeader while the gate is closed, otherwise with ErrUpgrade.
//
// A write that the fence rejects while the gate is open is retried until the validity or the caller's context ends, because
// the API server may not have seen the new holder yet. A rejected write has no effect, so a retry cannot apply it twice.
//
// Drain waits for each sent write until it is answered or the validity ends. The caller's context and the client's timeout
// do not end this wait. A caller that cancels before the response gets ErrOutcomeUnknown.
//
// A request with the context of a run function passes only in the term of that function (k8sleaderelection.TermFromContext).
func (g *Gate) Transport(next http.RoundTripper) http.RoundTripper {
	return &gated{gate: g, next: next, upgrading: isUpgrader(next)}
}

// AllowUpgrades permits the requests that may upgrade their connection. The gate checks matching requests only when they
// start. Such a connection can outlive the term, and Drain does not wait for it. A second call replaces the first.
func (g *Gate) AllowUpgrades(declared func(*http.Request) bool) { g.declared.Store(&declared) }

func (g *Gate) allowsUpgrade(req *http.Request) bool {
	declared := g.declared.Load()
	return declared != nil && *declared != nil && (*declared)(req)
}

type gated struct {
	gate      *Gate
	next      http.RoundTripper
	upgrading bool // next upgrades the connection of each request
}

func (t *gated) RoundTrip(req *http.Request) (*http.Response, error) {
	upgrade, declared := t.upgrading || upgrades(req), t.gate.allowsUpgrade(req)
	if !upgrade && !declared && isRead(req) {
		return t.unlessUpgraded(t.next.RoundTrip(req))
	}
	pass, err := t.gate.admit(req.Context())
	switch {
	case err == nil && declared:
		pass.done()
		return t.next.RoundTrip(req)
	case err == nil && upgrade:
		pass.done()
		err = t.upgradeRefused()
	}
	if err != nil {
		t.gate.byGate.Inc()
		if req.Body != nil {
			req.Body.Close()
		}
		return nil, err
	}
	return t.unlessUpgraded(t.write(req, pass))
}

func (t *gated) upgradeRefused() error {
	return fmt.Errorf("election %s: %w", t.gate.election, ErrUpgrade)
}

// unlessUpgraded closes a connection that was upgraded unexpectedly.
func (t *gated) unlessUpgraded(resp *http.Response, err error) (*http.Response, error) {
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		return resp, err
	}
	t.gate.byGate.Inc()
	resp.Body.Close()
	return nil, t.upgradeRefused()
}

// write sends an admitted request and waits for the response until the caller's context ends. Drain waits for requests that
// the caller abandoned.
func (t *gated) write(req *http.Request, pass admitted) (*http.Response, error) {
	caller := req.Context()
	if caller.Done() == nil {
		return t.answered(caller, pass, t.send(req, pass))
	}
	result, abandoned := make(chan outcome), make(chan struct{})
	go func() { // ends with the validity at the latest; Drain waits for it
		o := t.send(req, pass)
		select {
		case result <- o:
		case <-abandoned:
			o.discard()
			pass.done()
		}
	}()
	select {
	case o := <-result:
		return t.answered(caller, pass, o)
	case <-caller.Done():
		close(abandoned)
		return nil, t.gate.unknown(pass, caller)
	}
}

// outcome is the response or error of a request.
type outcome struct {
	resp *http.Response
	err  error
}

func (o outcome) discard() {
	if o.err == nil {
		o.resp.Body.Close()
	}
}

// answered returns the response. The write stays pending until the caller closes the body, or one of the contexts ends. So a
// caller that never closes the body cannot block a drain forever.
func (t *gated) answered(caller context.Context, pass admitted, o outcome) (*http.Response, error) {
	if o.err != nil {
		defer pass.done()
		if pass.ctx.Err() != nil {
			return nil, t.gate.unknown(pass, caller)
		}
		return nil, o.err
	}
	late := context.AfterFunc(pass.ctx, pass.done)
	gone := context.AfterFunc(caller, pass.done)
	o.resp.Body = &answer{ReadCloser: o.resp.Body, caller: caller, done: func() {
		late()
		gone()
		pass.done()
	}}
	return o.resp, nil
}

// send sends a write and retries it while the fence rejects it.
func (t *gated) send(req *http.Request, pass admitted) outcome {
	wait, cancel := context.WithCancel(pass.ctx)
	defer cancel()
	defer context.AfterFunc(req.Context(), cancel)()
	req = detached(req, pass.ctx)
	for backoff := apirequest.Backoff(firstPause, lastPause); ; {
		resp, err := t.next.RoundTrip(req)
		if err != nil || !refused(resp) {
			return outcome{resp, err}
		}
		t.gate.byFence.Inc()
		again := repeat(req)
		if again == nil || apirequest.Pause(wait, backoff.Step()) != nil || t.gate.Check() != nil {
			return outcome{resp, nil}
		}
		resp.Body.Close()
		req = again
	}
}

// detached returns the request with another context and without the timeout of http.Client (rest.Config.Timeout), which uses
// a separate channel.
func detached(req *http.Request, ctx context.Context) *http.Request {
	req = req.WithContext(ctx)
	req.Cancel = nil //nolint:staticcheck // an http.Client sets it for round trippers that it does not know
	return req
}

// WrappedRoundTripper returns the inner transport, for client-go.
func (t *gated) WrappedRoundTripper() http.RoundTripper { return t.next }

type answer struct {
	io.ReadCloser
	caller context.Context
	done   func()
}

func (a *answer) Read(p []byte) (int, error) {
	n, err := a.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) && a.caller.Err() != nil {
		err = context.Cause(a.caller)
	}
	return n, err
}

func (a *answer) Close() error {
	defer a.done()
	return a.ReadCloser.Close()
}

// reviews are kinds whose creation changes nothing.
var reviews = []string{
	"subjectaccessreviews", "localsubjectaccessreviews", "selfsubjectaccessreviews",
	"selfsubjectrulesreviews", "selfsubjectreviews", "tokenreviews",
}

// isRead reports whether the request changes nothing.
func isRead(req *http.Request) bool {
	if subresource(req.URL.Path) == "proxy" {
		return false
	}
	switch req.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return true
	case http.MethodPost:
		return isReview(req.URL.Path)
	}
	return false
}

// upgrades reports whether the request upgrades its connection. client-go sets the Upgrade header below this transport, so
// upgrades also checks paths and protocols.
func upgrades(req *http.Request) bool {
	if req.Method == http.MethodConnect {
		return true
	}
	for _, header := range []string{"Upgrade", "Sec-Websocket-Protocol", "X-Stream-Protocol-Version"} {
		if req.Header.Get(header) != "" {
			return true
		}
	}
	switch subresource(req.URL.Path) {
	case "exec", "attach", "portforward":
		return true
	}
	return false
}

// isUpgrader reports whether a round tripper upgrades each connection, as in client-go's executors.
func isUpgrader(rt http.RoundTripper) bool {
	switch next := rt.(type) {
	case interface {
		Dial(*http.Request) (net.Conn, error) // SPDY
	}, interface{ DataBufferSize() int }: // WebSocket
		return true
	case interface{ WrappedRoundTripper() http.RoundTripper }:
		return isUpgrader(next.WrappedRoundTripper())
	}
	return false
}

// coreAPI is the path prefix of the kinds with subresources that upgrade.
const coreAPI = "/api/v1/"

// subresource returns the subresource in a path of the core API, or "".
func subresource(path string) string {
	at := strings.Index(path, coreAPI)
	if at < 0 {
		return ""
	}
	rest := path[at+len(coreAPI):]
	if after, ok := strings.CutPrefix(rest, "namespaces/"); ok {
		_, rest, _ = strings.Cut(after, "/") // a namespace's name
	}
	_, rest, _ = strings.Cut(rest, "/") // the kind
	_, rest, _ = strings.Cut(rest, "/") // the object's name
	word, _, _ := strings.Cut(rest, "/")
	return word
}

func isReview(path string) bool {
	if !strings.Contains(path, "/apis/authorization.k8s.io/") && !strings.Contains(path, "/apis/authentication.k8s.io/") {
		return false
	}
	return slices.Contains(reviews, path[strings.LastIndexByte(path, '/')+1:])
}
