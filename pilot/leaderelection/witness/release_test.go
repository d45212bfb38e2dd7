package witness

import (
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/internal/testutil/apiserver"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

// A kubeconfig can be incomplete while another process replaces it.
func TestShared_ConnectFails(t *testing.T) {
	var fails error
	get := Options{Connect: func(string) (*rest.Config, error) { return &rest.Config{}, fails }}.shared("")
	first, err := get(clients{})
	harness.Must(t, err)
	fails = errors.New("incomplete kubeconfig")
	if _, err := get(first); !errors.Is(err, fails) {
		t.Errorf("error %v, want %v", err, fails)
	}
	fails = nil
	if second, err := get(first); err != nil || second.core == nil || second == first {
		t.Errorf("after the error: %v, %v, want other clients", second, err)
	}
}

// The timeout applies to a request, not to all requests of a release.
func TestRelease_SlowServer(t *testing.T) {
	for delay, holder := range map[time.Duration]string{callTimeout * 3 / 4: "", callTimeout * 5 / 4: "a"} {
		synctest.Test(t, func(t *testing.T) {
			now := metav1.NewMicroTime(time.Now())
			server := apiserver.New(&coordinationv1.Lease{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: "n", Name: "l", UID: "u",
					Annotations: map[string]string{record.MarkerAnnotation: "v1 a 0"},
				},
				Spec: coordinationv1.LeaseSpec{
					HolderIdentity: new("a"), LeaseDurationSeconds: new(int32(30)), LeaseTransitions: new(int32(0)), AcquireTime: &now, RenewTime: &now,
				},
			})
			server.On(func(apiserver.Request) apiserver.Fault { return apiserver.Fault{Before: delay} })
			o := Options{
				Connect: func(string) (*rest.Config, error) { return server.Config(), nil },
				Logger:  slog.New(slog.NewTextHandler(t.Output(), nil)),
			}
			r := registration{WitnessedTerm: k8sleaderelection.WitnessedTerm{
				LockType: "leases", Namespace: "n", Name: "l", Holder: "a", UID: "u", Acquired: now.UnixMicro(), Lease: 30 * time.Second,
			}}
			o.release(t.Context(), terms{r.key(): r}, 0)
			var lease coordinationv1.Lease
			server.Get("leases", "n", "l", &lease)
			if got := *lease.Spec.HolderIdentity; got != holder {
				t.Errorf("delay %v: holder %q, want %q", delay, got, holder)
			}
		})
	}
}
