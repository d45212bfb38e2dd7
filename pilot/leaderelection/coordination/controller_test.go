package coordination

import (
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"incumbent.dev/incumbent/internal/testutil/apiserver"
	"incumbent.dev/incumbent/internal/testutil/harness"
)

// The coordinator names a candidate that answers its ping, also after its watches have ended, in a later term, and after the leader
// has released the lock and its LeaseCandidate is gone.
func TestController_FollowsObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := apiserver.New(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: "n"}, Spec: coordinatedSpec})
		c := controllerOf(t, server.Config())
		defer c.Close()
		harness.Must(t, c.Warm(t.Context()))
		for _, step := range []struct {
			what, candidate string
			change          func()
		}{
			{"a candidate was created", "a.x", func() { server.Put(candidateOf("a.x")) }},
			{"another one replaced it", "b.x", func() {
				server.Delete("leasecandidates", "n", "a.x")
				server.Put(candidateOf("b.x"))
			}},
			{"the watches ended", "c.x", func() {
				server.EndWatches()
				server.Delete("leasecandidates", "n", "b.x")
				server.Put(candidateOf("c.x"))
			}},
		} {
			step.change()
			lock := coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: "n"}}
			server.Edit("leader", &lock, func() { lock.Spec.HolderIdentity = nil })
			time.Sleep(longestPause)
			stop := harness.Background(t, c.Run)
			for range 10 {
				synctest.Wait()
				candidate := candidateOf(step.candidate)
				server.Edit("candidate", candidate, func() {
					if isPinged(candidate.Spec) {
						candidate.Spec.RenewTime = new(metav1.NowMicro())
					}
				})
				time.Sleep(time.Second)
			}
			if server.Get("leases", "n", "x", &lock); ptr.Deref(lock.Spec.HolderIdentity, "") != step.candidate {
				t.Errorf("%s: holder %q, want %q", step.what, ptr.Deref(lock.Spec.HolderIdentity, ""), step.candidate)
			}
			stop()
		}
	})
}
