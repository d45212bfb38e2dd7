package k8sleaderelection_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	le "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/admin"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock/locktest"
)

func operator(store *locktest.Store) admin.Operator {
	return admin.Operator{Lock: store.Lock("operator", "").Locker, Requester: "alice"}
}

func TestTransferGoesToTheOneNamedAndStaysThere(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		a := enterRanked(t, store, "a", "stable", "stable")
		pass(time.Second)
		b := enterRanked(t, store, "b", "stable", "stable")
		c := enterRanked(t, store, "c", "canary", "stable")
		pass(time.Minute)
		a.drain = 3 * time.Second
		if err := operator(store).Transfer(t.Context(), "c", "canary", "trying it out", 10*time.Minute); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // it is said by c's write, and its functions start on the answer
		if !c.isLive() || a.isLive() || !c.lastStart().Equal(a.lastStop()) {
			t.Fatalf("live: a %v, c %v", a.isLive(), c.isLive())
		}
		want := `{"holder":"c","transitions":1,"seconds":600,"requester":"alice","reason":"transfer","note":"trying it out"}`
		if hold := store.Snapshot().Notes[k8sresourcelock.HoldAnnotation]; hold != want {
			t.Errorf("hold %s", hold)
		}
		pass(9 * time.Minute)
		if !c.isLive() || a.terms()+b.terms() != 1 {
			t.Fatalf("a hold stands, and others have led: a %d, b %d terms", a.terms(), b.terms())
		}
		pass(2 * time.Minute)
		if c.isLive() || !a.isLive() && !b.isLive() {
			t.Fatal("the hold has run out, and rank does not count")
		}
	})
}

func TestTransferToOneWhoDoesNotComeLeavesTheLockToOthers(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		a, b := enterRankedTwo(t, store, "stable")
		err := operator(store).Transfer(t.Context(), "nobody", "stable", "a slip of the hand", time.Minute)
		if !errors.Is(err, admin.ErrNotExecuted) || !strings.Contains(err.Error(), "nobody did not come") {
			t.Fatal(err)
		}
		synctest.Wait()
		if a.isLive() == b.isLive() {
			t.Errorf("live: a %v, b %v", a.isLive(), b.isLive())
		}
	})
}

func TestStepDownCoolsDown(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		a, b := enterRankedTwo(t, store, "canary")
		if err := operator(store).StepDown(t.Context(), "its node is to go", 5*time.Minute); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		if a.isLive() || !b.isLive() {
			t.Fatalf("live: a %v, b %v", a.isLive(), b.isLive())
		}
		pass(4 * time.Minute)
		if a.terms() != 1 {
			t.Fatal("a came back before its cool-down was over")
		}
		pass(2 * time.Minute)
		if !a.isLive() || b.isLive() {
			t.Fatal("a outranks b and did not come back")
		}
	})
}

func TestPauseAndResume(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		a, b := enterRankedTwo(t, store, "canary")
		if err := operator(store).Pause(t.Context(), "while we look", time.Hour); err != nil {
			t.Fatal(err)
		}
		setDefault("canary", a, b)
		pass(30 * time.Minute)
		if !a.isLive() || store.Snapshot().Notes[k8sresourcelock.HandoverRequestAnnotation] != "" {
			t.Fatal("paused, and b has asked for the lock")
		}
		if err := operator(store).Resume(t.Context()); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		if a.isLive() || !b.isLive() {
			t.Fatal("resumed, and rank does not count")
		}
		if err := operator(store).Resume(t.Context()); !errors.Is(err, admin.ErrNoHold) {
			t.Error(err)
		}
	})
}

func TestAPauseKeepsAPeerToo(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		peer := store.Lock("istiod", "stable")
		record := k8sresourcelock.LeaderElectionRecord{HolderIdentity: "istiod", HolderKey: "stable", LeaseDurationSeconds: 30}
		snap, err := peer.Write(t.Context(), k8sresourcelock.Snapshot{}, record, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := operator(store).Pause(t.Context(), "not yet", time.Hour); err != nil {
			t.Fatal(err)
		}
		b := enterRanked(t, store, "b", "canary", "canary")
		pass(20 * time.Second)
		if is := store.Snapshot(); is.Record.HolderIdentity != "istiod" || string(is.Raw) != string(snap.Raw) {
			t.Fatalf("a pause stands, and the record was %s and is %s", snap.Raw, is.Raw)
		}
		pass(time.Minute)
		if !b.isLive() {
			t.Error("a pause keeps no holder alive, and b did not take the lapsed lock")
		}
	})
}

// An operator moved the lock to a peer, which keeps our annotations. The hold tells that
// the nomination is of a former term; whoever takes the hold away takes that with it.
func TestAnOrderTakesAnOldNominationAway(t *testing.T) {
	for _, order := range []func(context.Context, admin.Operator) error{
		func(ctx context.Context, o admin.Operator) error { return o.Pause(ctx, "", time.Hour) },
		func(ctx context.Context, o admin.Operator) error { return o.Resume(ctx) },
	} {
		bubble(t, func(t *testing.T, store *locktest.Store) {
			now := metav1.Now()
			store.Put("istiod", k8sresourcelock.LeaderElectionRecord{
				HolderIdentity: "istiod", LeaseDurationSeconds: 30, LeaderTransitions: 4,
				AcquireTime: now, RenewTime: metav1.NewTime(now.Add(8 * time.Second)),
			})
			store.Annotate(k8sresourcelock.NominatedAnnotation, "istiod")
			store.Annotate(k8sresourcelock.HoldAnnotation, `{"holder":"istiod","transitions":4,"seconds":600,"requester":"o","reason":"transfer"}`)
			if err := order(t.Context(), operator(store)); err != nil {
				t.Fatal(err)
			}
			if left := store.Snapshot().Notes[k8sresourcelock.NominatedAnnotation]; left != "" {
				t.Errorf("the nomination of %q is left", left)
			}
		})
	}
}

func TestOrdersThatCannotBeObeyedSayWhy(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		o := operator(store)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		want := func(err error, is error, text string) {
			t.Helper()
			if err == nil || is != nil && !errors.Is(err, is) || !strings.Contains(err.Error(), text) {
				t.Errorf("%v: want %q, %q", err, is, text)
			}
		}
		want(o.StepDown(ctx, "", time.Minute), admin.ErrNoLeader, "there is no lock")
		a := enterRanked(t, store, "a", "stable", "stable")
		pass(time.Second)
		want(o.Transfer(ctx, "a", "stable", "", time.Minute), nil, "a leads already")
		for _, err := range []error{
			o.Pause(ctx, "", 0), o.Pause(ctx, "", 8*24*time.Hour), o.Transfer(ctx, "b c", "", "", time.Minute),
			o.Transfer(ctx, "b", strings.Repeat("k", 2000), "", time.Minute),
			admin.Operator{Lock: o.Lock}.Pause(ctx, "", time.Minute), admin.Operator{Requester: "bob"}.Resume(ctx),
		} {
			t.Log(err)
			if err == nil {
				t.Error("accepted")
			}
		}
		a.quit()
		want(o.Pause(ctx, "", time.Minute), admin.ErrNoLeader, "")
	})
}

// The order is written on a lock object that is gone: nothing will come of it.
func TestAnOrderWhoseLockIsDeletedEnds(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		a := enterRanked(t, store, "a", "stable", "stable")
		pass(time.Second)
		a.drain = 5 * time.Second
		told := make(chan error, 1)
		go func() { told <- operator(store).Transfer(t.Context(), "b", "stable", "", time.Minute) }()
		pass(time.Second)
		a.cut(true) // or it makes its lock anew
		store.Delete()
		if err := <-told; !errors.Is(err, admin.ErrNotExecuted) || !strings.Contains(err.Error(), "deleted") {
			t.Error(err)
		}
		a.cut(false)
	})
}

// switchable is a fitness that a test can change.
type switchable struct {
	mu  sync.Mutex
	err error
}

func (s *switchable) check(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

func (s *switchable) set(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func TestAnUnfitLeaderIsRelievedAndNeverLeavesTheLockToNobody(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		fitness := &switchable{}
		with := func(f *switchable) func(*le.LeaderElectionConfig) {
			return func(c *le.LeaderElectionConfig) { c.FitnessCheck = f.check }
		}
		a := enter(t, store, "a", with(fitness))
		pass(time.Second)
		fitness.set(errors.New("its cache is cold"))
		pass(time.Minute)
		if !a.isLive() || a.terms() != 1 {
			t.Fatal("nobody else is there, and a has left the lock")
		}
		if is := store.Snapshot().Notes[k8sresourcelock.MarkerAnnotation]; is != "v1 a 0 handover unfit" {
			t.Errorf("marker %s", is)
		}
		unfit := enter(t, store, "u", with(&switchable{err: errors.New("never was")}))
		pass(time.Minute)
		if !a.isLive() || unfit.terms() != 0 {
			t.Fatal("one that is unfit has taken the lock")
		}
		b := enter(t, store, "b")
		pass(time.Second)
		if a.isLive() || !b.isLive() {
			t.Fatalf("live: a %v, b %v\n%s", a.isLive(), b.isLive(), a.logged())
		}
		b.quit()
		pass(time.Minute)
		if a.terms() != 1 || unfit.terms() != 0 {
			t.Fatal("an unfit follower campaigns")
		}
		fitness.set(nil)
		pass(time.Minute)
		if !a.isLive() {
			t.Error("a is fit again and does not campaign")
		}
		if !strings.Contains(a.logged(), "unfit to lead") || !strings.Contains(a.logged(), "its cache is cold") {
			t.Error(a.logged())
		}
	})
}

func TestAFitnessCheckThatHangsIsANo(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		a := enter(t, store, "a", func(c *le.LeaderElectionConfig) {
			c.FitnessCheck = func(ctx context.Context) error { <-ctx.Done(); return nil }
		})
		pass(time.Minute)
		if a.terms() != 0 || !a.Status().Unfit {
			t.Error("a leads although its check does not answer")
		}
	})
}
