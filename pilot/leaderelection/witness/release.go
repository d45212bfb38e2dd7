package witness

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/apirequest"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/pkg/kube"
)

// Options configures a witness.
type Options struct {
	// Identity is the identity of the candidate. Terms of other holders are rejected. Serve requires it. If empty, Supervise accepts all
	// terms of its child.
	Identity string
	// Connect returns the configuration for a cluster: empty for the cluster of the process, otherwise the name that its Client
	// uses. It is called after the end of the process, because a client needs memory. Its user must be allowed to get and update
	// the locks. Default: the kubeconfig in KUBECONFIG, or the service account of the pod.
	Connect func(cluster string) (*rest.Config, error)
	// Logger receives a line per release. Default: slog.Default.
	Logger *slog.Logger
}

const (
	// callTimeout bounds each request, with the connection. A slow API server is not a failure.
	callTimeout = 5 * time.Second
	// firstRetry is the time until the second attempt. It doubles up to maxRetry.
	firstRetry = 20 * time.Millisecond
	maxRetry   = time.Second
	// concurrent is the maximum number of concurrent releases.
	concurrent = 16
)

// clients are the clients for one cluster. They share their connections.
type clients struct {
	core   corev1client.CoreV1Interface
	leases coordinationv1client.CoordinationV1Interface
}

func (o Options) connect(cluster string) (c clients, err error) {
	config, err := o.Connect(cluster)
	if err != nil {
		return c, err
	}
	config = kube.FreshConnections(config)
	config.QPS = -1 // for Events: locks have no limit
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	config.Timeout = callTimeout
	rest.AddUserAgent(config, "incumbent-witness")
	transport, err := rest.HTTPClientFor(config)
	if err != nil {
		return c, err
	}
	if c.core, err = corev1client.NewForConfigAndClient(config, transport); err != nil {
		return c, err
	}
	c.leases, err = coordinationv1client.NewForConfigAndClient(config, transport)
	return c, err
}

// shared returns a function that returns the same clients to all releases. After the API server has rejected the credentials of these
// clients, it makes others: the token or the kubeconfig may have been renewed.
func (o Options) shared(cluster string) func(rejected clients) (clients, error) {
	var mu sync.Mutex
	var current clients
	return func(rejected clients) (clients, error) {
		mu.Lock()
		defer mu.Unlock()
		if current == rejected {
			renewed, err := o.connect(cluster)
			if err != nil {
				return clients{}, err
			}
			current = renewed
		}
		return current, nil
	}
}

// release releases the terms of a process that has ended. It returns when each of them was released or has changed, or ctx ends.
// least is the minimum grace. The last locks wait for the others, for a limited time.
func (o Options) release(ctx context.Context, all terms, least time.Duration) {
	if len(all) == 0 {
		return
	}
	died := time.Now() //nolint:forbidigo // only measured
	known := map[string]func(clients) (clients, error){}
	for key := range all {
		if known[key.Cluster] == nil {
			known[key.Cluster] = o.shared(key.Cluster)
		}
	}
	slots := make(chan struct{}, concurrent)
	var running, first sync.WaitGroup
	released := make(chan struct{}) // all locks except the last ones
	for key, r := range all {
		r.died = died
		if !r.Last {
			first.Add(1)
		}
		running.Go(func() {
			if !r.Last {
				defer first.Done()
			}
			if apirequest.Pause(ctx, max(r.Grace, least)) != nil {
				return
			}
			if r.Last {
				wait, cancel := context.WithTimeout(ctx, callTimeout)
				select {
				case <-released:
				case <-wait.Done():
				}
				cancel()
			}
			slots <- struct{}{}
			defer func() { <-slots }()
			o.releaseOne(ctx, r, known[key.Cluster])
		})
	}
	first.Wait()
	close(released)
	running.Wait()
}

// releaseOne releases a lock. It tries again while the lease of the term lasts.
func (o Options) releaseOne(ctx context.Context, r registration, connect func(rejected clients) (clients, error)) {
	log := o.Logger.With("lock", r.Namespace+"/"+r.Name, "holder", r.Holder, "transitions", r.Transitions)
	ctx, cancel := context.WithTimeout(ctx, max(r.Lease, time.Second))
	defer cancel()
	var reported apirequest.Reported[string]
	var rejected clients
	for backoff := apirequest.Backoff(firstRetry, maxRetry); ; {
		to, err := connect(rejected)
		released, why := false, ""
		if err == nil {
			released, why, err = try(ctx, r, to)
		}
		if apierrors.IsUnauthorized(err) {
			rejected = to
			err = fmt.Errorf("API server rejected the credentials of the witness, their token may have expired: %w", err)
		}
		switch {
		case released:
			log.Info("released the lock of a process that has ended", "why", why, "after", time.Since(r.died)) //nolint:forbidigo // only measured
			return
		case err == nil:
			log.Info("lock of a process that has ended has changed; not releasing it", "why", why)
			return
		case ctx.Err() == nil && reported.Failed("release", err):
			log.Warn("failed to release the lock of a process that has ended; retrying while its lease lasts", "err", err)
		}
		if apirequest.Pause(ctx, backoff.Step()) != nil {
			log.Warn("did not release the lock of a process that has ended; its lease expires", "err", err)
			return
		}
	}
}

// withDefaults sets the optional fields.
func (o Options) withDefaults() Options {
	o.Logger = cmp.Or(o.Logger, slog.Default())
	if o.Connect == nil {
		o.Connect = func(string) (*rest.Config, error) { return kube.LoadConfig(kube.Source{List: os.Getenv("KUBECONFIG")}) }
	}
	return o
}

// try tries once to release a lock. After a conflict it reads the lock again.
func try(ctx context.Context, r registration, to clients) (released bool, why string, err error) {
	lock, err := r.Lock(to.core, to.leases, recorder{ctx, to.core})
	if err != nil {
		return false, "", err
	}
	twice := k8sresourcelock.SendTwice(lock)
	for {
		released, why, err = r.ReleaseEnded(ctx, twice, r.died)
		if !errors.Is(err, k8sresourcelock.ErrConflict) || ctx.Err() != nil {
			return released, why, err
		}
	}
}

var _ k8sleaderelection.Witness = (*Client)(nil)
