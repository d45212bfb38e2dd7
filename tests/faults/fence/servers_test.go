package fence

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"incumbent.dev/incumbent/internal/fence"
	"incumbent.dev/incumbent/internal/fence/install"
	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/tests/cluster"
)

// lapse waits for a state that cannot be observed.
func lapse(t testing.TB, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
	}
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

// Without the permanent policies, the API server would use an outdated lock after the installation.
func TestFence_Reinstalled(t *testing.T) {
	t.Parallel()
	s := stageOn(t, cluster.Own(t, cluster.Options{WithoutControllers: true}), record.Lease)
	a, b := s.guarded()
	s.must(install.Remove(t.Context(), s.admin, s.set.Name))
	eventually(t, "the fence is gone", func() bool { return s.write(b) == nil })
	// The API server looks at what changed once a second, and stops informers then.
	lapse(t, 2*second)
	s.put(content{holder: "b", transitions: 4})
	s.must(install.Apply(t.Context(), s.admin, s.set))
	s.inEffect(b, a)
	s.put(content{holder: "a", transitions: 5})
	s.inEffect(a, b)
}
