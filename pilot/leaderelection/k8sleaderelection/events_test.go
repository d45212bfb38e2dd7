package k8sleaderelection_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/internal/testutil/locktest"
	le "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/admin"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

func TestEvents_Handover(t *testing.T) {
	forEachLock(t, func(t *testing.T, store *locktest.Store) {
		var ofA, ofB recorder
		a := startRecorded(t, store, "a", "stable", &ofA)
		advance(time.Second)
		ofA.wants(t, "a", words{"a became leader (lock-absent)"}, words{"+lock-absent"}, words{"leaderless 0s"})
		b := startRecorded(t, store, "b", "canary", &ofB)
		advance(time.Minute)
		a.drain.Store(int64(10 * time.Second)) // longer than a RetryPeriod
		setDefault("canary", a, b)
		advance(20 * time.Second)
		ofA.wants(t, "a",
			words{"a accepted the handover request of b", "a stopped leading (handing-over)", "a handed over to b"},
			words{"-handing-over"}, words{"drain 10s", "handover-given 10s", "leaderless 0s"})
		ofB.wants(t, "b", words{"b requested a handover from a (default-revision)", "b became leader (nominated)"},
			words{"+nominated"}, words{"handover 10s", "leaderless 0s"})
		ofA.mu.Lock()
		defer ofA.mu.Unlock()
		if ofA.calls["hand-over ok"] != 1 || ofA.calls["renew ok"] == 0 || ofA.calls["acquire ok"] != 1 {
			t.Errorf("calls %v", ofA.calls)
		}
	})
}

func TestEvents_Loss(t *testing.T) {
	forEachLock(t, func(t *testing.T, store *locktest.Store) {
		var ofA, ofB recorder
		a := startRecorded(t, store, "a", "stable", &ofA)
		advance(time.Second)
		startRecorded(t, store, "b", "stable", &ofB)
		advance(time.Minute)
		ofA.take()
		a.disconnect(true)
		if advance(renew); a.Live() || a.IsLeader() {
			t.Error("a leads after the end of its validity")
		}
		if failed := a.Status().Failed; failed != "no response from the API server" {
			t.Errorf("the status of a has the failure %q", failed)
		}
		advance(lease - renew)
		a.disconnect(false)
		advance(lease)
		if failed := a.Status().Failed; failed != "" {
			t.Errorf("the status of a still has the failure %q", failed)
		}
		events, terms, _ := ofA.take()
		if !slices.Equal(events, words{"Warning: a stopped leading (validity-ended)"}) || !slices.Equal(terms, words{"-validity-ended"}) {
			t.Errorf("a: %q, %q", events, terms)
		}
		ofB.wants(t, "b", words{"b became leader (lease-expired)"}, words{"+lease-expired"}, words{"leaderless 0s"})
		putHolder(store, "c")
		synctest.Wait()
		if events, _, _ := ofB.take(); !slices.Equal(events, words{"Warning: b stopped leading (superseded)"}) {
			t.Errorf("b: %q", events)
		}
	})
}

// Callers of client-go's API get the texts of client-go.
func TestEvents_ClientGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := locktest.NewStore(locktest.Lease)
		var of recorder
		startRecorded(t, store, "a", "stable", &of, func(c *le.LeaderElectionConfig) {
			run := c.RunFunctions[0]
			c.RunFunctions = nil
			c.Callbacks.OnStartedLeading = func(ctx context.Context) { _ = run(ctx) }
		})
		advance(time.Second)
		putHolder(store, "b")
		synctest.Wait()
		if events, _, _ := of.take(); !slices.Equal(events, words{"a became leader", "Warning: a stopped leading"}) {
			t.Errorf("%q", events)
		}
	})
}

// The candidate preempts a peer and settles. Later the record becomes unreadable.
func TestEvents_Peer(t *testing.T) {
	forEachLock(t, func(t *testing.T, store *locktest.Store) {
		var ofA recorder
		putHolder(store, "peer")
		startRecorded(t, store, "a", "stable", &ofA)
		advance(2 * lease)
		ofA.wants(t, "a", words{"a preempted peer", "a became leader (outranks)"}, words{"+outranks"}, words{"leaderless 30s"})
		store.Corrupt()
		advance(2 * lease)
		events, _, durations := ofA.take()
		if len(events) != 3 || !strings.HasPrefix(events[0], "Warning: a failed to read the record: ") ||
			events[1] != "Warning: a stopped leading (record-unreadable)" || events[2] != "a became leader (record-unreadable)" {
			t.Errorf("events %q", events)
		}
		if !slices.Equal(durations, words{"drain 0s", "leaderless 30s"}) {
			t.Errorf("durations %q", durations)
		}
	})
}

func TestEvents_DuplicateIdentity(t *testing.T) {
	onConfigMap(t, func(t *testing.T, store *locktest.Store) {
		var ofA recorder
		startRecorded(t, store, "a", "stable", &ofA)
		advance(time.Second)
		ofA.take()
		putHolder(store, "a")
		synctest.Wait()
		if events, _, _ := ofA.take(); !slices.Contains(events, "Warning: a found another live process with the same identity") {
			t.Errorf("events %q", events)
		}
	})
}

// Each failure of a run function is logged and recorded, on one line.
func TestEvents_FailedFunction(t *testing.T) {
	onConfigMap(t, func(t *testing.T, store *locktest.Store) {
		var ofA recorder
		a := startRecorded(t, store, "a", "stable", &ofA)
		advance(time.Second)
		ofA.take()
		for range 3 {
			a.fail <- errors.New("no database\nat all")
			advance(time.Minute)
			events, _, _ := ofA.take()
			if len(events) == 0 || events[0] != "Warning: a stopped leading (stepped-down): no database at all" {
				t.Errorf("events %q", events)
			}
		}
		if n := a.log.Count("level=ERROR"); n != 3 || a.log.Count("no database") != 3 {
			t.Errorf("%d errors logged for three failures:\n%s", n, a.log.String())
		}
	})
}

// A lock that cannot record a Warning gets an Event of type Normal.
func TestEvents_PlainLock(t *testing.T) {
	onConfigMap(t, func(t *testing.T, store *locktest.Store) {
		var w recorder
		lock := store.LockWith(k8sresourcelock.ResourceLockConfig{Identity: "a", Key: "stable", EventRecorder: &w})
		startCandidate(t, store, "a", func(c *le.LeaderElectionConfig) { c.Lock = lock.Plain() })
		advance(time.Minute)
		putHolder(store, "x")
		advance(lease)
		events, _, _ := w.take()
		if last := events[len(events)-1]; !strings.HasPrefix(last, "a stopped leading (") {
			t.Errorf("events %q", events)
		}
	})
}

// An Event names the annotation that ended a term.
func TestEvents_OperatorStepDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := locktest.NewStore(locktest.Lease)
		events := &recorder{}
		a := startRecorded(t, store, "a", "stable", events)
		advance(time.Minute)
		operator := admin.Operator{Lock: store.Lock("operator", "").Lock, Requester: "alice"}
		harness.Must(t, operator.StepDown(t.Context(), "test", time.Minute))
		advance(time.Second)
		got, _, _ := events.take()
		if a.Live() || !slices.Contains(got, "a stepping down at the request of alice in annotation incumbent.dev/handover-request") {
			t.Errorf("a leads %v, Events %q", a.Live(), got)
		}
	})
}
