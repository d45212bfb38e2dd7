package fence

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"incumbent.dev/incumbent/pilot/leaderelection/fence"
	"incumbent.dev/incumbent/pilot/leaderelection/fence/install"
	"incumbent.dev/incumbent/tests/cluster"
)

// fences are n declarations of elections in one namespace. The first guards what is written;
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

// BenchmarkFenceCost is what many fences cost a guarded write, one that nothing guards, and the
// renewal of a lock.
func BenchmarkFenceCost(b *testing.B) {
	s := stageOn(b, ownCluster(b, cluster.Options{}), fence.Lease)
	a := s.pod("a")
	s.put(record{holder: "a", transitions: 3})
	for i := 1; i < 100; i++ {
		lease := record{holder: "a"}.lease()
		lease.Name = fmt.Sprintf("%s-%d", election, i)
		if _, err := s.admin.CoordinationV1().Leases(s.namespace).Create(b.Context(), lease, metav1.CreateOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	for _, c := range []struct {
		fences int
		all    bool
	}{{0, false}, {1, false}, {10, false}, {10, true}, {100, false}, {100, true}} {
		matching := "one matching"
		if c.all {
			matching = "all matching"
		}
		if c.fences > 0 {
			set, err := fence.Render(s.namespace, s.fences(c.fences, c.all)...)
			if err != nil {
				b.Fatal(err)
			}
			if _, err := install.Apply(b.Context(), s.admin, set); err != nil {
				b.Fatal(err)
			}
		}
		for _, what := range []string{"renewal", guarded, "free"} {
			b.Run(fmt.Sprintf("%d fences, %s/%s", c.fences, matching, what), func(b *testing.B) { s.cost(b, a, what) })
		}
	}
}

// cost measures one kind of write.
func (s *stage) cost(b *testing.B, a kubernetes.Interface, what string) {
	var took lateness
	lease, err := s.admin.CoordinationV1().Leases(s.namespace).Get(b.Context(), election, metav1.GetOptions{})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		sent := time.Now()
		if what == "renewal" {
			lease.Spec.RenewTime = &metav1.MicroTime{Time: sent}
			lease, err = a.CoordinationV1().Leases(s.namespace).Update(b.Context(), lease, metav1.UpdateOptions{})
		} else {
			_, err = a.CoreV1().ConfigMaps(s.namespace).Create(b.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: what}},
				metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		}
		if err != nil {
			b.Fatal(err)
		}
		took.add(time.Since(sent))
	}
	took.report(b, "took")
}
