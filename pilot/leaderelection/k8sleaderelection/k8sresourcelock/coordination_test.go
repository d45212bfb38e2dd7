package k8sresourcelock

import (
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/internal/testutil/harness"
)

// carriers write the fields of a coordinator in both forms.
var carriers = map[string]func(l *coordinationv1.Lease, strategy, preferred string){
	"spec": func(l *coordinationv1.Lease, strategy, preferred string) {
		l.Spec.Strategy, l.Spec.PreferredHolder = new(coordinationv1.CoordinatedLeaseStrategy(strategy)), &preferred
	},
	"annotations": func(l *coordinationv1.Lease, strategy, preferred string) {
		metav1.SetMetaDataAnnotation(&l.ObjectMeta, record.StrategyAnnotation, strategy)
		metav1.SetMetaDataAnnotation(&l.ObjectMeta, record.PreferredHolderAnnotation, preferred)
	},
}

// A write preserves the fields of a coordinator, except a preferredHolder that has become the holder or that the
// holder removes.
func TestEncodeLease_Coordination(t *testing.T) {
	for name, carry := range carriers {
		for holder, want := range map[string]string{"pod-a": "pod-z", "pod-z": "", "": "pod-z"} {
			lease := goldenLease()
			carry(lease, "example.com/Zone", "pod-z")
			record := golden
			record.HolderIdentity = holder
			harness.Must(t, encodeLease(lease, record))
			lease.Annotations = applyAnnotations(lease.Annotations, nil)
			if snap := LeaseSnapshot(lease); snap.Strategy != "example.com/Zone" || snap.PreferredHolder != want {
				t.Errorf("%s, held by %q: strategy %q, preferred %q", name, holder, snap.Strategy, snap.PreferredHolder)
			}
		}
	}
	for name, carry := range carriers {
		lease := goldenLease()
		lease.UID, lease.ResourceVersion = "u", "7"
		carry(lease, "example.com/Zone", "pod-z")
		changed, err := (&LeaseLock{}).access().compose(LeaseSnapshot(lease), golden, map[string]string{record.PreferredHolderAnnotation: ""})
		harness.Must(t, err)
		_, annotated := changed.Annotations[record.PreferredHolderAnnotation]
		if snap := LeaseSnapshot(changed); snap.Strategy != "example.com/Zone" || snap.PreferredHolder != "" || annotated {
			t.Errorf("%s, preference removed: strategy %q, preferred %q, annotated %v", name, snap.Strategy, snap.PreferredHolder, annotated)
		}
	}
	lease := goldenLease()
	carriers["spec"](lease, "example.com/Zone", "")
	released := golden
	released.HolderIdentity = ""
	if err := encodeLease(lease, released); err != nil || lease.Spec.PreferredHolder == nil {
		t.Errorf("the preferredHolder of a released Lease was removed: %+v, %v", lease.Spec, err)
	}
}
