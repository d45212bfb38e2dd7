package k8sresourcelock

import (
	"net/http"

	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
)

// ClientConfig returns a copy of base for the client of locks. It is not rate-limited, so that other requests do
// not delay a renewal, and it sends each request once. A lock with a typed client of a clientset does both with any
// configuration. A client of another type, for example a wrapper, needs ClientConfig.
//
// client-go repeats a write if the response is 429 or 5xx with a Retry-After header. The first request may have
// been stored. The second one then returns a conflict, which would mean that nothing was written. Electors have
// their own retries and need the first response.
//
// ClientConfig does not change how connections are used. client-go sends calls and watches on one connection and
// closes a dead connection after 45 s. Until then a repeated call uses the same connection and the leader loses
// its term. Wrap the result with pkg/kube's FreshConnections to avoid this.
func ClientConfig(base *rest.Config) *rest.Config {
	config := rest.CopyConfig(base)
	config.QPS, config.Burst, config.RateLimiter = -1, 0, nil
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return sendOnce{next} })
	return config
}

// direct is the REST client of a clientset, for the requests of a lock. They do not wait for the rate limiter, which the work of the
// program may exhaust, and are sent once. Transport, identity, content type, user agent and warnings are those of the clientset.
type direct struct{ rest.Interface }

// directLeases returns the client itself if it has another type: a type that embeds the typed client may change what Leases returns.
func directLeases(from coordinationv1client.LeasesGetter) coordinationv1client.LeasesGetter {
	if typed, ok := from.(*coordinationv1client.CoordinationV1Client); ok {
		return coordinationv1client.New(direct{typed.RESTClient()})
	}
	return from
}

func directConfigMaps(from corev1client.ConfigMapsGetter) corev1client.ConfigMapsGetter {
	if typed, ok := from.(*corev1client.CoreV1Client); ok {
		return corev1client.New(direct{typed.RESTClient()})
	}
	return from
}

func (d direct) Verb(verb string) *rest.Request {
	return d.Interface.Verb(verb).Throttle(nil).MaxRetries(0)
}

func (d direct) Get() *rest.Request { return d.Verb(http.MethodGet) }

func (d direct) Post() *rest.Request { return d.Verb(http.MethodPost) }

func (d direct) Put() *rest.Request { return d.Verb(http.MethodPut) }

// sendOnce removes the Retry-After header, so that client-go does not repeat a request. The elector has its own back-off.
type sendOnce struct{ http.RoundTripper }

func (s sendOnce) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := s.RoundTripper.RoundTrip(req)
	if err == nil {
		resp.Header.Del("Retry-After")
	}
	return resp, err
}

// WrappedRoundTripper returns the wrapped transport, for client-go.
func (s sendOnce) WrappedRoundTripper() http.RoundTripper { return s.RoundTripper }
