package k8sresourcelock

import (
	"net/http"

	"k8s.io/client-go/rest"
)

// ClientConfig derives, from a configuration that it leaves alone, one for the client
// of locks: not rate-limited, so that no burst of other work delays a renewal, and
// sending each request once.
//
// By itself client-go sends a write again when the answer is a 429 or a 5xx with a
// Retry-After. The first one may have been stored all the same; the second then
// reports a conflict, which reads as "nothing was written". Electors have their own
// pace and must hear the first answer.
//
// It leaves the connections as they are. client-go's carry calls and watches together and
// are given up 45 s after they have died; a call that timed out is followed by others on the
// same one until then, which costs a leader its term. pkg/kube's FreshConnections, around the
// result, mends that; a clientset that was made without it cannot be mended from here.
func ClientConfig(base *rest.Config) *rest.Config {
	config := rest.CopyConfig(base)
	config.QPS, config.Burst, config.RateLimiter = -1, 0, nil
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return sendOnce{next} })
	return config
}

// sendOnce takes from answers what client-go's retry goes by.
type sendOnce struct{ http.RoundTripper }

func (s sendOnce) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := s.RoundTripper.RoundTrip(req)
	if resp != nil {
		resp.Header.Del("Retry-After")
	}
	return resp, err
}

// WrappedRoundTripper lets client-go find the transport below.
func (s sendOnce) WrappedRoundTripper() http.RoundTripper { return s.RoundTripper }
