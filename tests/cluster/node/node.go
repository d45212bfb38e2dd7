package node

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"syscall"

	"go.uber.org/atomic"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"incumbent.dev/incumbent/tests/cluster/internal/loopback"
)

// ErrNoPod is what is returned for a Pod that this node does not run.
var ErrNoPod = errors.New("this node runs no such Pod")

// Node runs Pods as processes.
type Node struct {
	options Options
	http    *http.Client
	client  kubernetes.Interface
	started atomic.Bool

	addresses *loopback.Pool
	// address is the node's own, where it serves logs. Set by Run before there are workers.
	address string
	// workers are by the Pod's UID. Only the informer's handler adds and removes.
	mu      sync.Mutex
	workers map[types.UID]*worker
	running sync.WaitGroup
}

// New checks the options and makes a node that does nothing yet.
func New(options Options) (*Node, error) {
	options = options.withDefaults()
	if err := options.validate(); err != nil {
		return nil, err
	}
	options, err := options.absolute()
	if err != nil {
		return nil, err
	}
	// A client of its own, so that its connections end with Run.
	config := rest.CopyConfig(options.Config)
	http, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("making the node's client: %w", err)
	}
	client, err := kubernetes.NewForConfigAndClient(config, http)
	if err != nil {
		return nil, fmt.Errorf("making the node's client: %w", err)
	}
	return &Node{options: options, http: http, client: client, workers: map[types.UID]*worker{}}, nil
}

// Run runs Pods until ctx ends, and returns when all their processes have ended, within
// Options.StopGrace and a little. The Pods' objects stay. An API server that is away is waited
// for. A node runs once.
func (n *Node) Run(ctx context.Context) (err error) {
	if !n.started.CompareAndSwap(false, true) {
		return errors.New("the node has run before: make a new one")
	}
	// Not the client's own method, which does not look below client-go's wrappers.
	defer utilnet.CloseIdleConnectionsFor(n.http.Transport)
	if err := os.MkdirAll(n.options.Dir, 0o700); err != nil {
		return fmt.Errorf("making the node's folder: %w", err)
	}
	if n.addresses, err = loopback.NewPool(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.addresses.Release()) }()
	if n.address, err = n.addresses.Take(); err != nil {
		return err
	}
	logs, err := n.serve(ctx, n.address)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, logs.close()) }()
	if !retry(ctx, n.report("registering the node"), n.register) {
		return nil
	}
	informer := cache.NewSharedIndexInformer(n.listWatch(), &corev1.Pod{}, 0, nil)
	if _, err := informer.AddEventHandler(n.handler(ctx)); err != nil {
		return fmt.Errorf("watching Pods: %w", err)
	}
	informer.RunWithContext(ctx)
	// It has returned from the last handler: nobody adds workers any more.
	n.running.Wait()
	return nil
}

// listWatch is for the Pods of all namespaces: those to bind have no node yet.
func (n *Node) listWatch() cache.ListerWatcher {
	return cache.NewListWatchFromClient(n.client.CoreV1().RESTClient(), "pods", corev1.NamespaceAll, everything)
}

// handler starts, tells and forgets workers. It never blocks: the work is theirs.
func (n *Node) handler(ctx context.Context) cache.ResourceEventHandler {
	see := func(object any) {
		if pod, ok := object.(*corev1.Pod); ok {
			n.see(ctx, pod)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    see,
		UpdateFunc: func(_, object any) { see(object) },
		DeleteFunc: func(object any) {
			if missed, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = missed.Obj
			}
			if pod, ok := object.(*corev1.Pod); ok {
				n.forget(pod.UID)
			}
		},
	}
}

// see hands a Pod to its worker; one that is new and for us gets one.
func (n *Node) see(ctx context.Context, pod *corev1.Pod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	w := n.workers[pod.UID]
	if w == nil {
		if !n.mine(pod) {
			return
		}
		w = n.newWorker(ctx, pod)
		n.workers[pod.UID] = w
		n.running.Go(w.run)
	}
	w.update(pod)
}

// mine tells whether this node runs the Pod: one bound to it, or one that waits for
// the default scheduler, which is us, unless another node is.
func (n *Node) mine(pod *corev1.Pod) bool {
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return pod.Spec.NodeName == n.options.Name && pod.DeletionTimestamp != nil
	}
	unscheduled := pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil && !n.options.BoundOnly
	return pod.Spec.NodeName == n.options.Name || unscheduled && pod.Spec.SchedulerName == corev1.DefaultSchedulerName
}

// forget ends the worker of a Pod whose object is gone.
func (n *Node) forget(uid types.UID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if w := n.workers[uid]; w != nil {
		w.gone()
		delete(n.workers, uid)
	}
}

// Pod is what a node knows of a Pod that it runs.
type Pod struct {
	Namespace, Name string
	UID             types.UID
	// Address is its loopback address.
	Address string
	// Log is the file that the output of its processes is appended to.
	Log string
	// PID is its process, or 0 while there is none.
	PID int
	// Restarts counts the processes before the present one.
	Restarts int
	// Ready tells whether it answered its readiness probe last.
	Ready bool
}

// Pods lists the Pods that the node runs, in no order. Those that are being set up have
// no address yet.
func (n *Node) Pods() []Pod {
	n.mu.Lock()
	defer n.mu.Unlock()
	pods := make([]Pod, 0, len(n.workers))
	for _, w := range n.workers {
		pods = append(pods, w.snapshot())
	}
	return pods
}

// Pod is the Pod of that name, if the node runs it.
func (n *Node) Pod(namespace, name string) (Pod, error) {
	for _, pod := range n.Pods() {
		if pod.Namespace == namespace && pod.Name == name {
			return pod, nil
		}
	}
	return Pod{}, fmt.Errorf("%s/%s: %w", namespace, name, ErrNoPod)
}

// Signal sends a signal to the Pod's process. The error wraps ErrNoPod when the node does
// not run the Pod, and os.ErrProcessDone when the Pod has no process now.
func (n *Node) Signal(namespace, name string, signal syscall.Signal) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, w := range n.workers {
		if w.namespace == namespace && w.name == name {
			return w.signal(signal)
		}
	}
	return fmt.Errorf("%s/%s: %w", namespace, name, ErrNoPod)
}
