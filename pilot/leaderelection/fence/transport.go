package fence

import (
	"io"
	"net/http"
	"strings"
)

// Transport returns a round tripper that lets writes pass to next only while the gate
// is open. Give it to rest.Config.Wrap; every client made of that configuration is
// then gated.
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
	ctx, done, err := t.gate.admit(req.Context())
	if err != nil {
		if req.Body != nil {
			req.Body.Close()
		}
		return nil, err
	}
	resp, err := t.next.RoundTrip(req.WithContext(ctx))
	if err != nil {
		done()
		return nil, err
	}
	// The answer is still being read: its context must live until that is over.
	resp.Body = &answer{ReadCloser: resp.Body, done: done}
	return resp, nil
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

// isRead reports whether the request changes nothing. A request to upgrade the
// connection (exec, attach, port-forward) counts as a write whatever its verb.
func isRead(req *http.Request) bool {
	if req.Header.Get("Upgrade") != "" {
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

func isReview(path string) bool {
	group := strings.Contains(path, "/apis/authorization.k8s.io/") || strings.Contains(path, "/apis/authentication.k8s.io/")
	last := path[strings.LastIndexByte(path, '/')+1:]
	for _, kind := range reviews {
		if group && last == kind {
			return true
		}
	}
	return false
}
