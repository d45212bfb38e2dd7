package play

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	clientgo "k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// peer takes part with client-go's elector: over a Lease, or over a ConfigMap as client-go
// had it once and istiod still does. Its requests are bounded by the client, as its users do.
func (p *process) peer() (run func(context.Context)) {
	w := p.w
	config := rest.CopyConfig(p.client.RESTConfig())
	config.Timeout = renew / 2
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		w.t.Fatal(err)
	}
	var lock resourcelock.Interface = &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: election}, Client: client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: p.Name},
	}
	if !w.Mix.ByLease() {
		lock = &configMapLock{client: client.CoreV1().ConfigMaps(w.namespace), identity: p.Name}
	}
	e, err := clientgo.NewLeaderElector(clientgo.LeaderElectionConfig{
		Lock: lock, LeaseDuration: lease, RenewDeadline: renew, RetryPeriod: retry, ReleaseOnCancel: true,
		Callbacks: clientgo.LeaderCallbacks{OnStartedLeading: p.peerWork, OnStoppedLeading: func() {}},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return func(ctx context.Context) {
		for ctx.Err() == nil {
			e.Run(ctx)
		}
	}
}

// peerWork ends with its context. What others do beside it is not ours to answer for.
func (p *process) peerWork(ctx context.Context) {
	p.ran(true)
	<-ctx.Done()
	p.ran(false)
}

// configMapLock is a lock of client-go's elector: the record is a ConfigMap's annotation.
type configMapLock struct {
	client   corev1client.ConfigMapInterface
	identity string

	mu  sync.Mutex
	now *corev1.ConfigMap
}

func (l *configMapLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	now, err := l.client.Get(ctx, election, metav1.GetOptions{})
	if err != nil {
		return nil, nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now = now
	raw, record := now.Annotations[resourcelock.LeaderElectionRecordAnnotationKey], &resourcelock.LeaderElectionRecord{}
	if raw == "" {
		return record, nil, nil
	}
	if err := json.Unmarshal([]byte(raw), record); err != nil {
		return nil, nil, fmt.Errorf("the record of %s: %w", election, err)
	}
	return record, []byte(raw), nil
}

func (l *configMapLock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.store(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: election}}, r, func(m *corev1.ConfigMap) (*corev1.ConfigMap, error) {
		return l.client.Create(ctx, m, metav1.CreateOptions{})
	})
}

func (l *configMapLock) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	l.mu.Lock()
	now := l.now
	l.mu.Unlock()
	if now == nil {
		return errors.New("an update before a read")
	}
	return l.store(now.DeepCopy(), r, func(m *corev1.ConfigMap) (*corev1.ConfigMap, error) {
		return l.client.Update(ctx, m, metav1.UpdateOptions{})
	})
}

func (l *configMapLock) store(m *corev1.ConfigMap, r resourcelock.LeaderElectionRecord, send func(*corev1.ConfigMap) (*corev1.ConfigMap, error)) error {
	raw, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if m.Annotations == nil {
		m.Annotations = map[string]string{}
	}
	m.Annotations[resourcelock.LeaderElectionRecordAnnotationKey] = string(raw)
	stored, err := send(m)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now = stored
	return nil
}

func (l *configMapLock) RecordEvent(string) {}
func (l *configMapLock) Identity() string   { return l.identity }
func (l *configMapLock) Describe() string   { return election }
