package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// ErrConnection is the error of a request without a reply.
var ErrConnection = errors.New("connection refused by the test")

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

// Fault changes the response to a request. The zero value changes nothing.
type Fault struct {
	// Delay is the time before the server executes the request.
	Delay time.Duration
	// Err is the response. If it is not an APIStatus, the client receives no response but this error.
	Err error
	// Object is the response.
	Object any
	// Lost executes the request, but the client receives ErrConnection.
	Lost bool
	// Hang does not execute the request. The client waits until its context ends.
	Hang bool
}

// parse reads the request. The caller closes the body.
func parse(req *http.Request) (Request, error) {
	r := Request{
		Verb: map[string]string{
			http.MethodGet: "get", http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete",
		}[req.Method],
		URL: req.URL, Header: req.Header, At: time.Now(),
	}
	if deadline, ok := req.Context().Deadline(); ok {
		r.Limit = time.Until(deadline)
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
func (s *Server) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		defer req.Body.Close() //nolint:errcheck // it is a reader of the test
	}
	r, err := parse(req)
	if err != nil {
		return nil, err
	}
	fault := s.received(r)
	if fault.Hang {
		<-req.Context().Done()
		return nil, context.Cause(req.Context())
	}
	select {
	case <-time.After(fault.Delay):
	case <-req.Context().Done():
		return nil, context.Cause(req.Context())
	}
	answer, err := fault.Object, fault.Err
	if answer == nil && err == nil {
		if r.Verb == "watch" {
			answer, err = s.watch(req.Context(), r)
		} else {
			answer, err = s.serve(r)
		}
	}
	if fault.Lost {
		return nil, ErrConnection
	}
	return respond(req, answer, err)
}

// respond encodes an answer, a stream, or an error.
func respond(req *http.Request, answer any, err error) (*http.Response, error) {
	code := http.StatusOK
	var failed apierrors.APIStatus
	if errors.As(err, &failed) {
		status := failed.Status()
		status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
		answer, code, err = status, int(status.Code), nil
	}
	body, isStream := answer.(io.ReadCloser)
	if err == nil && !isStream {
		var raw []byte
		raw, err = json.Marshal(answer)
		body = io.NopCloser(strings.NewReader(string(raw)))
	}
	if err != nil {
		return nil, err
	}
	header := http.Header{"Content-Type": {"application/json"}, "Date": {time.Now().UTC().Format(http.TimeFormat)}}
	return &http.Response{StatusCode: code, Header: header, Body: body, Request: req}, nil
}
