package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"incumbent.dev/incumbent/pkg/kube"
	"incumbent.dev/incumbent/tests/cluster/internal/loopback"
)

// stopGrace limits the grace periods when the node stops.
const stopGrace = 5 * time.Second

// Node runs Pods as processes.
type Node struct {
	options Options
	client  kubernetes.Interface
	// connection has the connections of client.
	connection kube.Client

	addresses *loopback.Pool
	// address is the address of the node itself, where it serves logs. Run sets it first.
	address string
	// workers are keyed by the UID of the Pod. Only the handler of the informer changes the map.
	mu      sync.Mutex
	workers map[types.UID]*worker
	running sync.WaitGroup
}

// New starts nothing.
func New(options Options) (*Node, error) {
	options = options.withDefaults()
	connection, err := kube.NewClient(options.Config, kube.WithRateLimit(-1, 0), kube.WithOwnConnections())
	if err != nil {
		return nil, err
	}
	return &Node{options: options, client: connection.Kube(), connection: connection, workers: map[types.UID]*worker{}}, nil
}

// Run runs Pods until ctx ends. It returns after all processes have ended, slightly later than stopGrace. The
// objects of the Pods remain. Run can be called once.
func (n *Node) Run(ctx context.Context) (err error) {
	defer kube.CloseIdleConnections(n.connection)
	if err := os.MkdirAll(n.options.Dir, 0o700); err != nil {
		return fmt.Errorf("create folder of node: %w", err)
	}
	if n.addresses, err = loopback.NewPool(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.addresses.Release()) }()
	if n.address, err = n.addresses.Take(); err != nil {
		return err
	}
	stopServing, err := n.serve(ctx)
	if err != nil {
		return err
	}
	defer stopServing()
	if !retry(ctx, n.options.Logger, "register node", n.register) {
		return nil
	}
	// Unscheduled Pods have no node, so the watch covers all Pods.
	informer := coreinformers.NewPodInformer(n.client, corev1.NamespaceAll, 0, nil)
	if _, err := informer.AddEventHandler(n.handler(ctx)); err != nil {
		return fmt.Errorf("watching Pods: %w", err)
	}
	if n.options.LoadBalancer {
		n.running.Go(func() { n.balance(ctx) })
	}
	informer.RunWithContext(ctx)
	// The informer has returned, so no worker is added any more.
	n.running.Wait()
	return nil
}

// handler starts, updates and removes workers. It never blocks.
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

// see passes a Pod to its worker. It starts a worker for a new Pod of this node.
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

// mine reports whether this node runs the Pod: it is bound to this node, or it waits for the default scheduler.
func (n *Node) mine(pod *corev1.Pod) bool {
	unscheduled := pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil
	return pod.Spec.NodeName == n.options.Name || unscheduled && pod.Spec.SchedulerName == corev1.DefaultSchedulerName
}

// forget ends the worker of a deleted Pod.
func (n *Node) forget(uid types.UID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if w := n.workers[uid]; w != nil {
		w.gone()
		delete(n.workers, uid)
	}
}

// Pod is the state of a Pod on this node.
type Pod struct {
	Namespace, Name string
	UID             types.UID
	// Address is the loopback address.
	Address string
	// Log is the file with the output of the processes.
	Log string
	// PID is the process ID, or 0 if there is no process.
	PID int
	// Restarts counts the previous processes.
	Restarts int
	// Ready is the result of the last readiness probe.
	Ready bool
}

// Pods returns the Pods of the node in any order. A new Pod may have no address yet.
func (n *Node) Pods() []Pod {
	n.mu.Lock()
	defer n.mu.Unlock()
	pods := make([]Pod, 0, len(n.workers))
	for _, w := range n.workers {
		pods = append(pods, w.snapshot())
	}
	return pods
}

// Pod returns the Pod with that name.
func (n *Node) Pod(namespace, name string) (Pod, error) {
	w, err := n.find(namespace, name)
	if err != nil {
		return Pod{}, err
	}
	return w.snapshot(), nil
}

func (n *Node) find(namespace, name string) (*worker, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, w := range n.workers {
		if w.namespace == namespace && w.name == name {
			return w, nil
		}
	}
	return nil, fmt.Errorf("%s/%s: node does not run this Pod", namespace, name)
}

// Signal sends a signal to the process of the Pod. The error wraps os.ErrProcessDone if the Pod has no process.
func (n *Node) Signal(namespace, name string, signal syscall.Signal) error {
	w, err := n.find(namespace, name)
	if err != nil {
		return err
	}
	return w.signal(signal)
}
