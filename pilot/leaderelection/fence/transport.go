package fence

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Transport returns a round tripper that lets writes pass to next only while the gate
// is open. Give it to rest.Config.Wrap; every client made of that configuration is
// then gated: client-go's, dynamic ones, controller-runtime's.
//
// Reads always pass: GET, HEAD and OPTIONS, and what is asked by POST and changes
// nothing, which is SubjectAccessReview, LocalSubjectAccessReview, SelfSubjectAccessReview,
// SelfSubjectRulesReview, SelfSubjectReview and TokenReview. Everything else is a write,
// dry runs and requests through a proxy subresource included. A connection that is to
// be upgraded is refused whoever leads: ErrUpgrade.
//
// A write that the fence refuses although the gate is open is tried again during the
// first second of a term, because the API server that judges it may not have heard of
// the new holder yet. It was refused, so that sending it again does nothing twice.
func (g *Gate) Transport(next http.RoundTripper) http.RoundTripper {
	return &gated{gate: g, next: next}
}

type gated struct {
	gate *Gate
	next http.RoundTripper
}

func (t *gated) RoundTrip(req *http.Request) (*http.Response, error) {
	if isRead(req) {
		return t.next.RoundTrip(req)
	}
	pass, err := t.gate.admit(req.Context())
	if err == nil && upgrades(req) {
		pass.done()
		err = fmt.Errorf("election %s: %w", t.gate.election, ErrUpgrade)
	}
	if err != nil {
		t.gate.byGate.Inc()
		if req.Body != nil {
			req.Body.Close()
		}
		return nil, err
	}
	resp, err := t.send(req, pass)
	if err != nil {
		pass.done()
		return nil, err
	}
	// The answer is still being read: its context must live until that is over.
	// But a caller that never closes it must not keep a drain waiting for ever.
	late := context.AfterFunc(pass.ctx, pass.done)
	resp.Body = &answer{ReadCloser: resp.Body, done: func() {
		late()
		pass.done()
	}}
	return resp, nil
}

// send sends a write, again and again while the term is new and the fence refuses it.
func (t *gated) send(req *http.Request, pass admitted) (*http.Response, error) {
	caller := req.Context()
	req = req.WithContext(pass.ctx)
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		resp, err := t.next.RoundTrip(req)
		if err != nil || !refused(resp) {
			return resp, err
		}
		t.gate.byFence.Inc()
		if pass.fresh.Left(t.gate.clock.Now()) <= 0 {
			return resp, nil
		}
		again := repeat(req)
		if again == nil || !linger(pause, caller, pass.ctx) || t.gate.Check() != nil {
			return resp, nil
		}
		resp.Body.Close()
		req = again
	}
}

// linger waits, and reports whether both contexts are still alive.
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
	done func()
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
	if upgrades(req) || subresource(req.URL.Path) == "proxy" {
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
	if req.Header.Get("Upgrade") != "" || req.Header.Get("Sec-Websocket-Protocol") != "" {
		return true
	}
	switch subresource(req.URL.Path) {
	case "exec", "attach", "portforward":
		return true
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
