package k8sresourcelock

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func entry(manager, fields string) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, FieldsV1: metav1.NewFieldsV1(fields)}
}

func TestRecordedKey(t *testing.T) {
	const (
		record = `{"f:spec":{"f:holderIdentity":{},"f:renewTime":{}}}`
		note   = `{"f:metadata":{"f:annotations":{".":{},"f:leader.istio.io/holder-key":{}}}}`
		both   = `{"f:metadata":{"f:annotations":{".":{},"f:leader.istio.io/holder-key":{}}},"f:spec":{"f:renewTime":{}}}`
		label  = `{"f:metadata":{"f:labels":{"f:x":{}}}}`
	)
	tests := []struct {
		name    string
		peer    bool   // times with microseconds
		renewed string // if not empty, renewTime
		managed []metav1.ManagedFieldsEntry
		want    string
	}{
		{name: "ours", want: "stable", managed: []metav1.ManagedFieldsEntry{entry("pilot", both)}},
		{name: "ours, renewed twice in a second", renewed: "2026-01-02T03:04:12.000999Z", want: "stable", managed: []metav1.ManagedFieldsEntry{entry("pilot-discovery", note), entry("pilot", record)}},
		{name: "client-go, with a millisecond", renewed: "2026-01-02T03:04:12.001Z", managed: []metav1.ManagedFieldsEntry{entry("pilot", note), entry("operator", record)}},
		{name: "ours after istiod with an equal key", want: "stable", managed: []metav1.ManagedFieldsEntry{entry("pilot-discovery", note), entry("pilot", record)}},
		{name: "istiod", peer: true, want: "stable", managed: []metav1.ManagedFieldsEntry{entry("pilot-discovery", both)}},
		{name: "istiod after us with an equal key", peer: true, want: "stable", managed: []metav1.ManagedFieldsEntry{entry("pilot", note), entry("pilot-discovery", record)}},
		{name: "istiod by another name", peer: true, want: "stable", managed: []metav1.ManagedFieldsEntry{entry("kubectl", label), entry("istiod-custom", both)}},
		{name: "client-go after us", peer: true, managed: []metav1.ManagedFieldsEntry{entry("pilot", note), entry("operator", record)}},
		{name: "client-go after istiod", peer: true, managed: []metav1.ManagedFieldsEntry{entry("pilot-discovery", note), entry("operator", record), entry("kubectl", label)}},
		{name: "set by hand", peer: true, managed: []metav1.ManagedFieldsEntry{entry("kubectl", note), entry("operator", record)}},
		{name: "nothing noted", peer: true, want: "stable"},
		{name: "half noted", peer: true, want: "stable", managed: []metav1.ManagedFieldsEntry{entry("operator", record), {Manager: "empty"}}},
		{name: "the annotation noted, the record not", peer: true, want: "stable", managed: []metav1.ManagedFieldsEntry{entry("operator", note)}},
		{name: "a peer whose name begins istiod's", peer: true, managed: []metav1.ManagedFieldsEntry{entry("kubectl", note), entry("pilot", record)}},
		{name: "istiod of a revision", peer: true, want: "stable", managed: []metav1.ManagedFieldsEntry{entry("pilot", note), entry("pilot-discovery-1-26", record)}},
		{name: "rubbish beside client-go", peer: true, managed: []metav1.ManagedFieldsEntry{entry("pilot", note), entry("operator", record), entry("x", `[`)}},
		{name: "another field of the record's", peer: true, managed: []metav1.ManagedFieldsEntry{entry("kubectl", note), entry("kubectl", `{"f:spec":{"f:strategy":{}}}`), entry("operator", record)}},
		{name: "rubbish noted", peer: true, want: "stable", managed: []metav1.ManagedFieldsEntry{entry("a", `[`), entry("b", `{"f:spec":7}`)}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			lease := goldenLease()
			lease.ManagedFields = tt.managed
			if tt.peer {
				lease.Spec.RenewTime = micro("2026-01-02T03:04:12.345678Z")
			}
			if tt.renewed != "" {
				lease.Spec.RenewTime = micro(tt.renewed)
			}
			if got := LeaseSnapshot(lease).Record.HolderKey; got != tt.want {
				t.Errorf("key %q, want %q", got, tt.want)
			}
			if tt.peer { // which acquired in microseconds, and renewed in a whole second
				lease.Spec.AcquireTime, lease.Spec.RenewTime = lease.Spec.RenewTime, lease.Spec.AcquireTime
				if got := LeaseSnapshot(lease).Record.HolderKey; got != tt.want {
					t.Errorf("key %q, want %q", got, tt.want)
				}
			}
		})
	}
}
