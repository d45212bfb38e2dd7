package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"incumbent.dev/incumbent/internal/inspect"
	"incumbent.dev/incumbent/internal/members"
	locks "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// The names that the playground's cluster goes by.
const (
	systemNamespace = "istio-system"
	defaultWebhook  = "istio-revision-tag-default"
	revisionLabel   = "istio.io/rev"
	rootCertName    = "istio-ca-root-cert"
	rootCertKey     = "root-cert.pem"
)

// lock is what a lock object says.
type lock struct {
	holder, key string
	transitions int
	// unreadable is set when the object carries a record that is none.
	unreadable bool
}

// pod is one replica as the API server knows it.
type pod struct {
	revision, ip string
	ready        bool
	restarts     int
	leaving      bool
}

// view is how everything stood at one moment.
type view struct {
	// defaultRevision is "" when there is none.
	defaultRevision string
	locks           map[string]lock
	pods            map[string]pod
	// namespaces lists those that live; bundles, what each one's ConfigMap carries.
	namespaces map[string]bool
	bundles    map[string]string
	sampled    sampled
	// awaySince is when the API server ceased to be ready; zero while it is.
	awaySince time.Time
}

func (v view) clone() view {
	v.locks, v.pods = maps.Clone(v.locks), maps.Clone(v.pods)
	v.namespaces, v.bundles = maps.Clone(v.namespaces), maps.Clone(v.bundles)
	return v
}

// clusterView follows the cluster by watches.
type clusterView struct {
	factory informers.SharedInformerFactory
	// witnessed is the history of the lock that the demo disturbs.
	witnessed chronicle

	mu      sync.Mutex
	view    view
	changed chan struct{}
}

// watchCluster follows the cluster as long as watchCtx lives. It returns once it has seen
// everything that is there, or ctx ends.
func watchCluster(ctx, watchCtx context.Context, kube kubernetes.Interface) (*clusterView, error) {
	s := &clusterView{changed: make(chan struct{}), view: view{
		locks: map[string]lock{}, pods: map[string]pod{}, namespaces: map[string]bool{}, bundles: map[string]string{},
	}}
	factory := informers.NewSharedInformerFactory(kube, 0)
	s.factory = factory
	for _, informer := range []cache.SharedIndexInformer{
		factory.Core().V1().ConfigMaps().Informer(),
		factory.Core().V1().Pods().Informer(),
		factory.Core().V1().Namespaces().Informer(),
		factory.Coordination().V1().Leases().Informer(),
		factory.Admissionregistration().V1().MutatingWebhookConfigurations().Informer(),
	} {
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(obj any) { s.take(obj, true) },
			UpdateFunc: func(_, obj any) { s.take(obj, true) },
			DeleteFunc: func(obj any) {
				if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
					obj = gone.Obj
				}
				s.take(obj, false)
			},
		})
		if err != nil {
			return nil, fmt.Errorf("following the cluster: %w", err)
		}
	}
	factory.Start(watchCtx.Done())
	for kind, ok := range factory.WaitForCacheSync(ctx.Done()) {
		if !ok {
			return nil, fmt.Errorf("following %v: %w", kind, ctx.Err())
		}
	}
	return s, nil
}

// wait returns when nothing is followed any more; watchCtx has to be over.
func (s *clusterView) wait() { s.factory.Shutdown() }

// now is how things stand, and a channel that closes when that changes.
func (s *clusterView) now() (view, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.view.clone(), s.changed
}

// serverReady notes whether the API server is: watches do not tell, they only fall silent.
func (s *clusterView) serverReady(is bool, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if is == s.view.awaySince.IsZero() {
		return
	}
	s.view.awaySince = time.Time{}
	if !is {
		s.view.awaySince = at
	}
	close(s.changed)
	s.changed = make(chan struct{})
}

// sample notes how the sample stands.
func (s *clusterView) sample(now sampled) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.view.sampled == now {
		return
	}
	s.view.sampled = now
	close(s.changed)
	s.changed = make(chan struct{})
}

// take notes that an object is as given, or gone.
func (s *clusterView) take(obj any, exists bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch obj := obj.(type) {
	case *corev1.ConfigMap:
		s.takeConfigMap(obj, exists)
	case *coordinationv1.Lease:
		if _, member := obj.Labels[members.Label]; obj.Namespace == systemNamespace && !member {
			put(s.view.locks, obj.Name, leaseLock(obj), exists)
			if obj.Name == witnessed {
				state := recordState{gone: true}
				if exists {
					state = stateOfLease(obj)
				}
				s.witnessed.take(state, time.Now())
			}
		}
	case *corev1.Pod:
		if revision := obj.Labels[revisionLabel]; obj.Namespace == systemNamespace && revision != "" {
			put(s.view.pods, obj.Name, podView(obj), exists)
		}
	case *corev1.Namespace:
		put(s.view.namespaces, obj.Name, true, exists && obj.DeletionTimestamp == nil)
	case *admissionv1.MutatingWebhookConfiguration:
		if obj.Name == defaultWebhook {
			s.view.defaultRevision = ""
			if exists {
				s.view.defaultRevision = obj.Labels[revisionLabel]
			}
		}
	default:
		return
	}
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *clusterView) takeConfigMap(obj *corev1.ConfigMap, exists bool) {
	if obj.Name == rootCertName {
		put(s.view.bundles, obj.Namespace, obj.Data[rootCertKey], exists)
	}
	if obj.Namespace == systemNamespace && obj.Name == witnessed {
		state := recordState{gone: true}
		if exists {
			state = stateOf(obj)
		}
		s.witnessed.take(state, time.Now())
	}
	if _, isLock := obj.Annotations[locks.LeaderElectionRecordAnnotationKey]; isLock && obj.Namespace == systemNamespace {
		put(s.view.locks, obj.Name, configMapLock(obj), exists)
	} else if obj.Namespace == systemNamespace {
		delete(s.view.locks, obj.Name)
	}
}

func put[V any](m map[string]V, name string, value V, exists bool) {
	if exists {
		m[name] = value
	} else {
		delete(m, name)
	}
}

func configMapLock(obj *corev1.ConfigMap) lock {
	var l lock
	var record locks.LeaderElectionRecord
	if err := json.Unmarshal([]byte(obj.Annotations[locks.LeaderElectionRecordAnnotationKey]), &record); err != nil {
		l.unreadable = true
		return l
	}
	l.holder, l.key, l.transitions = record.HolderIdentity, record.HolderKey, record.LeaderTransitions
	return l
}

func leaseLock(obj *coordinationv1.Lease) lock {
	l := lock{key: obj.Annotations[locks.LeaseHolderKey]}
	if obj.Spec.HolderIdentity != nil {
		l.holder = inspect.Pod(*obj.Spec.HolderIdentity, obj.Name)
	}
	if obj.Spec.LeaseTransitions != nil {
		l.transitions = int(*obj.Spec.LeaseTransitions)
	}
	return l
}

// loopback is the address that a Pod's process has, where the Pod's status shows another one (node.Options.PodNetwork).
func loopback(ip string) string {
	if rest, shown := strings.CutPrefix(ip, "10."); shown {
		return "127." + rest
	}
	return ip
}

func podView(obj *corev1.Pod) pod {
	p := pod{revision: obj.Labels[revisionLabel], ip: loopback(obj.Status.PodIP), leaving: obj.DeletionTimestamp != nil}
	for _, condition := range obj.Status.Conditions {
		if condition.Type == corev1.PodReady {
			p.ready = condition.Status == corev1.ConditionTrue
		}
	}
	for _, status := range obj.Status.ContainerStatuses {
		p.restarts += int(status.RestartCount)
	}
	return p
}

// spread counts the namespaces where the bundle is in place, of those where it
// should be.
func (v view) spread(bundle string, excluded map[string]bool) (in, of int, missing []string) {
	for namespace := range v.namespaces {
		if excluded[namespace] {
			continue
		}
		of++
		if v.bundles[namespace] == bundle {
			in++
		} else {
			missing = append(missing, namespace)
		}
	}
	return in, of, missing
}

// await blocks until a condition holds, and says what was missing when ctx ends
// first. recheck bounds how long a condition on something else than the cluster
// goes unnoticed.
func (s *clusterView) await(ctx context.Context, recheck time.Duration, holds func(view) (bool, string)) error {
	for {
		v, changed := s.now()
		ok, why := holds(v)
		if ok {
			return nil
		}
		timer := time.NewTimer(recheck)
		select {
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("%s: %w", why, context.Cause(ctx))
		case <-changed:
		case <-timer.C:
		}
		timer.Stop()
	}
}
