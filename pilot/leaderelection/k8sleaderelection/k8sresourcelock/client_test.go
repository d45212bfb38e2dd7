package k8sresourcelock

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// A server that stores the write and then answers 503: client-go alone sends it again
// and reports the conflict with its own first write.
func TestClientConfigSendsOnce(t *testing.T) {
	var requests atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		status := apierrors.NewServiceUnavailable("going away").Status()
		if requests.Add(1) > 1 {
			status = apierrors.NewConflict(configMaps.resource, "istio-leader", nil).Status()
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Retry-After", "0")
		w.WriteHeader(int(status.Code))
		_ = json.NewEncoder(w).Encode(status)
	}))
	defer server.Close()
	base := &rest.Config{Host: server.URL, QPS: 7}
	config := ClientConfig(base)
	if base.QPS != 7 || base.WrapTransport != nil || config.QPS >= 0 {
		t.Errorf("base %v, derived QPS %v", base, config.QPS)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	l := lockOn(client.CoreV1())
	_, err = l.Write(t.Context(), Snapshot{Exists: true, UID: "u", ResourceVersion: "7", Object: configMap("istio-leader", "7")}, golden, nil)
	if IsConflict(err) || !apierrors.IsServiceUnavailable(err) || requests.Load() != 1 {
		t.Errorf("%d requests, error %v; want one, and its answer", requests.Load(), err)
	}
}

// What a 429 asks for comes through to whoever asks apierrors, whatever its body was.
func TestClientConfigKeepsTheDelay(t *testing.T) {
	for name, body := range map[string]string{
		"text":     "Too many requests, please try again later.\n",
		"a status": `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"TooManyRequests","message":"busy","code":429}`,
		"nothing":  "",
	} {
		t.Run(name, func(t *testing.T) {
			var requests atomic.Int32
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				requests.Add(1)
				w.Header().Set("Retry-After", "7")
				w.WriteHeader(http.StatusTooManyRequests)
				_, _ = w.Write([]byte(body))
			}))
			defer server.Close()
			client, err := kubernetes.NewForConfig(ClientConfig(&rest.Config{Host: server.URL}))
			if err != nil {
				t.Fatal(err)
			}
			_, err = lockOn(client.CoreV1()).Read(t.Context())
			seconds, _ := apierrors.SuggestsClientDelay(err)
			if !apierrors.IsTooManyRequests(err) || !IsRefused(err) || seconds != 7 || requests.Load() != 1 {
				t.Errorf("%d requests, delay %d, error %v; want one, and a 429 with its delay", requests.Load(), seconds, err)
			}
		})
	}
}

// Only what an API server has certainly not done is refused.
func TestIsRefused(t *testing.T) {
	resource := configMaps.resource
	half := unknown(apierrors.NewForbidden(resource, "x", nil))
	for name, try := range map[string]struct {
		err  error
		want bool
	}{
		"forbidden":      {apierrors.NewForbidden(resource, "x", nil), true},
		"invalid":        {apierrors.NewInvalid(schema.GroupKind{Kind: "ConfigMap"}, "x", nil), true},
		"too many":       {apierrors.NewTooManyRequests("busy", 1), true},
		"half":           {half, false},
		"conflict":       {fmt.Errorf("%w: %w", ErrConflict, apierrors.NewNotFound(resource, "x")), false},
		"unavailable":    {apierrors.NewServiceUnavailable("away"), false},
		"internal":       {apierrors.NewInternalError(errNoObject), false},
		"server timeout": {apierrors.NewServerTimeout(resource, "update", 1), false},
		"no answer":      {errNoObject, false},
		"none":           {nil, false},
	} {
		if got := IsRefused(try.err); got != try.want {
			t.Errorf("%s: refused %v, want %v", name, got, try.want)
		}
	}
	if !apierrors.IsForbidden(half) {
		t.Errorf("what is half done has lost its cause: %v", half)
	}
}
