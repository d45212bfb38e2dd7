package fence

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"incumbent.dev/incumbent/pkg/kube"
)

// Transport returns a round tripper that lets writes pass to next only while the gate
// is open. Give it to rest.Config.Wrap; every client made of that configuration is
// then gated: client-go's, dynamic ones, controller-runtime's.
//
// Reads always pass: GET, HEAD and OPTIONS, and what is asked by POST and changes
// nothing, which is SubjectAccessReview, LocalSubjectAccessReview, SelfSubjectAccessReview,
// SelfSubjectRulesReview, SelfSubjectReview and TokenReview. Everything else is a write,
// dry runs and requests through a proxy subresource included. A request to upgrade its
// connection is refused whoever leads: with ErrNotLeader while the gate is shut, otherwise
// with ErrUpgrade.
//
// A write that the fence refuses although the gate is open is tried again for as long as
// the cover lasts and the caller waits, because the API server that judges it may not have
// seen the new holder yet. It was refused, so that sending it again applies nothing twice.
//
// A write that was sent is waited for by Drain until it is answered or its cover has ended,
// whatever its caller does: the caller's context, and the time-out of its client, end its
// own wait alone. A caller that gives up before the answer gets ErrOutcomeUnknown.
//
// A request whose context comes from a run function passes in that function's term alone
// (k8sleaderelection.TermFromContext).
func (g *Gate) Transport(next http.RoundTripper) http.RoundTripper {
	return &gated{gate: g, next: next, upgrading: isUpgrader(next)}
}

// AllowUpgrades declares the requests that may upgrade their connection while the gate is
// open, all others that match included: the gate asks whether it is open when they begin, and
// no more. Such a connection outlives the term, what is written into it is bound by nothing
// here, and no drain waits for it. A second call replaces the first.
func (g *Gate) AllowUpgrades(declared func(*http.Request) bool) { g.declared.Store(&declared) }

func (g *Gate) allowsUpgrade(req *http.Request) bool {
	declared := g.declared.Load()
	return declared != nil && *declared != nil && (*declared)(req)
}

type gated struct {
	gate      *Gate
	next      http.RoundTripper
	upgrading bool // next turns whatever it is given into a connection of its own
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

// unlessUpgraded ends a connection that was upgraded although nothing in its request said that it would be.
func (t *gated) unlessUpgraded(resp *http.Response, err error) (*http.Response, error) {
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		return resp, err
	}
	t.gate.byGate.Inc()
	resp.Body.Close()
	return nil, t.upgradeRefused()
}

// write sends an admitted write and waits for its answer: as long as the caller does. What
// comes after that is for the drain.
func (t *gated) write(req *http.Request, pass admitted) (*http.Response, error) {
	caller := req.Context()
	if caller.Done() == nil {
		return t.answered(caller, pass, t.send(req, pass))
	}
	result, abandoned := make(chan outcome), make(chan struct{})
	go func() { // ends with the cover at the latest; Drain waits for it
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

// outcome is a request's answer or error.
type outcome struct {
	resp *http.Response
	err  error
}

func (o outcome) discard() {
	if o.err == nil {
		o.resp.Body.Close()
	}
}

// answered hands the answer on. It is still being read: its context lasts until that is
// over, or the caller's is. But a caller that never closes it must not keep a drain waiting
// for ever.
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

// send sends a write, again and again while the fence refuses it.
func (t *gated) send(req *http.Request, pass admitted) outcome {
	caller := req.Context()
	req = detached(req, pass.ctx)
	for backoff := kube.Backoff(firstPause, lastPause); ; {
		resp, err := t.next.RoundTrip(req)
		if err != nil || !refused(resp) {
			return outcome{resp, err}
		}
		t.gate.byFence.Inc()
		again := repeat(req)
		if again == nil || !linger(backoff.Step(), caller, pass.ctx) || t.gate.Check() != nil {
			return outcome{resp, nil}
		}
		resp.Body.Close()
		req = again
	}
}

// detached is the request with another context. It does not end with the time-out of an
// http.Client (rest.Config.Timeout) either, which comes in a channel beside the context.
func detached(req *http.Request, ctx context.Context) *http.Request {
	req = req.WithContext(ctx)
	req.Cancel = nil //nolint:staticcheck // an http.Client sets it for round trippers that it does not know
	return req
}

// linger waits, and reports whether neither context has ended.
func linger(pause time.Duration, one, other context.Context) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-one.Done():
	case <-other.Done():
	}
	return false
}

// WrappedRoundTripper lets client-go find the transport below.
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

// reviews are the kinds that are asked by POST and change nothing.
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

// upgrades reports whether the request is to become a connection of its own. client-go
// sets the header that says so below this transport; its paths and protocols tell.
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

// isUpgrader reports whether a round tripper makes connections of its own of all that it is
// given, as those of client-go's executors do; they set the headers further down.
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

// coreAPI begins the path of the only kinds with subresources that connect.
const coreAPI = "/api/v1/"

// subresource is the one that a path of the core API names, or "".
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
