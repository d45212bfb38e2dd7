package admin

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock/locktest"
)

// heldBy is a store whose lock a holder of ours has in term 3; nobody is there to obey.
func heldBy(holder string, lease time.Duration) *locktest.Store {
	store := locktest.NewStore(locktest.ConfigMap)
	now := metav1.Now()
	store.Put(holder, k8sresourcelock.LeaderElectionRecord{
		HolderIdentity: holder, LeaseDurationSeconds: int(lease / time.Second), LeaderTransitions: 3,
		AcquireTime: now, RenewTime: metav1.NewTime(now.Add(time.Second)),
	})
	store.Annotate(k8sresourcelock.MarkerAnnotation, "v1 "+holder+" 3")
	return store
}

// order is one that a test gives until the context ends.
type order func(context.Context, Operator) error

// What is asked for stands beside the record, whole, and is looked after ten times a second
// until whoever gave the order waits no longer.
func TestWhatAnOrderAsksFor(t *testing.T) {
	for name, c := range map[string]struct {
		order order
		lease time.Duration
		want  string
	}{
		"transfer": {func(ctx context.Context, o Operator) error {
			return o.Transfer(ctx, "b", "canary", "try it", time.Hour)
		}, 20 * time.Second,
			`{"identity":"b","key":"canary","reason":"operator","requester":"alice","note":"try it","holder":"a","transitions":3,"seconds":20,"accepted":false,"holdSeconds":3600}`},
		"step down": {func(ctx context.Context, o Operator) error { return o.StepDown(ctx, "its node goes", time.Minute) }, 20 * time.Second,
			`{"identity":"","key":"","reason":"operator","requester":"alice","note":"its node goes","holder":"a","transitions":3,"seconds":20,"accepted":false,"holdSeconds":60}`},
		"of one without a lease": {func(ctx context.Context, o Operator) error { return o.StepDown(ctx, "", time.Minute) }, 0,
			`{"identity":"","key":"","reason":"operator","requester":"alice","holder":"a","transitions":3,"seconds":1,"accepted":false,"holdSeconds":60}`},
	} {
		synctest.Test(t, func(t *testing.T) {
			store := heldBy("a", c.lease)
			lock := store.Lock("operator", "")
			ctx, cancel := context.WithTimeout(t.Context(), 950*time.Millisecond)
			defer cancel()
			err := c.order(ctx, Operator{Lock: lock.Locker, Requester: "alice"})
			if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "gave up waiting; the order stands") {
				t.Errorf("%s: %v", name, err)
			}
			if got := store.Snapshot().Notes[k8sresourcelock.HandoverRequestAnnotation]; got != c.want {
				t.Errorf("%s: asked for\n%s, want\n%s", name, got, c.want)
			}
			if n := lock.Requests()[locktest.Get]; n != 1+10 { // one to write upon
				t.Errorf("%s: %d looks", name, n)
			}
		})
	}
}

// A pause and its end are written whole, for the present term. What has ended has not to end again.
func TestWhatAPauseLeaves(t *testing.T) {
	store := heldBy("a", 20*time.Second)
	lock := store.Lock("operator", "").Locker
	wants := func(err error, want string) {
		t.Helper()
		if got := store.Snapshot().Notes[k8sresourcelock.HoldAnnotation]; err != nil || got != want {
			t.Errorf("error %v, hold %s, want %s", err, got, want)
		}
	}
	wants(Operator{Lock: lock, Requester: "alice"}.Pause(t.Context(), "we look", time.Minute),
		`{"holder":"a","transitions":3,"seconds":60,"requester":"alice","reason":"pause","note":"we look"}`)
	bob := Operator{Lock: lock, Requester: "bob"}
	wants(bob.Resume(t.Context()), `{"holder":"a","transitions":3,"seconds":0,"requester":"bob","reason":"pause","note":"we look"}`)
	if err := bob.Resume(t.Context()); !errors.Is(err, ErrNoHold) {
		t.Errorf("resumed twice: %v", err)
	}
}

// What cannot be an order is refused before anything is sent, by its name and the lock's.
func TestWhatIsNoOrderIsNotSent(t *testing.T) {
	store := heldBy("a", 20*time.Second)
	lock := store.Lock("operator", "")
	o := Operator{Lock: lock.Locker, Requester: "alice"}
	for want, order := range map[string]order{
		"transfer: " + lock.Describe():  func(ctx context.Context, o Operator) error { return o.Transfer(ctx, "b c", "", "", time.Minute) },
		"step down: " + lock.Describe(): func(ctx context.Context, o Operator) error { return o.StepDown(ctx, "", 0) },
		"pause: " + lock.Describe():     func(ctx context.Context, o Operator) error { return o.Pause(ctx, "", 0) },
		"resume: no lock: give the lock": func(ctx context.Context, _ Operator) error {
			return Operator{Requester: "alice"}.Resume(ctx)
		},
	} {
		if err := order(t.Context(), o); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if n := lock.Requests(); len(n) != 0 {
		t.Errorf("sent %v", n)
	}
	store.Corrupt()
	if err := o.Pause(t.Context(), "", time.Minute); err == nil || errors.Is(err, ErrNoLeader) || lock.Requests()[locktest.Update] != 0 {
		t.Errorf("a record that cannot be read: %v", err)
	}
}

// The nomination of one who has yet to write itself is still of use; of another term it is not.
func TestWhichNominationAnOrderKeeps(t *testing.T) {
	for transitions, want := range map[string]string{"4": "istiod", "3": ""} {
		store := locktest.NewStore(locktest.ConfigMap)
		now := metav1.Now()
		store.Put("a", k8sresourcelock.LeaderElectionRecord{
			HolderIdentity: "istiod", LeaseDurationSeconds: 30, LeaderTransitions: 4, AcquireTime: now, RenewTime: now,
		})
		store.Annotate(k8sresourcelock.NominatedAnnotation, "istiod")
		store.Annotate(k8sresourcelock.HoldAnnotation, `{"holder":"istiod","transitions":`+transitions+`,"seconds":600,"requester":"o","reason":"transfer"}`)
		if err := (Operator{Lock: store.Lock("operator", "").Locker, Requester: "x"}).Pause(t.Context(), "", time.Minute); err != nil {
			t.Fatal(err)
		}
		if got := store.Snapshot().Notes[k8sresourcelock.NominatedAnnotation]; got != want {
			t.Errorf("a nomination of term %s in term 4: %q is left, want %q", transitions, got, want)
		}
	}
}

// A server that says nothing is given ten seconds, for the look and for the write.
func TestAnOrdersCallsEnd(t *testing.T) {
	for _, verb := range []locktest.Verb{locktest.Get, locktest.Update} {
		synctest.Test(t, func(t *testing.T) {
			lock := heldBy("a", 20*time.Second).Lock("operator", "")
			lock.FailNext(verb, locktest.Fault{Hang: true})
			began := time.Now()
			err := Operator{Lock: lock.Locker, Requester: "alice"}.Pause(t.Context(), "", time.Minute)
			if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took != 10*time.Second {
				t.Errorf("%s: %v after %v", verb, err, took)
			}
		})
	}
}

// The lock cannot be read from the moment that the order stands there: that is waited for as
// long as the lease that the order saw, and no longer than whoever gave it waits.
func TestAnOrderWhoseFateCannotBeRead(t *testing.T) {
	for name, c := range map[string]struct {
		fault locktest.Fault
		waits time.Duration
		took  time.Duration
		says  bool // that it could not be read
	}{
		"for its lease":       {locktest.Fault{Lose: locktest.TheRequest}, time.Hour, 6100 * time.Millisecond, true},
		"the context is over": {locktest.Fault{Hang: true}, 8 * time.Second, 8 * time.Second, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			lock := heldBy("a", 5*time.Second).Lock("operator", "")
			stands := false
			lock.SetFault(func(v locktest.Verb) locktest.Fault {
				if stands {
					return c.fault
				}
				stands = v == locktest.Update
				return locktest.Fault{}
			})
			began := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), c.waits)
			defer cancel()
			err := Operator{Lock: lock.Locker, Requester: "alice"}.StepDown(ctx, "", time.Minute)
			if took := time.Since(began); took != c.took || err == nil || !strings.Contains(err.Error(), "gave up waiting; the order stands") ||
				strings.Contains(err.Error(), "could not be read for") != c.says {
				t.Errorf("%s: after %v %v", name, took, err)
			}
		})
	}
}

// crossed is a lock whose notes another writes first, when the order's context ends.
type crossed struct {
	locktest.Locker
	end context.CancelFunc
}

func (c crossed) Annotate(context.Context, k8sresourcelock.Snapshot, map[string]string) (k8sresourcelock.Snapshot, error) {
	c.end()
	return k8sresourcelock.Snapshot{}, k8sresourcelock.ErrConflict
}

func TestAnOrderIsNotTriedAgainWhenNobodyWaits(t *testing.T) {
	lock := heldBy("a", 20*time.Second).Lock("operator", "")
	ctx, cancel := context.WithCancel(t.Context())
	err := Operator{Lock: crossed{lock.Locker, cancel}, Requester: "alice"}.Pause(ctx, "", time.Minute)
	if n := lock.Requests()[locktest.Get]; !k8sresourcelock.IsConflict(err) || n != 1 {
		t.Errorf("%v after %d looks", err, n)
	}
}
