package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	corelisters "k8s.io/client-go/listers/core/v1"
)

// balanceInterval is the interval at which the listeners and the status of Services are corrected.
const balanceInterval = 100 * time.Millisecond

// balance serves the LoadBalancer Services until ctx ends. It returns after all listeners and connections are closed.
func (n *Node) balance(ctx context.Context) {
	factory := informers.NewSharedInformerFactory(n.client, 0)
	services := factory.Core().V1().Services().Lister()
	factory.StartWithContext(ctx)
	defer factory.Shutdown()
	factory.WaitForCacheSync(ctx.Done())
	fronts := map[types.UID]*front{}
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := n.serveServices(ctx, services, fronts); err != nil {
			n.options.Logger.Warn("failed to serve Services; retrying", "err", err)
		}
	}, balanceInterval)
	for _, f := range fronts {
		f.close()
	}
}

// serveServices opens and closes listeners as the Services require.
func (n *Node) serveServices(ctx context.Context, services corelisters.ServiceLister, fronts map[types.UID]*front) error {
	all, err := services.List(labels.Everything())
	if err != nil {
		return err
	}
	var errs []error
	exist := map[types.UID]bool{}
	for _, service := range all {
		if service.Spec.Type == corev1.ServiceTypeLoadBalancer && service.DeletionTimestamp == nil {
			exist[service.UID] = true
			errs = append(errs, n.serveService(ctx, service, services, fronts))
		}
	}
	for uid, f := range fronts {
		if !exist[uid] {
			f.close()
			n.addresses.GiveBack(f.address)
			delete(fronts, uid)
		}
	}
	return errors.Join(errs...)
}

func (n *Node) serveService(ctx context.Context, service *corev1.Service, services corelisters.ServiceLister, fronts map[types.UID]*front) error {
	f := fronts[service.UID]
	if f == nil {
		address, err := n.addresses.Take()
		if err != nil {
			return err
		}
		f = newFront(address, func() []string {
			service, err := services.Services(service.Namespace).Get(service.Name)
			if err != nil || len(service.Spec.Selector) == 0 {
				return nil
			}
			return n.readyAddresses(service.Namespace, labels.SelectorFromSet(service.Spec.Selector))
		})
		fronts[service.UID] = f
	}
	if err := f.listen(ctx, service.Spec.Ports); err != nil {
		return err
	}
	return n.publishAddress(ctx, service, f.address)
}

// readyAddresses returns the addresses of the ready Pods in any order. The node ends the process of a deleted Pod
// after readyAddresses no longer returns it.
func (n *Node) readyAddresses(namespace string, selector labels.Selector) (addresses []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, w := range n.workers {
		pod := w.latest.Load()
		if view := w.snapshot(); view.Ready && w.wanted.Err() == nil && pod.Namespace == namespace && selector.Matches(labels.Set(pod.Labels)) {
			addresses = append(addresses, view.Address)
		}
	}
	return addresses
}

// publishAddress writes the address into the status of a Service if needed.
func (n *Node) publishAddress(ctx context.Context, service *corev1.Service, address string) error {
	if present := service.Status.LoadBalancer.Ingress; len(present) == 1 && present[0].IP == address {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	changed := service.DeepCopy()
	changed.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: address}}
	_, err := n.client.CoreV1().Services(service.Namespace).UpdateStatus(ctx, changed, metav1.UpdateOptions{})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil // the watch shows the change
	}
	if err != nil {
		return fmt.Errorf("write address of Service %s/%s: %w", service.Namespace, service.Name, err)
	}
	return nil
}
