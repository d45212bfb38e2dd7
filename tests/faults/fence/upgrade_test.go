package fence

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"incumbent.dev/incumbent/internal/fence/install"
	"incumbent.dev/incumbent/pilot/leaderelection/fence"
	"incumbent.dev/incumbent/tests/cluster"
)

// errInterrupted is what an installer's requests fail with once it is interrupted.
var errInterrupted = errors.New("interrupted")

// fuse lets so many writes of an installer through, and nothing more. It is safe for
// concurrent use.
type fuse struct {
	mu   sync.Mutex
	left int
	next http.RoundTripper
}

func (f *fuse) RoundTrip(req *http.Request) (*http.Response, error) {
	f.mu.Lock()
	if req.Method != http.MethodGet && req.URL.Query().Get("dryRun") == "" {
		f.left--
	}
	blown := f.left < 0
	f.mu.Unlock()
	if blown {
		return nil, errInterrupted
	}
	return f.next.RoundTrip(req)
}

// WrappedRoundTripper lets client-go find the transport below.
func (f *fuse) WrappedRoundTripper() http.RoundTripper { return f.next }

// installer is an administrator whose process ends after so many writes.
func (s *stage) installer(writes int) kubernetes.Interface {
	s.t.Helper()
	config := rest.CopyConfig(s.cluster.Admin())
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &fuse{left: writes, next: next} })
	return cluster.ClientFor(s.t, config).Kube()
}

// further are n declarations of the election, each with guards that no other has, before, after
// or instead of one another; the one of the guarded ConfigMap is in all of them.
func (s *stage) further(r *rand.Rand) fence.Declaration {
	d := s.declaration()
	always := d.Guards[0]
	var guards []fence.Guard
	for _, name := range []string{"x", "y", "z"} {
		if r.IntN(2) == 0 {
			continue
		}
		g := fence.Guard{Resources: []string{"secrets"}, Names: []string{name}, Namespaces: []string{s.namespace}}
		if r.IntN(2) == 0 {
			g.Verbs = []string{"create", "delete"}
		}
		guards = append(guards, g)
	}
	at := r.IntN(len(guards) + 1)
	d.Guards = append(append(append([]fence.Guard{}, guards[:at]...), always), guards[at:]...)
	switch r.IntN(4) {
	case 0:
		always.Verbs = []string{"create"} // what is tried is guarded all the same
		d.Guards[at] = always
	case 1:
		always.Names = append([]string{"another"}, always.Names...)
		d.Guards[at] = always
	}
	d.WithoutLockGuard = r.IntN(4) == 0
	return d
}

// upgrade goes over to a declaration, interrupted after so many writes; 0 means not at
// all. It reports whether it came to its end.
func (s *stage) upgrade(d fence.Declaration, writes int) bool {
	s.t.Helper()
	set, err := fence.Render(s.namespace, d)
	if err != nil {
		s.t.Fatal(err)
	}
	as := s.admin
	if writes > 0 {
		as = s.installer(writes)
	}
	_, err = install.Apply(s.t.Context(), as, set)
	if err != nil && !errors.Is(err, errInterrupted) && !errors.Is(err, context.Canceled) {
		s.t.Fatal(err)
	}
	return err == nil
}

// firstGuard is one that moves all others by a place when it is put first.
func (s *stage) firstGuard() fence.Guard {
	return fence.Guard{Resources: []string{"secrets"}, Names: []string{"x"}, Namespaces: []string{s.namespace}}
}

// A guard that is put first moves all others by a place. What both declarations guard is guarded
// all the time, and the leader is never refused.
func TestFenceUpgradeWithAGuardPutFirst(t *testing.T) {
	t.Parallel()
	s := newStage(t, fence.Lease)
	a, b := s.guarded()
	one, two := s.declaration(), s.declaration()
	two.Guards = append([]fence.Guard{s.firstGuard()}, two.Guards...)
	leader, other := s.tally(a), s.tally(b)
	for range 2 {
		s.upgrade(two, 0)
		s.upgrade(one, 0)
	}
	s.unbroken(leader, other)
}

func (s *stage) unbroken(leader, other func() (admitted, refused int)) {
	s.t.Helper()
	if admitted, refused := leader(); refused > 0 || admitted == 0 {
		s.t.Errorf("%d of the leader's writes were refused, %d admitted", refused, admitted)
	}
	if admitted, refused := other(); admitted > 0 || refused == 0 {
		s.t.Errorf("%d of another pod's writes to what is guarded all the time were admitted, %d refused", admitted, refused)
	}
}

// What an earlier version has installed (with selectors in the policies, and validations of what conditions tell now) goes
// over into what this one renders, and nothing is open in between.
func TestFenceUpgradeFromAnEarlierVersion(t *testing.T) {
	t.Parallel()
	s := newStage(t, fence.Lease)
	a, b := s.pod("a"), s.pod("b")
	s.put(record{holder: "a", transitions: 3})
	s.earlier()
	s.stands(a, b)
	before := s.installed()
	leader, other := s.tally(a), s.tally(b)
	s.install(s.declaration())
	s.unbroken(leader, other)
	now := s.installed()
	for _, name := range before {
		if slices.Contains(now, name) {
			t.Errorf("%s is still there", name)
		}
	}
	if len(now) != 2*len(s.set.Locks)+2*len(s.set.Work) {
		t.Errorf("installed are %v", now)
	}
	s.stands(a, b)
}

// earlier installs the policies of testdata/earlier.yaml, which an earlier version has rendered of the stage's declaration, in their order.
func (s *stage) earlier() {
	s.t.Helper()
	text, err := os.ReadFile("testdata/earlier.yaml")
	if err != nil {
		s.t.Fatal(err)
	}
	api := s.admin.AdmissionregistrationV1()
	var bindings []*admissionv1.ValidatingAdmissionPolicyBinding
	for _, document := range strings.Split(strings.ReplaceAll(string(text), "stage-namespace", s.namespace), "\n---\n") {
		policy, binding := &admissionv1.ValidatingAdmissionPolicy{}, &admissionv1.ValidatingAdmissionPolicyBinding{}
		if err := yaml.Unmarshal([]byte(document), binding); err != nil {
			s.t.Fatal(err)
		}
		if strings.HasPrefix(binding.Name, "incumbent-fence-keep.") {
			continue // the present one does the same, and is all tests'
		}
		if binding.Kind == "ValidatingAdmissionPolicyBinding" {
			bindings = append(bindings, binding)
			continue
		}
		if err := yaml.Unmarshal([]byte(document), policy); err != nil {
			s.t.Fatal(err)
		}
		if _, err := api.ValidatingAdmissionPolicies().Create(s.t.Context(), policy, metav1.CreateOptions{}); err != nil {
			s.t.Fatal(err)
		}
	}
	for _, binding := range bindings {
		if _, err := api.ValidatingAdmissionPolicyBindings().Create(s.t.Context(), binding, metav1.CreateOptions{}); err != nil {
			s.t.Fatal(err)
		}
	}
}

// An upgrade ends after each of its writes in turn. The fence stands all the time, and the
// next upgrade is whole.
func TestFenceUpgradeInterruptedAnywhere(t *testing.T) {
	t.Parallel()
	s := newStage(t, fence.Lease)
	a, b := s.guarded()
	one, two := s.declaration(), s.declaration()
	two.Guards = append([]fence.Guard{s.firstGuard()}, two.Guards...)
	leader, other := s.tally(a), s.tally(b)
	whole := false
	for writes := 1; !whole; writes++ {
		if writes > 50 {
			t.Fatal("an upgrade takes more than 50 writes")
		}
		whole = s.upgrade(two, writes)
		if !whole {
			s.upgrade(one, writes) // back, from where it was left, and interrupted as well
		}
	}
	s.unbroken(leader, other)
	want, err := fence.Render(s.namespace, two)
	if err != nil {
		t.Fatal(err)
	}
	if got := s.installed(); len(got) != 2*len(want.Locks)+2*len(want.Work) {
		t.Errorf("%d objects are installed, of %d pairs: %v", len(got), len(want.Locks)+len(want.Work), got)
	}
}

// upgradesVariable says how many random upgrades to make.
const upgradesVariable = "FENCE_UPGRADES"

// Random upgrades between random declarations, interrupted at random, under a pod that writes
// without a pause and does not lead.
func TestFenceRandomUpgrades(t *testing.T) {
	t.Parallel()
	upgrades := 8
	if text := os.Getenv(upgradesVariable); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatalf("%s=%s: give a number", upgradesVariable, text)
		}
		upgrades = n
	}
	const lanes = 4
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for lane := range lanes {
		t.Run(fmt.Sprint(lane), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, uint64(lane)))
			kind := []fence.LockKind{fence.ConfigMap, fence.Lease}[lane%2]
			s := newStage(t, kind)
			a, b := s.guarded()
			leader, other := s.tally(a), s.tally(b)
			whole := 0
			for range (upgrades + lanes - 1) / lanes {
				writes := 0
				if r.IntN(2) == 0 {
					writes = 1 + r.IntN(20)
				}
				if s.upgrade(s.further(r), writes) {
					whole++
				}
			}
			s.unbroken(leader, other)
			t.Logf("figure: %d upgrades, %d of them whole", (upgrades+lanes-1)/lanes, whole)
		})
	}
}
