package revisions

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/pkg/kube"
)

// transport responds to the requests of a watcher and records them.
type transport struct {
	t  *testing.T
	mu sync.Mutex
	// all has the objects by resource, in wire form.
	all map[string][]any
	// forbidden and failing are requests that get an error, in the form of asked.
	forbidden, failing []string
	asked              []string
	watches            map[string][]*io.PipeWriter
}

func (s *transport) client() kube.Client {
	s.t.Helper()
	s.watches = map[string][]*io.PipeWriter{}
	c, err := kube.NewClient(&rest.Config{Host: "http://127.0.0.1:1"}, kube.WithRateLimit(-1, 0),
		kube.WithWrapTransport(func(http.RoundTripper) http.RoundTripper { return s }))
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

// RoundTrip implements http.RoundTripper.
func (s *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	query := req.URL.Query()
	path := strings.TrimPrefix(strings.TrimPrefix(req.URL.Path, "/apis/admissionregistration.k8s.io/v1/"), "/api/v1/")
	parts := strings.Split(path, "/")
	verb, resource := "list", parts[len(parts)-1]
	switch {
	case query.Get("watch") != "":
		verb = "watch"
	case len(parts) == 2:
		verb, resource = "get", parts[0]
	}
	what := verb + " " + path
	if selector := query.Get("labelSelector") + query.Get("fieldSelector"); selector != "" {
		what += " " + selector
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, what)
	switch {
	case slices.Contains(s.forbidden, what):
		return s.answer(req, http.StatusForbidden, metav1.Status{Status: "Failure", Reason: metav1.StatusReasonForbidden, Code: 403})
	case slices.Contains(s.failing, what):
		return s.answer(req, http.StatusInternalServerError, metav1.Status{Status: "Failure", Reason: metav1.StatusReasonInternalError, Code: 500})
	case verb == "get" && len(s.all[resource]) == 0:
		return s.answer(req, http.StatusNotFound, metav1.Status{Status: "Failure", Reason: metav1.StatusReasonNotFound, Code: 404})
	case verb == "get":
		return s.answer(req, http.StatusOK, s.all[resource][0])
	case verb == "watch":
		from, to := io.Pipe()
		s.watches[resource] = append(s.watches[resource], to)
		return &http.Response{StatusCode: http.StatusOK, Request: req, Header: http.Header{"Content-Type": {"application/json"}}, Body: from}, nil
	}
	return s.answer(req, http.StatusOK, map[string]any{"metadata": map[string]any{"resourceVersion": "5"}, "items": s.all[resource]})
}

func (s *transport) answer(req *http.Request, code int, what any) (*http.Response, error) {
	content, err := json.Marshal(what)
	return &http.Response{
		StatusCode: code, Request: req, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(string(content))),
	}, err
}

// show sends an event to the last watch of a resource.
func (s *transport) show(kind watch.EventType, resource string, object any) {
	s.t.Helper()
	content, err := json.Marshal(map[string]any{"type": kind, "object": object})
	s.mu.Lock()
	defer s.mu.Unlock()
	open := s.watches[resource]
	if err != nil || len(open) == 0 {
		s.t.Fatalf("no watch of %s: %v", resource, err)
	}
	if _, err := open[len(open)-1].Write(append(content, '\n')); err != nil {
		s.t.Fatal(err)
	}
}

// cut ends the watches of a resource.
func (s *transport) cut(resource string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.watches[resource] {
		_ = w.Close()
	}
	s.watches[resource] = nil
}

// set changes objects and permissions.
func (s *transport) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// count returns the number of requests.
func (s *transport) count(what string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.asked {
		if one == what {
			n++
		}
	}
	return n
}

// wire returns the wire form of an object.
func wire(kind, name string, labels map[string]string, more ...map[string]any) map[string]any {
	version := "v1"
	if kind != "Service" {
		version = "admissionregistration.k8s.io/v1"
	}
	o := map[string]any{
		"kind": kind, "apiVersion": version,
		"metadata": map[string]any{"name": name, "labels": labels, "resourceVersion": "9"},
	}
	for _, m := range more {
		for key, value := range m {
			o[key] = value
		}
	}
	return o
}

// calling is a webhook that calls a Service in a namespace.
func calling(namespace string) map[string]any {
	return map[string]any{"webhooks": []any{map[string]any{"name": "a", "clientConfig": map[string]any{"service": map[string]any{"namespace": namespace, "name": "istiod"}}}}}
}
