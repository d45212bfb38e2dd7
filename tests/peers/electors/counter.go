package electors

import (
	"cmp"
	"maps"
	"net/http"
	"sync"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// Counter counts requests. Its zero value is empty.
type Counter struct {
	mu        sync.Mutex
	counts    map[string]int
	conflicts int
}

// Conflicts returns the number of requests that were rejected because of another version.
func (c *Counter) Conflicts() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.conflicts
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
	resp, err := c.next.RoundTrip(req)
	if err == nil && resp.StatusCode == http.StatusConflict {
		c.by.mu.Lock()
		c.by.conflicts++
		c.by.mu.Unlock()
	}
	return resp, err
}

// WrappedRoundTripper lets client-go find the wrapped transport.
func (c counted) WrappedRoundTripper() http.RoundTripper { return c.next }

// infos reads verb and resource from a request, as the API server does.
var infos = request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}

// describe returns verb and resource: "get leases". Other requests have a path.
func describe(req *http.Request) string {
	info, err := infos.NewRequestInfo(req)
	if err != nil {
		return err.Error()
	}
	return info.Verb + " " + cmp.Or(info.Resource, info.Path)
}
