package fence

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/pilot/leaderelection/fence"
	locks "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/tests/cluster"
)

// changes are how many random changes of a lock are judged.
const changes = 250

// A renewal is let pass by one condition of the lock's guard, which is cheap, and all else is judged by its rules.
// Whatever the condition lets pass, the rules would: random changes of the lock are judged by the guard as it is, by one
// without the condition, and by one that tells whether the condition let them pass.
func TestFenceLetsRenewalsPassAsItsRulesWould(t *testing.T) {
	both(t, func(t *testing.T, kind fence.LockKind) {
		s := newStage(t, kind)
		s.pod("a")
		s.put(record{holder: "a", transitions: 3})
		s.warnsOfTheLock("whole", func(*admissionv1.ValidatingAdmissionPolicySpec) {})
		s.warnsOfTheLock("rules", func(p *admissionv1.ValidatingAdmissionPolicySpec) { p.MatchConditions = nil })
		s.warnsOfTheLock("condition", func(p *admissionv1.ValidatingAdmissionPolicySpec) {
			p.Validations, p.Variables = []admissionv1.Validation{{Expression: "false"}}, nil
		})
		writers := map[string]*warned{}
		pods := []string{"a", "a", "a", "b", "", `a","holderKey":"k`}
		for _, pod := range pods {
			writers[pod] = s.warned(pod)
		}
		stolen := plain
		stolen.holder = "b"
		eventually(t, "all three judge", func() bool {
			told, err := writers["a"].change(s, plain, stolen)
			return err == nil && len(told["condition"]) > 0 && len(told["rules"]) > 0 && slices.Equal(told["whole"], told["rules"])
		})
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		r := rand.New(rand.NewPCG(seed, 0))
		passed, judged := 0, 0
		for range changes {
			before := plain.changed(r, r.IntN(3))
			after := before.changed(r, r.IntN(2))
			if r.IntN(4) > 0 {
				after.renewed = "2026-01-02T03:04:06Z"
			}
			pod := pods[r.IntN(len(pods))]
			told, err := writers[pod].change(s, before, after)
			switch {
			case err != nil: // no API server takes it
			case !slices.Equal(told["whole"], told["rules"]):
				t.Errorf("pod %q, from %+v to %+v: the guard says %q, its rules say %q", pod, before, after, told["whole"], told["rules"])
			case len(told["condition"]) == 0:
				passed++
			default:
				judged++
			}
		}
		t.Logf("%d were let pass by the condition, %d were judged by the rules", passed, judged)
		if passed < changes/20 || judged < changes/4 {
			t.Error("too few of either to show anything")
		}
		for name, day := range map[string]string{"an ordinary day": "2026-01-02T03:04:06Z", "a month's end": "2026-10-31T23:59:59Z", "the last of April": "2026-04-30T00:00:00Z"} {
			renewed := plain
			renewed.renewed = day
			if told, err := writers["a"].change(s, plain, renewed); err != nil || len(told) > 0 {
				t.Errorf("a renewal on %s: %v, %v", name, told, err)
			}
		}
	})
}

// warnsOfTheLock installs the lock's guard, changed, so that it warns of what it finds wrong, failures included.
func (s *stage) warnsOfTheLock(name string, change func(*admissionv1.ValidatingAdmissionPolicySpec)) {
	s.t.Helper()
	d := s.declaration()
	d.Guards = nil
	set, err := fence.Render(s.namespace, d)
	if err != nil {
		s.t.Fatal(err)
	}
	policy, binding := set.Locks[0].Policy, set.Locks[0].Binding
	policy.Name, binding.Name, binding.Spec.PolicyName = s.namespace+"."+name, s.namespace+"."+name, s.namespace+"."+name
	binding.Spec.ValidationActions = []admissionv1.ValidationAction{admissionv1.Warn}
	change(&policy.Spec)
	api := s.admin.AdmissionregistrationV1()
	if _, err := api.ValidatingAdmissionPolicies().Create(s.t.Context(), policy, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
	if _, err := api.ValidatingAdmissionPolicyBindings().Create(s.t.Context(), binding, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		_ = api.ValidatingAdmissionPolicyBindings().Delete(cleanup(s.t), binding.Name, metav1.DeleteOptions{})
		_ = api.ValidatingAdmissionPolicies().Delete(cleanup(s.t), policy.Name, metav1.DeleteOptions{})
	})
}

// warned is a pod with what the API server warned it of.
type warned struct {
	api  kubernetes.Interface
	mu   sync.Mutex
	told map[string][]string
}

// warned acts as a pod of the account, of whatever name.
func (s *stage) warned(pod string) *warned {
	s.t.Helper()
	w := &warned{}
	config := rest.CopyConfig(s.cluster.Admin())
	config.WarningHandler = w
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + s.namespace + ":" + account, Extra: map[string][]string{fence.PodClaim: {pod}}}
	w.api = cluster.ClientFor(s.t, config).Kube()
	return w
}

func (w *warned) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, rest, _ := strings.Cut(text, "'")
	name, rest, _ := strings.Cut(rest, "'")
	_, guard, _ := strings.Cut(name, ".")
	_, message, _ := strings.Cut(rest, "': ")
	w.told[guard] = append(w.told[guard], message)
}

// change has the lock be one way, as an operator, and then tries, dry, to make it another.
func (w *warned) change(s *stage, before, after state) (map[string][]string, error) {
	if err := before.write(s, s.admin); err != nil {
		return nil, err
	}
	w.mu.Lock()
	w.told = map[string][]string{}
	w.mu.Unlock()
	err := after.write(s, w.api, metav1.DryRunAll)
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.told, err
}

// state is what a lock says, in words that need not make sense.
type state struct {
	holder, key, seconds, acquired, renewed, transitions, tail string

	owned, finalized bool
	note             int
}

var plain = state{holder: "a", key: "stable", seconds: "30", acquired: "2026-01-02T03:04:05Z", renewed: "2026-01-02T03:04:05Z", transitions: "3"}

// changed is another state, with that many things said otherwise.
func (s state) changed(r *rand.Rand, times int) state {
	instants := []string{"2026-01-02T03:04:07Z", "2026-02-30T03:04:05Z", "2024-02-29T03:04:05Z", "2026-04-31T00:00:00Z", "0000-01-02T03:04:05Z", "2026-01-02T24:04:05Z", "2026-01-02T03:04:05", "tomorrow", ""}
	one := func(of ...string) string { return of[r.IntN(len(of))] }
	for range times {
		switch r.IntN(9) {
		case 0:
			s.holder = one("b", "", `a","holderKey":"k`, strings.Repeat("a", 513), "a\\", "ä")
		case 1:
			s.key = one("", "canary", "^stable", strings.Repeat("k", 400), `x"`)
		case 2:
			s.seconds = one("0", "030", "999999999", "9999999999", "15")
		case 3:
			s.acquired = one(instants...)
		case 4:
			s.renewed = one(instants...)
		case 5:
			s.transitions = one("4", "2", "0", "003", "2147483647", "2147483648", "9999999999", "999999999", "1000000000", "")
		case 6:
			s.tail = one(`,"strategy":"x"`, `,"holderIdentity":"b"`, `,"renewTime":"2026-01-02T03:04:05Z"`)
		case 7:
			s.owned, s.finalized = r.IntN(2) == 0, r.IntN(2) == 0
		case 8:
			s.note = []int{100, 40 << 10, 70 << 10}[r.IntN(3)]
		}
	}
	return s
}

func (s state) meta() metav1.ObjectMeta {
	meta := metav1.ObjectMeta{Name: election, Annotations: map[string]string{}}
	if s.owned {
		meta.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n", UID: "u"}}
	}
	if s.finalized {
		meta.Finalizers = []string{"incumbent.dev/none"}
	}
	if s.note > 0 {
		meta.Annotations["note"] = strings.Repeat("n", s.note)
	}
	return meta
}

// write replaces the lock whatever its version.
func (s state) write(on *stage, as kubernetes.Interface, dry ...string) error {
	options := metav1.UpdateOptions{DryRun: dry}
	if on.kind == fence.ConfigMap {
		cm := &corev1.ConfigMap{ObjectMeta: s.meta()}
		cm.Annotations[locks.LeaderElectionRecordAnnotationKey] = fmt.Sprintf(`{"holderIdentity":"%s","holderKey":"%s","leaseDurationSeconds":%s,"acquireTime":"%s","renewTime":"%s","leaderTransitions":%s%s}`,
			s.holder, s.key, s.seconds, s.acquired, s.renewed, s.transitions, s.tail)
		_, err := as.CoreV1().ConfigMaps(on.namespace).Update(on.t.Context(), cm, options)
		return err
	}
	present, err := on.admin.CoordinationV1().Leases(on.namespace).Get(on.t.Context(), election, metav1.GetOptions{})
	if err != nil {
		return err
	}
	lease := &coordinationv1.Lease{ObjectMeta: s.meta()}
	lease.ResourceVersion = present.ResourceVersion
	number := func(text string) *int32 {
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil {
			return nil
		}
		short := int32(n)
		return &short
	}
	at := func(text string) *metav1.MicroTime {
		t, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return nil
		}
		return &metav1.MicroTime{Time: t}
	}
	lease.Spec = coordinationv1.LeaseSpec{
		LeaseDurationSeconds: number(s.seconds), LeaseTransitions: number(s.transitions), AcquireTime: at(s.acquired), RenewTime: at(s.renewed),
	}
	if s.holder != "" || s.tail == "" { // an empty one and none are two things
		lease.Spec.HolderIdentity = &s.holder
	}
	_, err = as.CoordinationV1().Leases(on.namespace).Update(on.t.Context(), lease, options)
	return err
}
