package members

import (
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"incumbent.dev/incumbent/internal/testutil/harness"
)

var renewed = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

const stateText = `{"revision":"stable","cluster":"remote","version":"v1","elections":[` +
	`{"name":"istio-leader","candidate":true,"warm":true,"fit":false},{"name":"other","candidate":false,"warm":false,"fit":true}]}`

func leaseOf(change func(*coordinationv1.Lease)) *coordinationv1.Lease {
	identity, seconds, at := "pilot-1", int32(90), metav1.NewMicroTime(renewed)
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "istio-system", Name: "incumbent-member-pilot-1", Labels: map[string]string{Label: LabelValue},
			Annotations:     map[string]string{StateAnnotation: stateText},
			OwnerReferences: []metav1.OwnerReference{{Kind: "Node", UID: "n"}, {Kind: "Pod", UID: "u"}, {Kind: "Node", UID: "m"}},
		},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &identity, LeaseDurationSeconds: &seconds, RenewTime: &at},
	}
	if change != nil {
		change(lease)
	}
	return lease
}

func TestParse(t *testing.T) {
	m, err := Parse(leaseOf(nil))
	harness.Must(t, err)
	if m.Identity != "pilot-1" || m.Namespace != "istio-system" || m.Name != "incumbent-member-pilot-1" || m.PodUID != "u" ||
		m.Revision != "stable" || m.Version != "v1" || m.Key() != "^stable" || m.Duration != 90*time.Second || !m.Renewed.Equal(renewed) {
		t.Errorf("got %+v", m)
	}
	if e := m.Elections[0]; e.Name != "istio-leader" || !e.Candidate || !e.Warm || e.Fit {
		t.Errorf("istio-leader: %+v", e)
	}
	if m.Cluster = Local; m.Key() != "stable" {
		t.Errorf("key of a local member: %q", m.Key())
	}
	for after, late := range map[time.Duration]bool{-time.Hour: false, 100 * time.Second: false, 101 * time.Second: true} {
		if m.Late(renewed.Add(after), 10*time.Second) != late {
			t.Errorf("after %v: late %v", after, !late)
		}
	}
}

// A member whose clock is an hour slow is not late.
func TestParse_RenewedByServerClock(t *testing.T) {
	m, err := Parse(leaseOf(func(l *coordinationv1.Lease) {
		other, written := metav1.NewTime(renewed.Add(2*time.Hour)), metav1.NewTime(renewed.Add(time.Hour))
		l.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl-label", Time: &other}, {Manager: manager, Time: &written}}
	}))
	if err != nil || !m.Renewed.Equal(renewed.Add(time.Hour)) || m.Late(renewed.Add(time.Hour), time.Minute) {
		t.Errorf("renewed %v, %v", m.Renewed, err)
	}
}

func TestParse_Invalid(t *testing.T) {
	empty, other, none := "", "pilot-2", int32(0)
	for want, change := range map[string]func(*coordinationv1.Lease){
		"missing label":                          func(l *coordinationv1.Lease) { l.Labels[Label] = "yes" },
		"holderIdentity is empty":                func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = &empty },
		"spec.holderIdentity is empty":           func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = nil },
		"requires incumbent-member-pilot-":       func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = &other },
		"no renewTime":                           func(l *coordinationv1.Lease) { l.Spec.RenewTime = nil },
		"leaseDurationSeconds":                   func(l *coordinationv1.Lease) { l.Spec.LeaseDurationSeconds = nil },
		"no positive leaseDurationSeconds":       func(l *coordinationv1.Lease) { l.Spec.LeaseDurationSeconds = &none },
		"unexpected end of JSON":                 func(l *coordinationv1.Lease) { l.Annotations = nil },
		"cannot unmarshal":                       func(l *coordinationv1.Lease) { l.Annotations[StateAnnotation] = `[]` },
		"neither local nor remote":               func(l *coordinationv1.Lease) { l.Annotations[StateAnnotation] = `{}` },
		"spec.holderIdentity: value is too long": func(l *coordinationv1.Lease) { *l.Spec.HolderIdentity = strings.Repeat("x", 254) },
		"revision: value is too long": func(l *coordinationv1.Lease) {
			l.Annotations[StateAnnotation] = `{"cluster":"local","revision":"` + strings.Repeat("x", 64) + `"}`
		},
		"version or witness: value is too long": func(l *coordinationv1.Lease) {
			l.Annotations[StateAnnotation] = `{"cluster":"local","version":"` + strings.Repeat("x", 254) + `"}`
		},
		"election: value is too long": func(l *coordinationv1.Lease) {
			l.Annotations[StateAnnotation] = `{"cluster":"local","elections":[{"name":"` + strings.Repeat("x", 254) + `"}]}`
		},
		"election without name": func(l *coordinationv1.Lease) {
			l.Annotations[StateAnnotation] = `{"cluster":"local","elections":[{}]}`
		},
	} {
		m, err := Parse(leaseOf(change))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "istio-system/incumbent-member-pilot-1") {
			t.Errorf("%s: %v", want, err)
		}
		if m.Identity != "" {
			t.Errorf("%s: member returned with the error: %+v", want, m)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(stateText)
	f.Fuzz(func(t *testing.T, state string) {
		m, err := Parse(leaseOf(func(l *coordinationv1.Lease) { l.Annotations[StateAnnotation] = state }))
		if err == nil && m.Cluster != Local && m.Cluster != Remote {
			t.Errorf("cluster %q", m.Cluster)
		}
	})
}

func TestLeaseName(t *testing.T) {
	for identity, want := range map[string]string{
		"pilot-6c9-x": "incumbent-member-pilot-6c9-x", "a.b": "incumbent-member-a.b",
		"Host_1": "", strings.Repeat("a", 237): "", "": "", "a/b": "",
	} {
		name := LeaseName(identity)
		if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 || want != "" && name != want || want == "" && len(name) != len(NamePrefix)+32 {
			t.Errorf("LeaseName(%q) = %q: %q", identity, name, problems)
		}
	}
	if LeaseName("A") == LeaseName("B") {
		t.Error("two identities share a name")
	}
}
