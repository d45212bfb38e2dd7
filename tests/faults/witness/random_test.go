package witness

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/testutil/harness"
)

// killed has the time at which the test ended each candidate.
type killed struct {
	sync.Mutex
	at map[string]time.Time
}

// releases watches the lock until the end of the test. A lock that loses a holder that the test has not ended is an error.
func (k *killed) releases(s *stage) {
	s.Helper()
	w, err := s.admin.CoordinationV1().Leases(s.namespace).Watch(s.Context(), metav1.ListOptions{})
	if err != nil {
		s.Fatal(err)
	}
	var done sync.WaitGroup
	done.Go(func() {
		holder := ""
		for event := range w.ResultChan() {
			lease, ok := event.Object.(*coordinationv1.Lease)
			if !ok || lease.Name != election {
				continue
			}
			next := ""
			if lease.Spec.HolderIdentity != nil {
				next = *lease.Spec.HolderIdentity
			}
			k.Lock()
			if _, ended := k.at[holder]; holder != "" && next != holder && !ended {
				s.Errorf("the lock of %s, which is alive, has the holder %q", holder, next)
			}
			k.Unlock()
			holder = next
		}
	})
	s.Cleanup(func() {
		w.Stop()
		done.Wait()
	})
}

// times returns the times that a candidate printed after a word.
func (p *process) times(word string) (all []time.Time) {
	for line := range strings.Lines(p.Out.String()) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), word+" "); ok {
			if nanos, err := strconv.ParseInt(text, 10, 64); err == nil {
				all = append(all, time.Unix(0, nanos))
			}
		}
	}
	return all
}

// TestDeath_RandomMoments kills candidates at random moments of their terms. KILLS is their number, and 10 without it.
func TestDeath_RandomMoments(t *testing.T) {
	kills, err := strconv.Atoi(os.Getenv("KILLS"))
	if err != nil {
		kills = 10
	}
	s := newStage(t, "leases")
	k := &killed{at: map[string]time.Time{}}
	k.releases(s)
	var all []*process
	led, released := 0, 0
	for n := range kills + 1 {
		p := s.start(fmt.Sprint("c", n), "FENCED=yes", "LEASE=4s")
		if all = append(all, p); n == 0 {
			continue
		}
		most, old := 300*time.Millisecond, all[n-1]
		if rand.IntN(2) == 0 { // otherwise it may be starting or acquiring the lock
			most = 100 * time.Millisecond
			harness.Until(t, old.name+" or "+p.name+" leads", func() bool {
				return strings.Contains(old.Out.String(), "leading") || strings.Contains(p.Out.String(), "leading")
			})
		}
		wait := time.NewTimer(rand.N(most))
		select {
		case <-wait.C:
		case <-t.Context().Done():
		}
		k.Lock()
		k.at[old.name] = time.Now()
		k.Unlock()
		if rand.IntN(3) == 0 { // it is draining
			old.Signal(t, syscall.SIGTERM)
		}
		if strings.Contains(old.Out.String(), "candidate ") {
			_ = syscall.Kill(old.pid("candidate"), syscall.SIGKILL) // it may have ended
		} else {
			old.Kill()
		}
		old.Exit(t)
		led += len(old.times("leading"))
		released += strings.Count(old.Errors.String(), "released the lock of a process")
	}
	for i, p := range all[:kills] {
		for _, next := range all[i+1:] {
			end := k.at[p.name]
			if stopped := p.times("stopped"); len(stopped) > 0 {
				end = stopped[0]
			}
			for _, began := range next.times("leading") {
				if len(p.times("leading")) > 0 && began.Before(end) {
					t.Errorf("%s led %v before the end of %s", next.name, end.Sub(began), p.name)
				}
			}
		}
	}
	t.Logf("%d kills, %d of leaders, %d releases of a witness", kills, led, released)
}
