package k8sresourcelock

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
