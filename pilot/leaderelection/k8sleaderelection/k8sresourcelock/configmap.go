package k8sresourcelock

import (
	"context"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

// ConfigMapLock stores the record as JSON in an annotation of a ConfigMap.
//
// Do not change the fields after the first call. Get, Create and Update remember the object that they saw last, so
// they must not be called concurrently. Read, Write and Subscribe may be called at any time.
type ConfigMapLock struct {
	// ConfigMapMeta names the lock. Its labels, annotations and owner references are set only on a ConfigMap that
	// this lock creates.
	ConfigMapMeta metav1.ObjectMeta
	// Client reads and writes ConfigMaps.
	Client corev1client.ConfigMapsGetter
	// LockConfig describes the candidate.
	LockConfig ResourceLockConfig

	last memory
}

var _ Lock = (*ConfigMapLock)(nil)

var configMaps = &format[*corev1.ConfigMap]{
	kind:     "configmap",
	resource: corev1.Resource("configmaps"),
	blank: func() *corev1.ConfigMap {
		return &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}}
	},
	snapshot: ConfigMapSnapshot,
	encode:   encodeConfigMap,
}

// ConfigMapSnapshot decodes the ConfigMap of a lock. It does not change the object. The Snapshot shares its
// content.
func ConfigMapSnapshot(cm *corev1.ConfigMap) Snapshot {
	if cm == nil {
		return Snapshot{}
	}
	stored := *cm
	stored.ManagedFields = nil
	snap := Snapshot{
		Exists:          true,
		UID:             cm.UID,
		ResourceVersion: cm.ResourceVersion,
		Annotations:     annotationsOf(cm.Annotations),
		ManagedFields:   cm.ManagedFields,
		Object:          &stored,
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
		a.store = l.Client
		a.client = directConfigMaps(l.Client).ConfigMaps(l.ConfigMapMeta.Namespace)
	}
	return a
}

// Validate implements Lock.
func (l *ConfigMapLock) Validate() error {
	return validate("configmap", &l.ConfigMapMeta, &l.LockConfig, l.Client != nil)
}

// Read implements Lock.
func (l *ConfigMapLock) Read(ctx context.Context) (Snapshot, error) { return l.access().read(ctx) }

// Write implements Lock.
func (l *ConfigMapLock) Write(ctx context.Context, base Snapshot, record LeaderElectionRecord, annotations map[string]string) (Snapshot, error) {
	return l.access().write(ctx, base, record, annotations)
}

// Annotate implements Lock.
func (l *ConfigMapLock) Annotate(ctx context.Context, base Snapshot, annotations map[string]string) (Snapshot, error) {
	return l.access().annotate(ctx, base, annotations)
}

// DryRun implements Lock.
func (l *ConfigMapLock) DryRun(ctx context.Context, base Snapshot, record LeaderElectionRecord, annotations map[string]string) error {
	return l.access().dryRun(ctx, base, record, annotations)
}

// Subscribe implements Lock.
func (l *ConfigMapLock) Subscribe(ctx context.Context, wake func()) Subscription {
	return l.access().watched().subscribe(ctx, nil, wake)
}

// Get returns the record and its bytes. The error is NotFound if the ConfigMap does not exist, and wraps
// ErrUnreadable if its record cannot be read. For a ConfigMap without a record it returns a zero record, nil bytes
// and no error.
func (l *ConfigMapLock) Get(ctx context.Context) (*LeaderElectionRecord, []byte, error) {
	return l.access().getRecord(ctx)
}

// Create creates the ConfigMap. If it exists, the error is AlreadyExists and IsConflict reports true.
func (l *ConfigMapLock) Create(ctx context.Context, ler LeaderElectionRecord) error {
	return l.access().writeRecord(ctx, Snapshot{}, ler)
}

// Update replaces the record of the ConfigMap that the last Get, Create or Update returned.
func (l *ConfigMapLock) Update(ctx context.Context, ler LeaderElectionRecord) error {
	return l.access().updateRecord(ctx, ler)
}

// RecordEvent implements Interface.
func (l *ConfigMapLock) RecordEvent(s string) { l.access().recordEvent(corev1.EventTypeNormal, s) }

// RecordWarning implements Lock.
func (l *ConfigMapLock) RecordWarning(s string) { l.access().recordEvent(corev1.EventTypeWarning, s) }

// Identity returns the identity of the candidate.
func (l *ConfigMapLock) Identity() string { return l.LockConfig.Identity }

// Key returns the rank of the candidate.
func (l *ConfigMapLock) Key() string { return l.LockConfig.Key }

// Describe returns "namespace/name".
func (l *ConfigMapLock) Describe() string { return describe(&l.ConfigMapMeta) }
