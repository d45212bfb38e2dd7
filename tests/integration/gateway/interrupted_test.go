package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/controllers/gatewaydeploy"
	"incumbent.dev/incumbent/tests/cluster"
)

// interrupted calls write before each write. If it returns an error, the write is not sent.
type interrupted struct {
	next  http.RoundTripper
	write func() error
}

// RoundTrip implements http.RoundTripper.
func (i interrupted) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet {
		if err := i.write(); err != nil {
			return nil, err
		}
	}
	return i.next.RoundTrip(r)
}

// WrappedRoundTripper returns the next transport, so that client-go can close its connections.
func (i interrupted) WrappedRoundTripper() http.RoundTripper { return i.next }

// deploy runs a deployment controller without an election until stop is called, or the n-th write is interrupted: before the API
// server receives it, or afterwards.
func (p *plane) deploy(n int, sent bool, requests *harness.Log) (stop func()) {
	p.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(p.Context()))
	var mu sync.Mutex
	writes := 0
	config := rest.CopyConfig(p.admin.RESTConfig())
	config.Wrap(harness.Requests(requests))
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return interrupted{next, func() error {
			mu.Lock()
			defer mu.Unlock()
			if writes++; n == 0 || writes < n {
				return nil
			}
			defer cancel()
			if sent && writes == n {
				return nil
			}
			return errors.New("interrupted")
		}}
	})
	c, err := gatewaydeploy.New(cluster.ClientFor(p.T, config), gatewaydeploy.Config{
		Namespace: p.home, Revision: p.home, IsMine: func(meta metav1.ObjectMeta) bool { return meta.Namespace == p.home },
		Logger: slog.New(slog.DiscardHandler),
	})
	p.must(err)
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		if n > 0 {
			p.until(fmt.Sprintf("write %d is interrupted", n), func() bool { return ctx.Err() != nil })
		}
		cancel()
		if err := <-ended; err != nil {
			p.Error(err)
		}
	})
	p.Cleanup(stop)
	return stop
}

// After an interruption before or after any write, the next controller completes the deployment.
func TestDeploy_Interrupted(t *testing.T) {
	for _, deployed := range []bool{false, true} { // then two of the objects are changed, each with a claim and an apply
		for n := 1; n <= 4; n++ {
			for _, sent := range []bool{false, true} {
				t.Run(fmt.Sprintf("deployed=%v,write=%d,sent=%v", deployed, n, sent), func(t *testing.T) {
					p := newPlane(t)
					requests := &harness.Log{}
					p.gateway(p.home, "web")
					if deployed {
						stop := p.deploy(0, false, requests)
						p.exist(true, "web-istio", workload...)
						stop()
					}
					p.patch(gatewaysResource, p.home, "web", `{"spec":{"listeners":[{"name":"http","port":9090,"protocol":"HTTP"}]}}`)
					p.deploy(n, sent, requests)()
					stop := p.deploy(0, false, requests)
					p.exist(true, "web-istio", workload...)
					p.ports(9090)
					stop()
					if requests.Count("DELETE ")+requests.Count("PUT ") > 0 {
						t.Errorf("requests:\n%s", requests)
					}
				})
			}
		}
	}
}
