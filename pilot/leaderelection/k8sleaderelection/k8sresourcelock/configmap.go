package k8sresourcelock

import (
	"context"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

// ConfigMapLock keeps the record as JSON in an annotation of a ConfigMap.
//
// Set the fields, then leave them alone. Get, Create and Update share one memory of
// the object last read or written by them, so callers of these on one lock value
// must take turns; Read, Write and Watch may be called at any time.
type ConfigMapLock struct {
	// ConfigMapMeta names the lock. Its labels, annotations and owner references
	// are given to a ConfigMap that this lock creates; of an existing one they
	// change nothing.
	ConfigMapMeta metav1.ObjectMeta
	Client        corev1client.ConfigMapsGetter
	LockConfig    ResourceLockConfig

	last memory
}

var (
	_ Versioned = (*ConfigMapLock)(nil)
	_ Watchable = (*ConfigMapLock)(nil)
	_ Annotated = (*ConfigMapLock)(nil)
)

var configMaps = &format[*corev1.ConfigMap]{
	word:     "configmap",
	resource: corev1.Resource("configmaps"),
	blank: func() *corev1.ConfigMap {
		return &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}}
	},
	snapshot: ConfigMapSnapshot,
	encode:   encodeConfigMap,
}

// ConfigMapSnapshot decodes a ConfigMap that serves as a lock. It neither changes
// the object nor panics on anything in it; the Snapshot shares its contents.
func ConfigMapSnapshot(cm *corev1.ConfigMap) Snapshot {
	if cm == nil {
		return Snapshot{}
	}
	kept := *cm
	kept.ManagedFields = nil
	snap := Snapshot{
		Exists:          true,
		UID:             cm.UID,
		ResourceVersion: cm.ResourceVersion,
		Annotations:     annotationsOf(cm.Annotations),
		Object:          &kept,
	}
	if raw, ok := cm.Annotations[LeaderElectionRecordAnnotationKey]; ok {
		snap.Raw = []byte(raw)
		snap.Record, snap.Unreadable = decodeJSON(snap.Raw)
	}
	return snap
}

func encodeConfigMap(cm *corev1.ConfigMap, record LeaderElectionRecord) error {
	raw, err := json.Marshal(record)
	if err != nil {
		return err
	}
	if cm.Annotations == nil {
		cm.Annotations = make(map[string]string, 1)
	}
	cm.Annotations[LeaderElectionRecordAnnotationKey] = string(raw)
	return nil
}

func (l *ConfigMapLock) access() access[*corev1.ConfigMap] {
	a := access[*corev1.ConfigMap]{format: configMaps, meta: &l.ConfigMapMeta, config: &l.LockConfig, last: &l.last}
	if l.Client != nil {
		a.client = l.Client.ConfigMaps(l.ConfigMapMeta.Namespace)
	}
	return a
}

// Validate reports every mistake in the lock's fields; it sends no request.
func (l *ConfigMapLock) Validate() error {
	return validate("configmap", &l.ConfigMapMeta, &l.LockConfig, l.Client != nil)
}

// Read implements Versioned.
func (l *ConfigMapLock) Read(ctx context.Context) (Snapshot, error) { return l.access().read(ctx) }

// Write implements Versioned.
func (l *ConfigMapLock) Write(ctx context.Context, base Snapshot, record LeaderElectionRecord, notes map[string]string) (Snapshot, error) {
	return l.access().write(ctx, base, record, notes)
}

// Annotate implements Annotated.
func (l *ConfigMapLock) Annotate(ctx context.Context, base Snapshot, notes map[string]string) (Snapshot, error) {
	return l.access().annotate(ctx, base, notes)
}

// Rehearse asks the server whether it would accept a Write, and changes nothing.
func (l *ConfigMapLock) Rehearse(ctx context.Context, base Snapshot, record LeaderElectionRecord, notes map[string]string) error {
	return l.access().rehearse(ctx, base, record, notes)
}

// Watch implements Watchable.
func (l *ConfigMapLock) Watch(ctx context.Context, from string, up func(), seen func(Snapshot)) (string, error) {
	return l.access().watch(ctx, from, up, seen)
}

// Get returns the record and its bytes. The error is a NotFound when there is no such
// ConfigMap, and wraps ErrUnreadable when its record cannot be read. A ConfigMap without a
// record gives a zero record, nil bytes and no error.
func (l *ConfigMapLock) Get(ctx context.Context) (*LeaderElectionRecord, []byte, error) {
	return l.access().plain(l).get(ctx)
}

// Create makes the ConfigMap; an AlreadyExists, which IsConflict reports too, when
// there is one.
func (l *ConfigMapLock) Create(ctx context.Context, ler LeaderElectionRecord) error {
	return l.access().plain(l).create(ctx, ler)
}

// Update replaces the record of the ConfigMap that Get, Create or Update saw last.
func (l *ConfigMapLock) Update(ctx context.Context, ler LeaderElectionRecord) error {
	return l.access().plain(l).update(ctx, ler)
}

// RecordEvent writes an Event about the ConfigMap, if there is a recorder.
func (l *ConfigMapLock) RecordEvent(s string) { l.access().recordEvent(corev1.EventTypeNormal, s) }

// RecordWarning implements Warning.
func (l *ConfigMapLock) RecordWarning(s string) { l.access().recordEvent(corev1.EventTypeWarning, s) }

// Identity is the candidate's own.
func (l *ConfigMapLock) Identity() string { return l.LockConfig.Identity }

// Key is the candidate's rank as it is written into the lock.
func (l *ConfigMapLock) Key() string { return l.LockConfig.Key }

// Describe is "namespace/name".
func (l *ConfigMapLock) Describe() string { return describe(&l.ConfigMapMeta) }
