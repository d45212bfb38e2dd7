package requests

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"testing"
)

type noTransport struct{}

func (noTransport) RoundTrip(*http.Request) (*http.Response, error) { return nil, http.ErrServerClosed }

func TestCounts(t *testing.T) {
	var c Counter
	transport := c.Wrap(noTransport{})
	for _, request := range [][2]string{
		{"GET", "/apis/coordination.k8s.io/v1/namespaces/a/leases/b"},
		{"GET", "/apis/coordination.k8s.io/v1/namespaces/a/leases?watch=true"},
		{"GET", "/apis/coordination.k8s.io/v1/namespaces/a/leases?watch=1"},
		{"GET", "/apis/admissionregistration.k8s.io/v1/webhooks"},
		{"GET", "/api/v1/namespaces/n"},
		{"PUT", "/api/v1/namespaces/x/configmaps/y"},
		{"GET", "/version"},
	} {
		if _, err := transport.RoundTrip(httptest.NewRequest(request[0], request[1], nil)); err == nil { //nolint:bodyclose // no response
			t.Error("the request was not sent")
		}
	}
	if want := map[string]int{
		"get leases": 1, "watch leases": 2, "list webhooks": 1, "get namespaces": 1, "update configmaps": 1, "list /version": 1,
	}; !maps.Equal(c.Counts(), want) {
		t.Errorf("counts %v, want %v", c.Counts(), want)
	}
}
