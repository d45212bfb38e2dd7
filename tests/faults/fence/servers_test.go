package fence

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/fence"
	"incumbent.dev/incumbent/internal/fence/install"
	"incumbent.dev/incumbent/tests/cluster"
)

// renewing changes the lock's annotations again and again, until stop.
func (s *stage) renewing() (stop func()) {
	ctx, cancel := context.WithCancel(s.t.Context())
	var renewer sync.WaitGroup
	renewer.Go(func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for n := 0; ; n++ {
			select {
			case <-ctx.Done():
				return
			case at := <-tick.C:
				body := `{"metadata":{"annotations":{"renewed":"` + at.String() + `"}}}`
				// It fails while there is no API server, which the test is about.
				_, _ = s.admin.CoordinationV1().Leases(s.namespace).Patch(ctx, election, mergePatch, []byte(body), metav1.PatchOptions{})
			}
		}
	})
	return func() { cancel(); renewer.Wait() }
}

// reinstall takes the fence away, waits until that is so, changes the holder, and puts
// the fence up again.
func (s *stage) reinstall(other kubernetes.Interface, holder string) {
	s.t.Helper()
	s.must(install.Remove(s.t.Context(), s.admin, s.set.Name))
	eventually(s.t, "the fence is gone", func() bool { return s.write(other) == nil })
	// The API server looks at what changed once a second, and stops informers then.
	lapse(s.t, 2*second)
	s.handTo(holder)
	s.must(install.Apply(s.t.Context(), s.admin, s.set))
}

// lapse waits for a state that cannot be observed.
func lapse(t testing.TB, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
	}
}

// handTo makes the lock name another holder, in its next term. Others change the lock, too.
func (s *stage) handTo(holder string) {
	s.t.Helper()
	eventually(s.t, "the lock names "+holder, func() bool {
		lease, err := s.admin.CoordinationV1().Leases(s.namespace).Get(s.t.Context(), election, metav1.GetOptions{})
		if err != nil {
			return false
		}
		*lease.Spec.LeaseTransitions++
		lease.Spec.HolderIdentity = &holder
		_, err = s.admin.CoordinationV1().Leases(s.namespace).Update(s.t.Context(), lease, metav1.UpdateOptions{})
		return err == nil
	})
}

// unsynced is in the rejection of an API server that has just begun to watch a kind of lock and has read no lock after a
// second.
const unsynced = "not yet synced to use for admission"

// syncTime bounds the time that an API server needs to read the locks.
const syncTime = time.Minute

// tally writes continuously until stop. It counts admitted writes and writes that the fence rejected because of the holder.
func (s *stage) tally(write func() error) (stop func() (admitted, refused int)) {
	ctx, cancel := context.WithCancel(s.t.Context())
	var writer sync.WaitGroup
	var admitted, refused int
	began := time.Now()
	writer.Go(func() {
		for done := false; !done; done = ctx.Err() != nil { // at least once
			switch err := write(); {
			case err == nil:
				admitted++
			case fence.IsRefusal(err) && (!strings.Contains(err.Error(), unsynced) || time.Since(began) > syncTime):
				refused++
			}
			lapse(s.t, 5*time.Millisecond) // other tests use the same machine
		}
	})
	return func() (int, int) { cancel(); writer.Wait(); return admitted, refused }
}

func TestFence_Reinstalled(t *testing.T) {
	t.Parallel()
	s := stageOn(t, ownCluster(t, cluster.Options{}), fence.Lease)
	a, b := s.pod("a"), s.pod("b")
	s.put(record{holder: "a", transitions: 3})
	set, err := fence.Render(s.namespace, s.declaration())
	if err != nil {
		t.Fatal(err)
	}
	s.set = set
	stop := s.renewing()
	defer stop()
	s.must(install.Apply(t.Context(), s.admin, set))
	s.stands(a, b)
	t.Log("with keepers")
	s.reinstall(b, "b")
	s.stands(b, a)
	s.handTo("a")
	s.stands(a, b)

	t.Log("without keepers")
	for _, p := range set.Permanent {
		s.allowed("deleting a binding", s.admin.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Delete(t.Context(), p.Name(), metav1.DeleteOptions{}))
		s.allowed("deleting its policy", s.admin.AdmissionregistrationV1().ValidatingAdmissionPolicies().Delete(t.Context(), p.Name(), metav1.DeleteOptions{}))
	}
	s.set.Permanent = nil
	s.reinstall(b, "b")
	eventually(t, "the fence judges", func() bool { return fence.IsRefusal(s.write(a)) || fence.IsRefusal(s.write(b)) })
	lapse(t, second)
	if !fence.IsRefusal(s.write(b)) || s.write(a) != nil {
		t.Error("the API server has kept up without keepers: if it always does so, they are not needed any more")
	}
	t.Log("the former leader is let to and the new one is not; installing with keepers does not mend it, a restart does")
	s.must(install.Apply(t.Context(), s.admin, set))
	s.restart()
	s.stands(b, a)
}

// restart kills the API server and starts it again.
func (s *stage) restart() {
	s.t.Helper()
	if err := s.cluster.APIServer().Kill(); err != nil {
		s.t.Fatal(err)
	}
	if err := s.cluster.APIServer().Start(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
}

// through is a client of the same identity at another API server.
func (s *stage) through(server *cluster.APIServer, config *rest.Config) kubernetes.Interface {
	s.t.Helper()
	there := rest.CopyConfig(config)
	there.Host = server.URL()
	return cluster.ClientFor(s.t, there).Kube()
}

func TestFence_TwoAPIServers(t *testing.T) {
	t.Parallel()
	c := ownCluster(t, cluster.Options{})
	second, err := c.AddAPIServer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s := stageOn(t, c, fence.Lease)
	atA, atB := s.identity("a", account), s.identity("b", account)
	a1, b1 := cluster.ClientFor(t, atA).Kube(), cluster.ClientFor(t, atB).Kube()
	a2, b2 := s.through(second, atA), s.through(second, atB)
	s.put(record{holder: "a", transitions: 3})
	s.install(s.declaration())
	s.stands(a1, b1)
	s.stands(a2, b2)
	s.handTo("b")
	s.stands(b1, a1)
	s.stands(b2, a2)

	if err := second.Pause(); err != nil {
		t.Fatal(err)
	}
	queued := make(chan error, 1)
	go func() { queued <- s.write(b2) }() // b's last write, which the stopped server gets while b still leads
	lapse(t, 200*time.Millisecond)
	s.handTo("a")
	s.stands(a1, b1)
	select {
	case err := <-queued:
		t.Fatalf("the stopped server has answered (%v): it was not stopped over the handover", err)
	default:
	}
	resumed := time.Now()
	if err := second.Resume(); err != nil {
		t.Fatal(err)
	}
	stale, last := 0, time.Duration(0)
	eventually(t, "the stopped server has caught up", func() bool {
		sent := time.Since(resumed)
		err := s.write(b2)
		if err == nil {
			stale, last = stale+1, sent
		}
		return fence.IsRefusal(err)
	})
	// A server keeps its state: stale writes come before the first rejection or not at all.
	after := s.tally(func() error { return s.write(b2) })
	s.stands(a2, b2)
	for range 20 {
		if err := s.write(a2); fence.IsRefusal(err) {
			t.Errorf("the holder's write at the server that has caught up: %v", err)
		}
	}
	if admitted, refused := after(); admitted > 0 || refused == 0 {
		t.Errorf("after its first refusal the server that was stopped admitted %d stale writes, and refused %d", admitted, refused)
	}
	t.Logf("figure: a server that was stopped over a handover admitted %d stale writes sent after it continued, the last after %v; the waiting write: %v",
		stale, last, <-queued)
}
