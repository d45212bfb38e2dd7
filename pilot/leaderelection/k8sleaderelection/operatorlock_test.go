package k8sleaderelection_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/admin"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock/locktest"
)

// A hold that is not of this term is none to resume from.
func TestResumeIsAboutThePresentHolder(t *testing.T) {
	alone(t, func(t *testing.T, store *locktest.Store) {
		enter(t, store, "a")
		pass(time.Second)
		n := record(store).LeaderTransitions
		for holder, transitions := range map[string]int{"b": n, "a": n + 1} {
			hold := `{"holder":"` + holder + `","transitions":` + string(rune('0'+transitions)) + `,"seconds":60,"requester":"x","reason":"pause"}`
			store.Annotate(k8sresourcelock.HoldAnnotation, hold)
			if err := operator(store).Resume(t.Context()); !errors.Is(err, admin.ErrNoHold) {
				t.Errorf("%s: %v", hold, err)
			}
		}
	})
}

// notesOnly is a lock that stores notes and has no versions; strange has versions that are
// no numbers.
type notesOnly struct {
	k8sresourcelock.Interface
	k8sresourcelock.Annotated
}

type strange struct{ locktest.Locker }

func (s strange) Read(ctx context.Context) (k8sresourcelock.Snapshot, error) {
	snap, err := s.Locker.Read(ctx)
	snap.ResourceVersion = "1a"
	return snap, err
}

func TestOrdersNeedALockThatCanCarryThem(t *testing.T) {
	alone(t, func(t *testing.T, store *locktest.Store) {
		enter(t, store, "a")
		pass(time.Second)
		lock := store.Lock("operator", "").Locker
		for want, l := range map[string]k8sresourcelock.Interface{
			"has no versions": notesOnly{lock, lock}, "1a": strange{lock}, "stores no notes": store.Lock("operator", "").Plain(),
		} {
			if err := (admin.Operator{Lock: l, Requester: "x"}).Pause(t.Context(), "why", time.Minute); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("want %q: %v", want, err)
			}
		}
	})
}
