package k8sresourcelock

import (
	"errors"
	"fmt"
	"time"

	"incumbent.dev/incumbent/internal/record"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
)

// The names in this file have the signature and the meaning that they have in client-go.

const (
	// LeasesResourceLock is the type of a LeaseLock.
	LeasesResourceLock = "leases"
	configMapsLock     = "configmaps"
)

// New returns a lock. lockType is LeasesResourceLock, or configmaps, which client-go has removed, for a ConfigMapLock.
func New(lockType, ns, name string, coreClient corev1client.CoreV1Interface, coordinationClient coordinationv1client.CoordinationV1Interface,
	rlc ResourceLockConfig,
) (Interface, error) {
	return NewWithLabels(lockType, ns, name, coreClient, coordinationClient, rlc, nil)
}

// NewWithLabels returns a lock as New does. labels become LeaseLock.Labels.
func NewWithLabels(lockType, ns, name string, coreClient corev1client.CoreV1Interface, coordinationClient coordinationv1client.CoordinationV1Interface,
	rlc ResourceLockConfig, labels map[string]string,
) (Interface, error) {
	meta := metav1.ObjectMeta{Namespace: ns, Name: name}
	lease := &LeaseLock{LeaseMeta: meta, Client: coordinationClient, LockConfig: rlc, Labels: labels}
	configMap := &ConfigMapLock{ConfigMapMeta: meta, Client: coreClient, LockConfig: rlc}
	switch lockType {
	case LeasesResourceLock:
		return lease, nil
	case configMapsLock:
		return configMap, nil
	}
	return nil, fmt.Errorf("lock %s/%s: lock type %q is not supported. Use %s.", ns, name, lockType, LeasesResourceLock)
}

// NewLock returns a lock of the kind. shared is the watch of a Lease. If it is nil, the lock has its own watch.
func NewLock(kind record.Kind, meta metav1.ObjectMeta, client kubernetes.Interface, config ResourceLockConfig, shared *Shared) Lock {
	if kind == record.ConfigMap {
		return &ConfigMapLock{ConfigMapMeta: meta, Client: client.CoreV1(), LockConfig: config}
	}
	return &LeaseLock{LeaseMeta: meta, Client: client.CoordinationV1(), LockConfig: config, Shared: shared}
}

// NewFromKubeconfig returns a lock as New does, with clients of its own. The timeout of a request is
// half of renewDeadline, at least a second.
func NewFromKubeconfig(lockType, ns, name string, rlc ResourceLockConfig, kubeconfig *rest.Config, renewDeadline time.Duration) (Interface, error) {
	fail := func(err error) (Interface, error) {
		return nil, fmt.Errorf("lock %s/%s: create client: %w", ns, name, err)
	}
	if kubeconfig == nil {
		return fail(errors.New("no kubeconfig was given"))
	}
	config := rest.CopyConfig(kubeconfig)
	config.Timeout = max(renewDeadline/2, time.Second)
	rest.AddUserAgent(config, "leader-election")
	leases, err := coordinationv1client.NewForConfig(config)
	if err != nil {
		return fail(err)
	}
	configMaps, err := corev1client.NewForConfig(config)
	if err != nil {
		return fail(err)
	}
	return New(lockType, ns, name, configMaps, leases, rlc)
}

// LeaseSpecToLeaderElectionRecord returns the record in the spec of a Lease. It does not include HolderKey, which is an
// annotation of the Lease.
func LeaseSpecToLeaderElectionRecord(spec *coordinationv1.LeaseSpec) *LeaderElectionRecord {
	if spec == nil {
		return &LeaderElectionRecord{}
	}
	return &LeaderElectionRecord{
		HolderIdentity:       ptr.Deref(spec.HolderIdentity, ""),
		LeaseDurationSeconds: int(ptr.Deref(spec.LeaseDurationSeconds, 0)),
		AcquireTime:          metav1.Time(ptr.Deref(spec.AcquireTime, metav1.MicroTime{})),
		RenewTime:            metav1.Time(ptr.Deref(spec.RenewTime, metav1.MicroTime{})),
		LeaderTransitions:    int(ptr.Deref(spec.LeaseTransitions, 0)),
		Strategy:             ptr.Deref(spec.Strategy, ""),
		PreferredHolder:      ptr.Deref(spec.PreferredHolder, ""),
	}
}

// LeaderElectionRecordToLeaseSpec returns the spec of a Lease with the record, without HolderKey.
func LeaderElectionRecordToLeaseSpec(ler *LeaderElectionRecord) coordinationv1.LeaseSpec {
	spec := coordinationv1.LeaseSpec{
		HolderIdentity:       ptr.To(ler.HolderIdentity),
		LeaseDurationSeconds: ptr.To(int32(ler.LeaseDurationSeconds)),
		AcquireTime:          &metav1.MicroTime{Time: ler.AcquireTime.Time},
		RenewTime:            &metav1.MicroTime{Time: ler.RenewTime.Time},
		LeaseTransitions:     ptr.To(int32(ler.LeaderTransitions)),
	}
	if ler.PreferredHolder != "" {
		spec.PreferredHolder = ptr.To(ler.PreferredHolder)
	}
	if ler.Strategy != "" {
		spec.Strategy = ptr.To(ler.Strategy)
	}
	return spec
}
