package install

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// scripted is an API server without objects that responds to some requests as defined by the test.
// Tests on a real API server show the effect of policies.
type scripted struct {
	kubernetes.Interface
	writes []string
	answer func(verb, resource string) (any, error) // nil, nil: as if nothing were there
	seen   func(verb string, r *http.Request)
}

func newScripted(t *testing.T, answer func(verb, resource string) (any, error)) *scripted {
	t.Helper()
	s := &scripted{answer: answer, seen: func(string, *http.Request) {}}
	var err error
	s.Interface, err = kubernetes.NewForConfig(&rest.Config{Host: "http://10.0.0.1", QPS: -1, WrapTransport: func(http.RoundTripper) http.RoundTripper { return s }})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// failing fails at one thing.
func failing(t *testing.T, verb, resource string, with error) *scripted {
	return newScripted(t, func(v, r string) (any, error) {
		if v == verb && r == resource {
			return nil, with
		}
		return nil, nil
	})
}

func (s *scripted) RoundTrip(r *http.Request) (*http.Response, error) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	resource, named := parts[len(parts)-1], false
	if n := len(parts); !slices.Contains([]string{bothPolicies, bothBindings, "configmaps"}, resource) && n > 1 {
		resource, named = parts[n-2], true
	}
	verb := map[string]string{http.MethodPatch: "patch", http.MethodPut: "update", http.MethodPost: "create", http.MethodDelete: "delete"}[r.Method]
	switch {
	case verb != "":
		s.writes = append(s.writes, verb+" "+resource)
	case named:
		verb = "get"
	case r.URL.Query().Get("watch") != "":
		verb = "watch"
	default:
		verb = "list"
	}
	s.seen(verb, r)
	value, err := s.answer(verb, resource)
	if value == nil && err == nil && verb == "watch" {
		<-r.Context().Done() // nothing changes
		return nil, r.Context().Err()
	}
	if value == nil && err == nil && verb == "list" {
		value = map[string]any{"kind": map[string]string{bothPolicies: policyKind, bothBindings: bindingKind}[resource] + "List", "apiVersion": "admissionregistration.k8s.io/v1", "metadata": map[string]any{"resourceVersion": "5"}, "items": []any{}}
	} else if value == nil && err == nil {
		err = apierrors.NewNotFound(schema.GroupResource{Resource: resource}, "x")
	}
	code := http.StatusOK
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		answer := status.Status()
		answer.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
		value, code, err = answer, int(answer.Code), nil
	}
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(value)
	return &http.Response{StatusCode: code, Request: r, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body))}, err
}

const bothPolicies, bothBindings = "validatingadmissionpolicies", "validatingadmissionpolicybindings"
