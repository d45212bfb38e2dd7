package wire

import (
	"net/http"
	"strings"
)

// count wraps the transport of a client.
func (w *Wire) count(next http.RoundTripper) http.RoundTripper { return counter{w, next} }

type counter struct {
	wire *Wire
	next http.RoundTripper
}

func (c counter) RoundTrip(req *http.Request) (*http.Response, error) {
	what := describe(req)
	c.wire.mu.Lock()
	c.wire.counts[what]++
	c.wire.mu.Unlock()
	return c.next.RoundTrip(req)
}

// WrappedRoundTripper lets client-go find the wrapped transport.
func (c counter) WrappedRoundTripper() http.RoundTripper { return c.next }

var verbs = map[string]string{
	http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete",
}

// describe returns verb and resource: "get leases".
func describe(req *http.Request) string {
	resource, named := parse(req.URL.Path)
	verb := verbs[req.Method]
	switch {
	case verb != "":
	case req.URL.Query().Get("watch") == "true" || req.URL.Query().Get("watch") == "1":
		verb = "watch"
	case named:
		verb = "get"
	default:
		verb = "list"
	}
	return verb + " " + resource
}

// parse returns the resource of a path and whether the path names an object:
// /apis/GROUP/VERSION/namespaces/NAMESPACE/RESOURCE/NAME, or /api/VERSION/….
func parse(path string) (resource string, named bool) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	skip := map[string]int{"api": 2, "apis": 3}[parts[0]]
	if skip == 0 || len(parts) <= skip {
		return path, false
	}
	parts = parts[skip:]
	if parts[0] == "namespaces" && len(parts) > 2 {
		parts = parts[2:]
	}
	return parts[0], len(parts) > 1
}
