package requests

import (
	"maps"
	"net/http"
	"regexp"
	"sync"
)

// Counter counts requests. Its zero value is empty.
type Counter struct {
	mu     sync.Mutex
	counts map[string]int
}

// Counts returns the number of requests so far by verb and resource, for example "update leases".
func (c *Counter) Counts() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.counts)
}

// Wrap wraps the transport of a client.
func (c *Counter) Wrap(next http.RoundTripper) http.RoundTripper { return counted{c, next} }

type counted struct {
	by   *Counter
	next http.RoundTripper
}

func (c counted) RoundTrip(req *http.Request) (*http.Response, error) {
	what := describe(req)
	c.by.mu.Lock()
	if c.by.counts == nil {
		c.by.counts = map[string]int{}
	}
	c.by.counts[what]++
	c.by.mu.Unlock()
	return c.next.RoundTrip(req)
}

// WrappedRoundTripper lets client-go find the wrapped transport.
func (c counted) WrappedRoundTripper() http.RoundTripper { return c.next }

// object matches the path of a resource, with the name of an object if there is one.
var object = regexp.MustCompile(`^/(?:api|apis/[^/]+)/[^/]+/(?:namespaces/[^/]+/)?([^/]+)(/.+)?`)

var verbs = map[string]string{
	http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete",
}

// describe returns verb and resource: "get leases".
func describe(req *http.Request) string {
	resource, named := req.URL.Path, false
	if parts := object.FindStringSubmatch(resource); parts != nil {
		resource, named = parts[1], parts[2] != ""
	}
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
