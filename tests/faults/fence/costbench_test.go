package fence

import (
	"fmt"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"incumbent.dev/incumbent/internal/fence"
	"incumbent.dev/incumbent/internal/fence/install"
	"incumbent.dev/incumbent/tests/cluster"
)

// fences returns n declarations of elections in one namespace. The first guards the written objects;
// the others guard it as well if all match, and something of their own otherwise.
func (s *stage) fences(n int, all bool) []fence.Declaration {
	var declarations []fence.Declaration
	for i := range n {
		d := s.declaration()
		d.Guards[0].Resources = []string{"configmaps"}
		if i > 0 {
			d.Election = fmt.Sprintf("%s-%d", election, i)
			if !all {
				d.Guards[0].Names = []string{fmt.Sprintf("%s-%d", guarded, i)}
			}
		}
		declarations = append(declarations, d)
	}
	return declarations
}

// side is one of two clusters that are measured side by side.
type side struct {
	*stage
	as kubernetes.Interface
	// lock is the lock after the last renewal. An elector renews this version.
	lock *coordinationv1.Lease
}

func newSide(b *testing.B) *side {
	b.Helper()
	s := stageOn(b, ownCluster(b, cluster.Options{}), fence.Lease)
	m := &side{stage: s, as: s.pod("a")}
	s.put(record{holder: "a", transitions: 3})
	for i := 1; i < 100; i++ {
		lease := record{holder: "a"}.lease()
		lease.Name = fmt.Sprintf("%s-%d", election, i)
		if _, err := s.admin.CoordinationV1().Leases(s.namespace).Create(b.Context(), lease, metav1.CreateOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	return m
}

func BenchmarkFenceCost(b *testing.B) {
	none, some := newSide(b), newSide(b)
	for _, c := range []struct {
		fences int
		all    bool
	}{{0, false}, {1, false}, {10, false}, {10, true}, {100, false}, {100, true}} {
		matching := "one matching"
		if c.all {
			matching = "all matching"
		}
		if c.fences > 0 {
			set, err := fence.Render(some.namespace, some.fences(c.fences, c.all)...)
			if err != nil {
				b.Fatal(err)
			}
			if _, err := install.Apply(b.Context(), some.admin, set); err != nil {
				b.Fatal(err)
			}
			for installed := time.Now(); time.Since(installed) < settles; {
				none.takes(b, "renewal")
				some.takes(b, "renewal")
			}
		}
		for _, what := range []string{"renewal", guarded, "free"} {
			b.Run(fmt.Sprintf("%d fences, %s/%s", c.fences, matching, what), func(b *testing.B) { cost(b, none, some, what) })
		}
	}
}

// settles is how long after an installation nothing is measured.
const settles = 15 * time.Second

// cost measures one kind of write on both sides. Which is first changes with each turn, since the
// second one finds the machine's caches warm.
func cost(b *testing.B, none, some *side, what string) {
	var without, with lateness
	var ratios []float64
	first, second := none, some
	for range 20 {
		none.takes(b, what) // new connections, lazily made informers
		some.takes(b, what)
	}
	for b.Loop() {
		took := map[*side]time.Duration{}
		took[first] = first.takes(b, what)
		took[second] = second.takes(b, what)
		first, second = second, first
		without.add(took[none])
		with.add(took[some])
		ratios = append(ratios, float64(took[some])/float64(took[none]))
	}
	slices.Sort(ratios)
	b.ReportMetric(ratios[len(ratios)/2], "ratio")
	b.ReportMetric(float64(with.at(0.5))/float64(without.at(0.5)), "of-medians")
	b.ReportMetric(without.at(0.5).Seconds()*1000, "none-p50-ms")
	with.report(b, "took")
}

// takes makes one write.
func (m *side) takes(b *testing.B, what string) time.Duration {
	b.Helper()
	if what == "renewal" {
		leases := m.as.CoordinationV1().Leases(m.namespace)
		var err error
		if m.lock == nil {
			if m.lock, err = leases.Get(b.Context(), election, metav1.GetOptions{}); err != nil {
				b.Fatal(err)
			}
		}
		sent := time.Now()
		m.lock.Spec.RenewTime = &metav1.MicroTime{Time: sent}
		if m.lock, err = leases.Update(b.Context(), m.lock, metav1.UpdateOptions{}); err != nil {
			b.Fatal(err)
		}
		return time.Since(sent)
	}
	sent := time.Now()
	_, err := m.as.CoreV1().ConfigMaps(m.namespace).Create(b.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: what}},
		metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		b.Fatal(err)
	}
	return time.Since(sent)
}
