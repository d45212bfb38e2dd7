package witness

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// A kubeconfig can be incomplete while another process replaces it.
func TestShared_ConnectFails(t *testing.T) {
	var fails error
	get := Options{Connect: func(string) (*rest.Config, error) { return &rest.Config{}, fails }}.shared("")
	first, err := get(clients{})
	if err != nil {
		t.Fatal(err)
	}
	fails = errors.New("incomplete kubeconfig")
	if _, err := get(first); !errors.Is(err, fails) {
		t.Errorf("error %v, want %v", err, fails)
	}
	fails = nil
	if second, err := get(first); err != nil || second.core == nil || second == first {
		t.Errorf("after the error: %v, %v, want other clients", second, err)
	}
}

// slowServer is an API server with a Lease. It answers after the delay.
type slowServer struct {
	lease coordinationv1.Lease
	delay time.Duration
}

func (s *slowServer) RoundTrip(req *http.Request) (*http.Response, error) {
	select {
	case <-time.After(s.delay):
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
	if req.Method == http.MethodPut {
		raw, err := io.ReadAll(req.Body)
		if err != nil {
			return nil, err
		}
		if err := runtime.DecodeInto(scheme.Codecs.UniversalDeserializer(), raw, &s.lease); err != nil {
			return nil, err
		}
	}
	raw, err := runtime.Encode(scheme.Codecs.LegacyCodec(coordinationv1.SchemeGroupVersion), &s.lease)
	header := http.Header{"Content-Type": {runtime.ContentTypeJSON}}
	return &http.Response{StatusCode: http.StatusOK, Header: header, Body: io.NopCloser(bytes.NewReader(raw)), Request: req}, err
}

// The timeout applies to a request, not to all requests of a release.
func TestRelease_SlowServer(t *testing.T) {
	for delay, holder := range map[time.Duration]string{callTimeout * 3 / 4: "", callTimeout * 5 / 4: "a"} {
		synctest.Test(t, func(t *testing.T) {
			now := metav1.NewMicroTime(time.Now())
			server := &slowServer{delay: delay, lease: coordinationv1.Lease{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: "n", Name: "l", UID: "u", ResourceVersion: "1",
					Annotations: map[string]string{k8sresourcelock.MarkerAnnotation: "v1 a 0"},
				},
				Spec: coordinationv1.LeaseSpec{
					HolderIdentity: new("a"), LeaseDurationSeconds: new(int32(30)), LeaseTransitions: new(int32(0)), AcquireTime: &now, RenewTime: &now,
				},
			}}
			o := Options{
				Connect: func(string) (*rest.Config, error) { return &rest.Config{Transport: server}, nil },
				Logger:  slog.New(slog.NewTextHandler(t.Output(), nil)),
			}
			r := registration{WitnessedTerm: k8sleaderelection.WitnessedTerm{
				LockType: "leases", Namespace: "n", Name: "l", Holder: "a", UID: "u", Acquired: now.UnixMicro(), Lease: 30 * time.Second,
			}}
			o.release(t.Context(), terms{r.key(): r}, 0)
			if got := *server.lease.Spec.HolderIdentity; got != holder {
				t.Errorf("delay %v: holder %q, want %q", delay, got, holder)
			}
		})
	}
}
