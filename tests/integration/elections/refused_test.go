package elections

import (
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/testutil/lives"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/tests/cluster"
)

// The API server refuses writes of the lock, by its own rules, while reads and watches go on:
// the leader leads until its cover ends, nobody tries without a pause, and the cause is named
// once. The bounds count what is sent: a slow machine sends less.
func TestRefusedWrites(t *testing.T) {
	for name, refuse := range map[string]refusal{
		"a permission is taken away": {func(t *testing.T, s *stage) { s.allow(t, "get", "watch") }, "permission for the lock is missing", false},
		"an admission policy denies": {func(t *testing.T, s *stage) { s.deny(t) }, "admission policy denies the change of the lock", false},
		"a webhook denies":           {func(t *testing.T, s *stage) { s.webhook(t, http.StatusForbidden) }, "admission webhook denies the change of the lock", false},
		"a webhook says 429":         {func(t *testing.T, s *stage) { s.webhook(t, http.StatusTooManyRequests) }, "admission webhook denies the change of the lock", false},
		"a webhook does not answer":  {func(t *testing.T, s *stage) { s.webhook(t, 0) }, "admission webhook for the lock does not respond", false},
		"the namespace is being deleted": {func(t *testing.T, s *stage) {
			s.terminate(t)
			s.deleteLock(t)
		}, "namespace of the lock is being deleted", true},
		"a quota leaves no room": {func(t *testing.T, s *stage) {
			s.quota(t)
			s.deleteLock(t)
		}, "quota does not allow the lock", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			refuse.check(t, newStage(t, leaderelection.LeaseLock))
		})
	}
}

// The store has no space left: an alarm that etcd raises, and that no time ends.
func TestWritesAreRefusedByAFullStore(t *testing.T) {
	t.Parallel()
	c, err := cluster.Start(t.Context(), cluster.Options{WithoutControllers: true, EtcdArgs: []string{"--quota-backend-bytes=16777216"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	refusal{func(t *testing.T, s *stage) { s.fill(t) }, "storage of the API server is full", false}.check(t, newStageOn(t, c, leaderelection.LeaseLock))
}

// refusal is a way in which an API server refuses writes; gone: only those that make an object,
// and the lock is deleted.
type refusal struct {
	begin func(t *testing.T, s *stage)
	says  string
	gone  bool
}

func (refuse refusal) check(t *testing.T, s *stage) {
	t.Helper()
	a := s.enter("a", "stable", brisk)
	eventually(t, "a leads", a.Live)
	b := s.enter("b", "stable", brisk)
	eventually(t, "b follows", b.follows("a"))
	refuse.begin(t, s)
	eventually(t, "the cause is named", func() bool { return strings.Contains(a.log.String()+b.log.String(), refuse.says) })
	before, began := a.wire.total()+b.wire.total(), time.Now()
	eventually(t, "a has stopped", func() bool { return !a.Live() })
	if led := a.Spans()[0].Told.Sub(a.wire.lastOwn()); led < 5*time.Second && !refuse.gone {
		t.Errorf("a was told to stop %v after its last renewal, its cover is 8s", led)
	}
	eventually(t, "the lease has run out twice", func() bool { return time.Since(began) > 2*briskLease })
	sent, took := a.wire.total()+b.wire.total()-before, time.Since(began)
	if periods := took.Seconds() / 2; float64(sent) > 4*periods {
		t.Errorf("a and b sent %d requests in %v, which is %.1f in a RetryPeriod", sent, took, float64(sent)/periods)
	}
	t.Logf("figure: %s: a and b sent %d requests in %v", refuse.says, sent, took.Round(time.Millisecond))
	for _, r := range []*replica{a, b} {
		if n := strings.Count(r.log.String(), refuse.says); n > 1 {
			t.Errorf("%s says %q %d times", r.name, refuse.says, n)
		}
	}
}

// deny has the API server refuse every change of a Lease in the stage's namespace.
func (s *stage) deny(t *testing.T) {
	t.Helper()
	client := s.cluster.Client(t).Kube().AdmissionregistrationV1()
	name := "deny-" + s.namespace
	policy := &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": s.namespace}},
				ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
					Rule:       admissionv1.Rule{APIGroups: []string{"coordination.k8s.io"}, APIVersions: []string{"*"}, Resources: []string{"leases"}},
				}}},
			},
			Validations: []admissionv1.Validation{{Expression: "false", Message: "not on Fridays"}},
		},
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}},
	}
	if _, err := client.ValidatingAdmissionPolicies().Create(t.Context(), policy, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.ValidatingAdmissionPolicyBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// Somebody has written the highest count that there is, or one beyond: elections go on, and the
// count stays, which is what a guard of the lock asks for.
func TestCountAtItsEnd(t *testing.T) {
	for name, try := range map[string]struct {
		lock  leaderelection.LockType
		count int
	}{
		"lease, at the maximum": {leaderelection.LeaseLock, math.MaxInt32},
		"config map, beyond it": {leaderelection.ConfigMapLock, 9999999999},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, try.lock)
			s.put(t, record{seconds: 1, transitions: try.count})
			a := s.enter("a", "stable", brisk)
			eventually(t, "a leads", a.Live)
			b := s.enter("b", "stable", brisk)
			eventually(t, "b follows", b.follows("a"))
			if err := a.Quit(); err != nil {
				t.Fatal(err)
			}
			eventually(t, "b leads", b.Live)
			if got := b.Status().Transitions; got != try.count {
				t.Errorf("the count is %d, want %d", got, try.count)
			}
			lives.Apart(t, a, b)
		})
	}
}
