package balancer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"go.uber.org/atomic"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"incumbent.dev/incumbent/tests/cluster/internal/loopback"
)

const (
	// callTimeout bounds one request to the API server.
	callTimeout = 5 * time.Second
	// firstRetry and lastRetry are the waits between tries of a Service that cannot be served.
	firstRetry, lastRetry = 50 * time.Millisecond, 2 * time.Second
	// maxConnections is how many connections one Service may have at once; others wait.
	maxConnections = 256
	// byService is the index of EndpointSlices.
	byService = "service"
)

// Options say for which cluster a balancer works.
type Options struct {
	// Config reaches the cluster; it may list and watch Services and EndpointSlices, and write the status of Services.
	Config *rest.Config
	// Logger hears of what cannot be served; nil means nobody.
	Logger *slog.Logger
}

// Balancer serves the LoadBalancer Services of a cluster.
type Balancer struct {
	log     *slog.Logger
	http    *http.Client
	client  kubernetes.Interface
	started atomic.Bool

	// What follows is of the goroutine that works on the queue.
	addresses *loopback.Pool
	fronts    map[string]*front // by the Service's key
	services  cache.Indexer
	slices    cache.Indexer
}

// New makes a balancer that does nothing yet.
func New(options Options) (*Balancer, error) {
	if options.Config == nil {
		return nil, errors.New("balancer options: Config is missing")
	}
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	// A client of its own, so that its connections end with Run.
	config := rest.CopyConfig(options.Config)
	http, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("making the balancer's client: %w", err)
	}
	client, err := kubernetes.NewForConfigAndClient(config, http)
	if err != nil {
		return nil, fmt.Errorf("making the balancer's client: %w", err)
	}
	return &Balancer{log: options.Logger, http: http, client: client, fronts: map[string]*front{}}, nil
}

// Run serves until ctx ends, and returns when nothing listens and no connection is open any more. The addresses stay in
// the status of Services; the next balancer writes its own. An API server that is away is waited for. A
// balancer runs once.
func (b *Balancer) Run(ctx context.Context) (err error) {
	if !b.started.CompareAndSwap(false, true) {
		return errors.New("the balancer has run before: make a new one")
	}
	defer utilnet.CloseIdleConnectionsFor(b.http.Transport)
	if b.addresses, err = loopback.NewPool(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.addresses.Release()) }()
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstRetry, lastRetry))
	defer queue.ShutDown()
	factory := informers.NewSharedInformerFactory(b.client, 0)
	services := factory.Core().V1().Services().Informer()
	slices := factory.Discovery().V1().EndpointSlices().Informer()
	if err := slices.AddIndexers(cache.Indexers{byService: serviceOf}); err != nil {
		return fmt.Errorf("indexing EndpointSlices: %w", err)
	}
	touched := func(object any) {
		if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object); err == nil {
			queue.Add(key)
		}
	}
	if _, err := services.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: touched, UpdateFunc: func(_, object any) { touched(object) }, DeleteFunc: touched,
	}); err != nil {
		return fmt.Errorf("watching Services: %w", err)
	}
	b.services, b.slices = services.GetIndexer(), slices.GetIndexer()
	factory.StartWithContext(ctx)
	defer factory.Shutdown()
	context.AfterFunc(ctx, queue.ShutDown)
	if cache.WaitForCacheSync(ctx.Done(), services.HasSynced, slices.HasSynced) {
		b.work(ctx, queue)
	}
	for key := range b.fronts {
		b.close(key)
	}
	return nil
}

// work serves Services until the queue is shut down.
func (b *Balancer) work(ctx context.Context, queue workqueue.TypedRateLimitingInterface[string]) {
	for {
		key, ended := queue.Get()
		if ended {
			return
		}
		if err := b.serve(ctx, key); err != nil && ctx.Err() == nil {
			b.log.Warn("a Service cannot be served", "service", key, "err", err)
			queue.AddRateLimited(key)
		} else {
			queue.Forget(key)
		}
		queue.Done(key)
	}
}

// serve makes what listens, and what the status says, agree with the Service.
func (b *Balancer) serve(ctx context.Context, key string) error {
	object, _, _ := b.services.GetByKey(key) // the error is never set
	service, ok := object.(*corev1.Service)
	if !ok || service.Spec.Type != corev1.ServiceTypeLoadBalancer || service.DeletionTimestamp != nil {
		b.close(key)
		return nil
	}
	f := b.fronts[key]
	if f == nil {
		address, err := b.addresses.Take()
		if err != nil {
			return err
		}
		f = newFront(address, b.log.With("service", key), func(port string) []string { return b.endpoints(key, port) })
		b.fronts[key] = f
	}
	if err := f.listen(ctx, service.Spec.Ports); err != nil {
		return err
	}
	return b.publish(ctx, service, f.address)
}

// publish writes the address into the status, if it is not there. A Service that was changed meanwhile comes again.
func (b *Balancer) publish(ctx context.Context, service *corev1.Service, address string) error {
	if present := service.Status.LoadBalancer.Ingress; len(present) == 1 && present[0].IP == address {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	changed := service.DeepCopy()
	changed.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: address}}
	_, err := b.client.CoreV1().Services(service.Namespace).UpdateStatus(ctx, changed, metav1.UpdateOptions{})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil // the watch shows the change
	}
	return err
}

func (b *Balancer) close(key string) {
	if f := b.fronts[key]; f != nil {
		f.close()
		b.addresses.GiveBack(f.address)
		delete(b.fronts, key)
	}
}

// endpoints are where the ready ones of a Service's port are reached. It is called from any goroutine.
func (b *Balancer) endpoints(key, port string) []string {
	objects, _ := b.slices.ByIndex(byService, key) // the index exists
	var found []string
	for _, object := range objects {
		if slice, ok := object.(*discoveryv1.EndpointSlice); ok {
			found = append(found, ready(slice, port)...)
		}
	}
	return found
}

// serviceOf is the index of EndpointSlices.
func serviceOf(object any) ([]string, error) {
	slice, ok := object.(*discoveryv1.EndpointSlice)
	if !ok || slice.Labels[discoveryv1.LabelServiceName] == "" {
		return nil, nil
	}
	return []string{slice.Namespace + "/" + slice.Labels[discoveryv1.LabelServiceName]}, nil
}
