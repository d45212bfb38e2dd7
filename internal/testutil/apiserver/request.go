package apiserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"go.uber.org/atomic"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// Request is a request to the server.
type Request struct {
	// Verb is get, list, watch, create, update, patch or delete.
	Verb string
	// Version, Resource, Namespace, Name and Subresource identify the object. Requests for other paths have none of them.
	Version                                schema.GroupVersion
	Resource, Namespace, Name, Subresource string
	URL                                    *url.URL
	Header                                 http.Header
	// Body is the object or patch that the client sent. A JSON patch has the key "operations".
	Body map[string]any
	// At is the time at which the server received the request.
	At time.Time
	// Limit is the time until the deadline of the request, 0 if it has none.
	Limit time.Duration
}

// String returns the verb and the object, such as "update leases n/x".
func (r Request) String() string {
	if r.Resource == "" {
		return r.Verb + " " + r.URL.Path
	}
	object := strings.Trim(strings.Join([]string{r.Namespace, r.Name, r.Subresource}, "/"), "/")
	return strings.TrimSpace(r.Verb + " " + r.Resource + " " + object)
}

// parse reads the request. The caller closes the body.
func parse(req *http.Request) (Request, error) {
	r := Request{
		Verb: map[string]string{
			http.MethodGet: "get", http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete",
		}[req.Method],
		URL: req.URL, Header: req.Header,
	}
	r.parsePath(strings.Split(strings.Trim(req.URL.Path, "/"), "/"))
	switch query := req.URL.Query(); {
	case r.Resource == "" || r.Verb != "get":
	case query.Get("watch") != "" && query.Get("watch") != "false":
		r.Verb = "watch"
	case r.Name == "":
		r.Verb = "list"
	}
	if req.Body == nil {
		return r, nil
	}
	raw, err := io.ReadAll(req.Body)
	if err != nil || len(raw) == 0 {
		return r, err
	}
	switch raw[0] {
	case '[':
		raw = fmt.Appendf(nil, `{"operations":%s}`, raw)
		fallthrough
	case '{':
		return r, json.Unmarshal(raw, &r.Body)
	}
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(raw, nil, nil) // protobuf
	if err != nil {
		return r, err
	}
	r.Body, err = runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	return r, err
}

// parsePath reads a path such as apis/GROUP/VERSION/namespaces/NAMESPACE/RESOURCE/NAME/SUBRESOURCE.
func (r *Request) parsePath(path []string) {
	switch {
	case len(path) > 2 && path[0] == "api":
		r.Version.Version = path[1]
		path = path[2:]
	case len(path) > 3 && path[0] == "apis":
		r.Version = schema.GroupVersion{Group: path[1], Version: path[2]}
		path = path[3:]
	default:
		return
	}
	if len(path) > 2 && path[0] == "namespaces" {
		r.Namespace = path[1]
		path = path[2:]
	}
	for i, field := range []*string{&r.Resource, &r.Name, &r.Subresource} {
		if i < len(path) {
			*field = path[i]
		}
	}
}

// RoundTrip implements http.RoundTripper.
func (c *Client) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		defer req.Body.Close() //nolint:errcheck // it is a reader of the test
	}
	r, err := parse(req)
	if err != nil {
		return nil, err
	}
	r.At = time.Now()
	if deadline, ok := req.Context().Deadline(); ok {
		r.Limit = time.Until(deadline)
	}
	f := c.received(r)
	answer, err := c.exchange(req.Context(), r, f)
	response, err := respond(req, answer, err)
	if err == nil {
		maps.Copy(response.Header, f.Header)
	}
	return response, err
}

// Listen serves the client on a TCP port until the test ends. It returns the URL and the number of open connections.
func (c *Client) Listen(t testing.TB) (url string, open *atomic.Int32) {
	open = &atomic.Int32{}
	front := httptest.NewUnstartedServer(c)
	front.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			open.Inc()
		case http.StateClosed, http.StateHijacked:
			open.Dec()
		case http.StateActive, http.StateIdle:
		}
	}
	front.Start()
	t.Cleanup(front.Close)
	return front.URL, open
}

// ServeHTTP implements http.Handler.
func (c *Client) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	response, err := c.RoundTrip(req)
	if err != nil {
		panic(http.ErrAbortHandler) // no response
	}
	defer response.Body.Close() //nolint:errcheck // it is a reader of the test
	maps.Copy(w.Header(), response.Header)
	w.WriteHeader(response.StatusCode)
	buffer := make([]byte, 32<<10)
	for err == nil {
		var n int
		n, err = response.Body.Read(buffer)
		_, _ = w.Write(buffer[:n]) // a client that has gone ends its request
		_ = http.NewResponseController(w).Flush()
	}
}

var statusType = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}

// respond encodes an answer, a watch, or an error.
func respond(req *http.Request, answer any, err error) (*http.Response, error) {
	code := http.StatusOK
	var failed apierrors.APIStatus
	if errors.As(err, &failed) {
		status := failed.Status()
		status.TypeMeta = statusType
		answer, code, err = status, int(status.Code), nil
	}
	if err != nil {
		return nil, err
	}
	header := http.Header{"Content-Type": {"application/json"}, "Date": {time.Now().UTC().Format(http.TimeFormat)}}
	response := &http.Response{StatusCode: code, Header: header, Request: req}
	if w, ok := answer.(*watcher); ok {
		response.Body = &body{watcher: w}
		return response, nil
	}
	raw, err := json.Marshal(answer)
	response.Body = io.NopCloser(bytes.NewReader(raw))
	return response, err
}
