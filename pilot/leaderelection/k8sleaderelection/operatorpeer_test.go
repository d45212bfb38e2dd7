package k8sleaderelection_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/admin"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock/locktest"
)

// peerOf runs a candidate of another make: istiod's way, or client-go's elector itself. It
// knows nothing of requests, nominations and markers.
func peerOf(t *testing.T, store *locktest.Store, identity string, clientGo bool) (works func() bool) {
	t.Helper()
	var (
		mu   sync.Mutex
		live bool
	)
	work := func(ctx context.Context) {
		mu.Lock()
		live = true
		mu.Unlock()
		<-ctx.Done()
		mu.Lock()
		defer mu.Unlock()
		live = false
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	t.Cleanup(func() {
		cancel()
		<-done
	})
	run := (&locktest.Peer{
		Client: store.Client(identity), Identity: identity, Key: "stable", Lease: lease, Renew: renew, Retry: retry, Work: work,
	}).Run
	if clientGo {
		e, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: &resourcelock.LeaseLock{
				LeaseMeta: metav1.ObjectMeta{Namespace: locktest.Namespace, Name: locktest.Name},
				Client:    store.Client(identity), LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
			},
			LeaseDuration: lease, RenewDeadline: renew, RetryPeriod: retry, ReleaseOnCancel: true,
			Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: work, OnStoppedLeading: func() {}},
		})
		if err != nil {
			t.Fatal(err)
		}
		run = e.Run
	}
	go func() {
		defer close(done)
		run(ctx)
	}()
	return func() bool {
		mu.Lock()
		defer mu.Unlock()
		return live
	}
}

// A peer writes no marker. It takes what was written in its name for its own lock, leads from
// its next write on and says so to nobody.
func TestTransferToAPeerReturnsOnceItLeads(t *testing.T) {
	for _, clientGo := range []bool{false, true} {
		bubble(t, func(t *testing.T, store *locktest.Store) {
			if clientGo && store.Kind() != locktest.Lease {
				return // it has no other lock
			}
			a := enterRanked(t, store, "a", "stable", "stable")
			pass(time.Second)
			works := peerOf(t, store, "peer", clientGo)
			pass(time.Minute)
			told := make(chan error, 1)
			began := time.Now()
			go func() {
				told <- operator(store).Transfer(t.Context(), "peer", "stable", "", 10*time.Minute)
			}()
			for record(store).HolderIdentity != "peer" {
				after(time.Millisecond)
			}
			a.cut(true) // a peer polls, and a would have it back before the peer has looked
			err := <-told
			if took := time.Since(began); took > 3*lease || err != nil || !works() || a.isLive() {
				t.Errorf("client-go %v: told %v after %v, the peer works %v, a works %v", clientGo, err, took, works(), a.isLive())
			}
			a.cut(false)
		})
	}
}

// Nobody takes the lock in the one's place, and it does not come.
func TestTransferToNobodyEndsWithAnError(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		a := enterRanked(t, store, "a", "stable", "stable")
		pass(time.Second)
		told := make(chan error, 1)
		go func() {
			told <- operator(store).Transfer(t.Context(), "nobody", "stable", "", time.Minute)
		}()
		for record(store).HolderIdentity != "nobody" {
			after(time.Millisecond)
		}
		a.cut(true)
		began := time.Now()
		if err := <-told; !errors.Is(err, admin.ErrNotExecuted) || !strings.Contains(err.Error(), `it names "nobody"`) {
			t.Error(err)
		}
		if took := time.Since(began); took > lease+5*time.Second {
			t.Errorf("told after %v", took)
		}
		a.cut(false)
	})
}

// An order is given with a context that has no end; the leader dies, or its API server does.
func TestAnOrderOfWhichNothingIsHeardEnds(t *testing.T) {
	for name, cut := range map[string]func(a *candidate, operator *locktest.Lock){
		"the leader dies in its drain": func(a *candidate, _ *locktest.Lock) { a.cut(true) },
		"the operator is cut off": func(_ *candidate, operator *locktest.Lock) {
			operator.SetFault(func(locktest.Verb) locktest.Fault { return locktest.Fault{Hang: true} })
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *locktest.Store) {
				a := enterRanked(t, store, "a", "stable", "stable")
				pass(time.Second)
				a.drain = 10 * time.Second
				lock := store.Lock("operator", "")
				told := make(chan error, 1)
				go func() {
					o := admin.Operator{Lock: lock.Locker, Requester: "alice"}
					told <- o.Transfer(t.Context(), "nobody", "stable", "", time.Minute)
				}()
				pass(time.Second)
				cut(a, lock)
				began := time.Now()
				err := <-told
				if took := time.Since(began); err == nil || took > 3*lease {
					t.Errorf("told %v after %v", err, took)
				}
				t.Log(err)
				a.cut(false)
			})
		})
	}
}

// The lock changes while the order is being written, as with each renewal.
func TestAnOrderThatMeetsAnotherWriteIsGivenAgain(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		a := enterRanked(t, store, "a", "stable", "stable")
		pass(time.Second)
		for name, order := range map[string]func(admin.Operator) error{
			"pause":     func(o admin.Operator) error { return o.Pause(t.Context(), "", time.Hour) },
			"resume":    func(o admin.Operator) error { return o.Resume(t.Context()) },
			"step down": func(o admin.Operator) error { return o.StepDown(t.Context(), "", time.Second) },
		} {
			if name == "resume" {
				if err := operator(store).Pause(t.Context(), "", time.Hour); err != nil {
					t.Fatal(err)
				}
			}
			lock, met := store.Lock("operator", ""), 0
			lock.SetFault(func(v locktest.Verb) locktest.Fault {
				if met++; v == locktest.Update && met <= 4 {
					store.Annotate("example.com/n", name+strings.Repeat("i", met))
				}
				return locktest.Fault{}
			})
			if err := order(admin.Operator{Lock: lock.Locker, Requester: "alice"}); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			pass(2 * retry)
		}
		if a.terms() == 0 {
			t.Error("a has never led")
		}
		always := store.Lock("operator", "")
		n := 0
		always.SetFault(func(v locktest.Verb) locktest.Fault {
			if n++; v == locktest.Update {
				store.Annotate("example.com/n", strings.Repeat("i", n%7))
			}
			return locktest.Fault{}
		})
		if err := (admin.Operator{Lock: always.Locker, Requester: "alice"}).Pause(t.Context(), "", time.Hour); err == nil || n > 100 {
			t.Errorf("%d requests, %v", n, err)
		}
	})
}

// Its context has no end, and the API server does not answer.
func TestAnOrderWhoseCallsHangEnds(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		enterRanked(t, store, "a", "stable", "stable")
		pass(time.Second)
		for _, hangs := range []locktest.Verb{locktest.Get, locktest.Update} {
			lock := store.Lock("operator", "")
			lock.SetFault(func(v locktest.Verb) locktest.Fault { return locktest.Fault{Hang: v == hangs} })
			began := time.Now()
			err := admin.Operator{Lock: lock.Locker, Requester: "alice"}.Pause(t.Context(), "", time.Hour)
			if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took > lease {
				t.Errorf("%s hangs: told %v after %v", hangs, err, took)
			}
		}
	})
}
