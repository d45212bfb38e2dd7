package fence

import (
	"os"
	"strings"
	"testing"

	"incumbent.dev/incumbent/internal/fence"
	"incumbent.dev/incumbent/internal/fence/install"
	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/tests/cluster"
)

func TestReport_AuditLog(t *testing.T) {
	t.Parallel()
	c := cluster.Own(t, cluster.Options{WithoutControllers: true, Audit: true})
	stageOn(t, c, record.Lease).guarded() // from now on the API server has read the locks
	s := stageOn(t, c, record.Lease)
	a, b := s.pod("a"), s.pod("b")
	s.put(content{holder: "a", transitions: 3})
	d := s.declaration()
	d.Mode = fence.Audit
	s.install(d)
	const times = 3
	for range times {
		s.allowed("a write of another pod", s.write(b))
	}
	s.allowed("a write of the leader", s.write(a))
	set, err := fence.Render(s.namespace, s.declaration())
	harness.Must(t, err)
	s.must(install.Apply(t.Context(), s.admin, set))
	s.refused("a write of another pod", s.write(b))
	var would, was install.Found
	eventually(t, "both are in the audit log", func() bool {
		file, err := os.Open(c.AuditLog())
		harness.Must(t, err)
		defer file.Close()
		found, err := install.Report("log", file)
		harness.Must(t, err)
		for _, f := range found {
			switch ours := strings.Contains(f.User, s.namespace); {
			case ours && f.Pod == "a":
				t.Errorf("of the leader it says %v", f)
			case ours && f.Refused:
				was = f
			case ours:
				would = f
			}
		}
		return would.Count == times && was.Count == 1
	})
	for _, f := range []install.Found{would, was} {
		if f.User != "system:serviceaccount:"+s.namespace+":"+account || f.Verb != "create" || !strings.Contains(f.Object, "configmaps "+s.namespace) ||
			!strings.Contains(f.Message, "pod b is not the leader") || !strings.Contains(f.Policy, ".work.") || f.First.IsZero() || f.Last.Before(f.First) {
			t.Errorf("got %+v", f)
		}
	}
}
