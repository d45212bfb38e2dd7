package k8sresourcelock

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"

	"incumbent.dev/incumbent/internal/testutil/apiserver"
	"incumbent.dev/incumbent/internal/testutil/harness"
)

// The server stores the write and returns 503. client-go alone would send the write again and report a conflict with it.
func TestClient_SendsOnce(t *testing.T) {
	server := apiserver.New()
	base := server.Config()
	base.QPS, base.Burst = 7, 7
	requests := 0
	server.On(func(apiserver.Request) apiserver.Fault {
		if requests++; requests > 1 {
			return apiserver.Fault{Err: apierrors.NewConflict(configMaps.resource, "istio-leader", nil)}
		}
		return apiserver.Fault{Err: apierrors.NewServiceUnavailable("going away"), Header: http.Header{"Retry-After": {"0"}}}
	})
	for name, lock := range clientsOf(t, base) {
		requests = 0
		_, err := lock.Write(t.Context(), Snapshot{Exists: true, UID: "u", ResourceVersion: "7", Object: configMap("istio-leader", "7")}, golden, nil)
		if IsConflict(err) || !apierrors.IsServiceUnavailable(err) || requests != 1 {
			t.Errorf("%s: %d requests, error %v; want one, and its answer", name, requests, err)
		}
	}
	if base.QPS != 7 || ClientConfig(base).QPS >= 0 {
		t.Errorf("base %v", base)
	}
	server.On(func(apiserver.Request) apiserver.Fault { return apiserver.Fault{Lose: apiserver.TheRequest} })
	for name, lock := range clientsOf(t, base) {
		if _, err := lock.Read(t.Context()); err == nil || IsConflict(err) {
			t.Errorf("%s without a server: error %v", name, err)
		}
	}
}

// clientsOf returns locks with the two kinds of clients that send each request once.
func clientsOf(t *testing.T, base *rest.Config) map[string]*ConfigMapLock {
	t.Helper()
	all := map[string]*ConfigMapLock{}
	for name, config := range map[string]*rest.Config{"ClientConfig": ClientConfig(base), "clientset": base} {
		set, err := kubernetes.NewForConfig(config)
		harness.Must(t, err)
		all[name] = lockOn(set.CoreV1())
		if name == "ClientConfig" {
			all[name] = lockOn(wrapped{set.CoreV1()})
		}
	}
	return all
}

// wrapped hides the type of a client.
type wrapped struct{ corev1client.CoreV1Interface }

// The delay of a 429 reaches apierrors for every kind of body, unless the lock has a client of the caller.
func TestClient_RetryAfter(t *testing.T) {
	for name, body := range map[string]string{
		"text":     "Too many requests, please try again later.\n",
		"a status": `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"TooManyRequests","message":"busy","code":429}`,
		"nothing":  "",
	} {
		t.Run(name, func(t *testing.T) {
			var requests atomic.Int32
			busy := transport(func(*http.Request) (*http.Response, error) {
				requests.Add(1)
				header := http.Header{"Retry-After": {"7"}, "Content-Type": {"text/plain"}}
				return &http.Response{StatusCode: http.StatusTooManyRequests, Header: header, Body: io.NopCloser(strings.NewReader(body))}, nil
			})
			for kind, lock := range clientsOf(t, &rest.Config{Transport: busy}) {
				requests.Store(0)
				_, err := lock.Read(t.Context())
				seconds, _ := apierrors.SuggestsClientDelay(err)
				if !apierrors.IsTooManyRequests(err) || !IsRefused(err) || kind == "clientset" && seconds != 7 || requests.Load() != 1 {
					t.Errorf("%s: %d requests, delay %d, error %v; want one, and a 429 with its delay", kind, requests.Load(), seconds, err)
				}
			}
		})
	}
}

// The locks of a busy clientset do not wait for its rate limiter. Everything else of the clientset applies to their requests.
func TestLock_PassesRateLimiter(t *testing.T) {
	server := apiserver.New()
	config := server.Config()
	config.QPS = 5
	config.RateLimiter = flowcontrol.NewFakeNeverRateLimiter()
	config.UserAgent = "operator"
	config.Impersonate = rest.ImpersonationConfig{UserName: "someone"}
	var traced atomic.Int32
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return transport(func(req *http.Request) (*http.Response, error) {
			traced.Add(1)
			return next.RoundTrip(req)
		})
	})
	set, err := kubernetes.NewForConfig(config)
	harness.Must(t, err)
	lease := func(client coordinationv1client.LeasesGetter) *LeaseLock {
		return &LeaseLock{LeaseMeta: metav1.ObjectMeta{Namespace: "n", Name: "l"}, Client: client, LockConfig: ResourceLockConfig{Identity: "pod-a"}}
	}
	for name, lock := range map[string]Lock{"lease": lease(set.CoordinationV1()), "configmap": lockOn(set.CoreV1())} {
		base, err := lock.Write(t.Context(), Snapshot{}, golden, nil)
		harness.Must(t, err)
		next := golden
		next.LeaderTransitions++
		if _, err = lock.Write(t.Context(), base, next, nil); err != nil {
			t.Error(err)
		}
		if _, err := lock.Read(t.Context()); err != nil {
			t.Error(err)
		}
		connected := make(chan struct{}, 1)
		watching := lock.Subscribe(t.Context(), func() { connected <- struct{}{} })
		<-connected
		watching.End()
		requests := server.Requests()
		if len(requests) != 4 || traced.Swap(0) != 4 {
			t.Errorf("%s: requests %v, want 4 that pass the wrapper", name, requests)
		}
		for _, r := range requests {
			if r.Header.Get("User-Agent") != "operator" || r.Header.Get("Impersonate-User") != "someone" {
				t.Errorf("%s: %v has the headers %v", name, r, r.Header)
			}
		}
	}
	// A type of the caller may change what its methods return, so it is used as it is.
	if _, err := lease(struct {
		coordinationv1client.CoordinationV1Interface
	}{set.CoordinationV1()}).Read(t.Context()); err == nil {
		t.Error("a wrapped client was replaced")
	}
	if _, err := lockOn(wrapped{set.CoreV1()}).Read(t.Context()); err == nil {
		t.Error("a wrapped client was replaced")
	}
}

type transport = harness.RoundTripper

func TestIsRefused_Codes(t *testing.T) {
	for code, want := range map[int32]bool{
		399: false, 400: true, 404: true, 408: false, 409: false, 410: true, 499: true, 500: false, 302: false,
	} {
		if got := IsRefused(&apierrors.StatusError{ErrStatus: metav1.Status{Code: code}}); got != want {
			t.Errorf("%d: refused %v", code, got)
		}
	}
}
