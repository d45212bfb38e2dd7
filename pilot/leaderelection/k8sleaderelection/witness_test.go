package k8sleaderelection_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/internal/testutil/apiserver"
	"incumbent.dev/incumbent/internal/testutil/locktest"
	le "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

// registered is a Witness that keeps the registered term.
type registered struct{ term le.WitnessedTerm }

func (w *registered) Register(t le.WitnessedTerm) { w.term = t }

func (w *registered) Remove(le.WitnessedTerm) { w.term = le.WitnessedTerm{} }

// The candidate that acquires a released lock reports the release, once.
func TestWitnessRelease_IsReported(t *testing.T) {
	onConfigMap(t, func(t *testing.T, store *locktest.Store) {
		w, rest, reported := &registered{}, &recorder{}, &recorder{}
		a := startCandidate(t, store, "a", func(c *le.LeaderElectionConfig) { c.Witness = w })
		advance(time.Second)
		for identity, w := range map[string]*recorder{"b": reported, "c": rest} {
			follower := startRecorded(t, store, identity, "stable", w)
			// The release is read before the next write.
			follower.lock.On(func(apiserver.Request) apiserver.Fault { return apiserver.Fault{Before: time.Millisecond} })
		}
		advance(time.Minute)
		a.disconnect(true)
		lock, died := store.Lock("witness", ""), time.Now().Add(-53*time.Millisecond)
		lock.FailNext(locktest.Update, apiserver.Fault{Lose: apiserver.TheReply})
		if released, why, err := w.term.ReleaseEnded(t.Context(), lock.Lock, died); released || err == nil {
			t.Fatalf("without a reply: released %v, %s, %v", released, why, err)
		}
		released, why, err := w.term.ReleaseEnded(t.Context(), lock.Lock, died)
		if !released || why != "holder-died" || err != nil {
			t.Fatalf("released %v, %s, %v", released, why, err)
		}
		if got := store.Snapshot().Annotations; len(got) != 1 || got[record.WitnessReleaseAnnotation] != "v1 a 0 53ms" {
			t.Errorf("annotations of the released lock: %v", got)
		}
		advance(time.Minute)
		_, _, durations := reported.take()
		_, _, others := rest.take()
		if all := append(durations, others...); strings.Count(strings.Join(all, "\n"), "witness-release") != 1 || !slices.Contains(all, "witness-release 53ms") {
			t.Errorf("reported %q", all)
		}
		if _, left := store.Snapshot().Annotations[record.WitnessReleaseAnnotation]; left {
			t.Error("the annotation was not removed")
		}
	})
}

// A wrong annotation, or one of another term, is not reported.
func TestWitnessRelease_IsNotReported(t *testing.T) {
	for name, value := range map[string]string{
		"other term": "v1 a 3 53ms", "invalid": "v2 a 0 53ms", "released": "",
	} {
		t.Run(name, func(t *testing.T) {
			onConfigMap(t, func(t *testing.T, store *locktest.Store) {
				w, witness := &recorder{}, &registered{}
				a := startCandidate(t, store, "a", func(c *le.LeaderElectionConfig) { c.Witness = witness })
				advance(time.Second)
				term := witness.term
				a.Stop(t)
				if value != "" {
					store.Annotate(record.WitnessReleaseAnnotation, value)
				}
				// Another process has emptied the record.
				released, why, err := term.ReleaseEnded(t.Context(), store.Lock("witness", "").Lock, time.Now())
				if released || why != "record-emptied" || err != nil {
					t.Errorf("released %v, %s, %v", released, why, err)
				}
				b := startRecorded(t, store, "b", "stable", w)
				advance(time.Second)
				if _, _, durations := w.take(); !b.IsLeader() || strings.Contains(strings.Join(durations, "\n"), "witness-release") {
					t.Errorf("b leads: %v, reported %q", b.IsLeader(), durations)
				}
			})
		})
	}
}

// The term is registered before the run functions start, also if another process annotates the lock before the reply arrives.
func TestWitness_NewerVersionSeen(t *testing.T) {
	onConfigMap(t, func(t *testing.T, store *locktest.Store) {
		a, w := startCandidate(t, store, "a"), &registered{}
		advance(time.Second)
		b := startCandidate(t, store, "b", func(c *le.LeaderElectionConfig) { c.Witness = w })
		advance(time.Minute)
		b.lock.FailNext(locktest.Update, apiserver.Fault{Before: 2 * time.Millisecond, After: 2 * time.Millisecond})
		a.Stop(t)
		advance(3 * time.Millisecond)
		store.Annotate("example.com/note", "x")
		advance(2 * time.Millisecond)
		if !b.Live() || w.term.Holder != "b" {
			t.Errorf("leads %v, registered %+v", b.Live(), w.term)
		}
	})
}
