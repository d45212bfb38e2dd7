package ctl

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
)

// many creates n elections with alternating kinds of lock.
func (e *environment) many(n int) {
	e.t.Helper()
	var creates sync.WaitGroup
	for worker := range 10 {
		creates.Go(func() {
			for i := worker; i < n; i += 10 {
				if i%2 == 0 {
					e.clientGo(fmt.Sprintf("election-%d", i), "operator-0")
					continue
				}
				e.istiod(fmt.Sprintf("election-%d", i), record)
			}
		})
	}
	creates.Wait()
}

func TestList_TwoRequests(t *testing.T) {
	e := newEnvironment(t)
	e.many(20)
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

// BenchmarkList measures list with a thousand elections, including the connection.
func BenchmarkList(b *testing.B) {
	e := newEnvironment(b)
	e.many(1000)
	for b.Loop() {
		var out bytes.Buffer
		p := &Program{IOStreams: genericiooptions.IOStreams{Out: &out, ErrOut: &out}}
		if code := p.Run(b.Context(), []string{"list", "--kubeconfig", e.cluster.Kubeconfig(), "-n", e.namespace}); code != Done || strings.Count(out.String(), "\n") != 1001 {
			b.Fatal(code, out.String())
		}
	}
}
