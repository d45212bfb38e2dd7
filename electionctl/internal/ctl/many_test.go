package ctl

import (
	"net/http"
	"sync/atomic"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
)

func TestList_TwoRequests(t *testing.T) {
	e := newEnvironment(t)
	e.clientGo("a", "operator-0")
	e.istiod("b", record)
	var requests atomic.Int32
	p := &Program{IOStreams: genericiooptions.NewTestIOStreamsDiscard()}
	p.wrap = func(config *rest.Config) *rest.Config {
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return counting{next, &requests} })
		return config
	}
	if code := p.Run(t.Context(), []string{"list", "--kubeconfig", e.cluster.Kubeconfig(), "-n", e.namespace}); code != Done || requests.Load() != 2 {
		t.Errorf("exit %d, %d requests", code, requests.Load())
	}
}

type counting struct {
	next http.RoundTripper
	n    *atomic.Int32
}

func (c counting) RoundTrip(r *http.Request) (*http.Response, error) {
	c.n.Add(1)
	return c.next.RoundTrip(r)
}
