package balancer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/atomic"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"incumbent.dev/incumbent/tests/cluster"
	"incumbent.dev/incumbent/tests/cluster/internal/loopback"
)

const (
	// callTimeout limits one request to the API server.
	callTimeout = 5 * time.Second
	// firstRetry and lastRetry limit the pause between two attempts to serve a Service.
	firstRetry, lastRetry = 50 * time.Millisecond, 2 * time.Second
	// byService is the index of EndpointSlices.
	byService = "service"
)

// Balancer serves the LoadBalancer Services of a cluster.
type Balancer struct {
	client kubernetes.Interface
	// disconnect closes the connections of client.
	disconnect func()
	started    atomic.Bool

	// The fields below belong to the goroutine of the queue.
	addresses *loopback.Pool
	fronts    map[string]*front // by the key of the Service
	services  cache.Indexer
	slices    cache.Indexer
}

// New returns a balancer for a cluster. config must allow to list and watch Services and EndpointSlices, and to update the status
// of Services. It starts nothing.
func New(config *rest.Config) (*Balancer, error) {
	client, disconnect, err := cluster.NewClient(config)
	if err != nil {
		return nil, err
	}
	return &Balancer{client: client, disconnect: disconnect, fronts: map[string]*front{}}, nil
}

// Run serves Services until ctx ends. It returns after all listeners and connections are closed. The addresses remain
// in the status of the Services. Run can be called once.
func (b *Balancer) Run(ctx context.Context) (err error) {
	if !b.started.CompareAndSwap(false, true) {
		return errors.New("balancer has already run: create a new one")
	}
	defer b.disconnect()
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
			queue.AddRateLimited(key)
		} else {
			queue.Forget(key)
		}
		queue.Done(key)
	}
}

// serve updates the listeners and the status of a Service.
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
		f = newFront(address, func(port string) []string { return b.endpoints(key, port) })
		b.fronts[key] = f
	}
	if err := f.listen(ctx, service.Spec.Ports); err != nil {
		return err
	}
	return b.publish(ctx, service, f.address)
}

// publish writes the address into the status if needed. On conflict the watch triggers another attempt.
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
		return nil // the watch reports the change
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

// endpoints returns the ready endpoints of a Service port. It is safe for concurrent use.
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

// serviceOf is the index function of EndpointSlices.
func serviceOf(object any) ([]string, error) {
	slice, ok := object.(*discoveryv1.EndpointSlice)
	if !ok || slice.Labels[discoveryv1.LabelServiceName] == "" {
		return nil, nil
	}
	return []string{slice.Namespace + "/" + slice.Labels[discoveryv1.LabelServiceName]}, nil
}
