package k8sleaderelection_test

import (
	"testing"
	"testing/synctest"
	"time"

	"incumbent.dev/incumbent/internal/testutil/locktest"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/admin"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

func operator(store *locktest.Store) admin.Operator {
	return admin.Operator{Lock: store.Lock("operator", "").Locker, Requester: "alice"}
}

func TestOperatorTransfer(t *testing.T) {
	forEachLock(t, func(t *testing.T, store *locktest.Store) {
		a, c := startRankedTwo(t, store, "canary")
		a.drain = 3 * time.Second
		if err := operator(store).Transfer(t.Context(), "b", "canary", "try it", 10*time.Minute); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if !c.isRunning() || a.isRunning() || !c.lastStart().Equal(a.lastStop()) {
			t.Fatalf("a runs %v, b runs %v", a.isRunning(), c.isRunning())
		}
		want := `{"holder":"b","transitions":1,"seconds":600,"requester":"alice","reason":"transfer","note":"try it"}`
		if hold := store.Snapshot().Annotations[k8sresourcelock.HoldAnnotation]; hold != want {
			t.Errorf("hold %s", hold)
		}
		advance(9 * time.Minute)
		if !c.isRunning() || a.terms() != 1 {
			t.Fatalf("within the hold: b runs %v, a has led %d terms", c.isRunning(), a.terms())
		}
		advance(2 * time.Minute)
		if c.isRunning() || !a.isRunning() {
			t.Fatal("after the hold a outranks b and does not lead")
		}
	})
}

func TestOperatorStepDown(t *testing.T) {
	forEachLock(t, func(t *testing.T, store *locktest.Store) {
		a, b := startRankedTwo(t, store, "canary")
		if err := operator(store).StepDown(t.Context(), "node drain", 5*time.Minute); err != nil {
			t.Fatal(err)
		}
		advance(time.Second)
		if a.isRunning() || !b.isRunning() {
			t.Fatalf("a runs %v, b runs %v", a.isRunning(), b.isRunning())
		}
		advance(4 * time.Minute)
		if a.terms() != 1 {
			t.Fatal("a leads again within its cool-down")
		}
		advance(2 * time.Minute)
		if !a.isRunning() || b.isRunning() {
			t.Fatal("after the cool-down a outranks b and does not lead")
		}
	})
}
