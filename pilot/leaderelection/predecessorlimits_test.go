package leaderelection

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock/locktest"
	"incumbent.dev/incumbent/pkg/kube"
)

// lastWrite is when the store took the newest write of that candidate.
func lastWrite(store *locktest.Store, name string) (at time.Time) {
	for _, e := range store.History() {
		if e.By == name {
			at = e.At
		}
	}
	return at
}

// The write that makes the lock one that is kept succeeds, and everything after it hangs: the
// candidate that took the lock takes about as long to end as its cover lasts.
func TestNoFunctionStartsAfterTheCoverOfThePredecessorsLock(t *testing.T) {
	for reply := time.Duration(0); reply < 3700*time.Millisecond; reply += 100 * time.Millisecond {
		bubble(t, func(t *testing.T, store *locktest.Store) {
			s := successor(t, store, "s", func(p *part) {
				p.faults = func(v locktest.Verb) locktest.Fault {
					switch {
					case store.Snapshot().KeptForSuccessors():
						return locktest.Fault{Hang: true}
					case v == locktest.Update:
						return locktest.Fault{After: reply}
					}
					return locktest.Fault{}
				}
				p.watched = func(p *part, works bool) {
					if age := time.Since(lastWrite(store, p.name)); works && age >= oldRenew {
						t.Errorf("works %v after its last write, and its cover is %v", age, oldRenew)
					}
				}
			})
			s.client.MuteWatches(true)
			passes(2 * oldLease)
			if s.works() {
				t.Error("works without a cover")
			}
			s.client.SetFault(nil)
			s.client.MuteWatches(false)
			passes(2 * oldLease)
			if !s.works() {
				t.Error("does not work although the lock is there to be kept")
			}
		})
	}
}

// A reply that travels for long lets it act from when the request was sent, no longer.
func TestThePredecessorsCoverCountsFromTheRequest(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		s := successor(t, store, "s")
		passes(time.Minute)
		s.client.SetLatency(0, 3*time.Second)
		passes(time.Minute)
		if !s.works() {
			t.Fatal("does not work with replies that take 3 s")
		}
		before := lastWrite(store, "s")
		for lastWrite(store, "s").Equal(before) {
			<-time.After(10 * time.Millisecond)
		}
		passes(3500 * time.Millisecond) // its reply is there
		sent := lastWrite(store, "s")
		s.client.MuteWatches(true)
		s.client.SetFault(func(locktest.Verb) locktest.Fault { return locktest.Fault{Hang: true} })
		passes(oldLease)
		if s.works() || s.saw().stopped.Sub(sent) != oldRenew {
			t.Errorf("works %v, stopped %v after the last write was sent", s.works(), s.saw().stopped.Sub(sent))
		}
	})
}

func TestThePredecessorCostsFewRequestsWhateverFails(t *testing.T) {
	forbidden := func(verbs ...locktest.Verb) func(*part) {
		return func(p *part) { p.client.Forbid(verbs...) }
	}
	refused := func(err error) func(*part) {
		return func(p *part) {
			p.client.SetFault(func(v locktest.Verb) locktest.Fault {
				f := locktest.Fault{Before: 4 * time.Millisecond}
				if v == locktest.Update || v == locktest.Create {
					f.Err = err
				}
				return f
			})
		}
	}
	gr := schema.GroupResource{Resource: "configmaps"}
	conflicts := refused(apierrors.NewConflict(gr, "x", errors.New("always")))
	exists := refused(apierrors.NewAlreadyExists(gr, "x")) // what a create meets
	for name, break_ := range map[string]func(*part){
		"nothing":                      func(*part) {},
		"watches":                      forbidden(locktest.Watch),
		"writes":                       forbidden(locktest.Update, locktest.Create),
		"reads":                        forbidden(locktest.Get),
		"writes and watches":           forbidden(locktest.Update, locktest.Create, locktest.Watch),
		"writes meet another each":     conflicts,
		"writes meet one that is made": exists,
		"the same without a watch too": func(p *part) { conflicts(p); p.client.Forbid(locktest.Watch) },
	} {
		for _, deleted := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, the lock deleted %v", name, deleted), func(t *testing.T) {
				predecessorCosts(t, break_, deleted)
			})
		}
	}
}

func predecessorCosts(t *testing.T, break_ func(*part), deleted bool) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		s := successor(t, store, "s")
		passes(time.Minute)
		break_(s)
		gone := func() {}
		if deleted {
			// Whoever waits for a lock that is gone makes it anew.
			gone = func() { store.Delete() }
		}
		// A watch that is up stays up when new ones are forbidden.
		for _, act := range []func(){gone, s.client.DropWatches} {
			act()
			before := s.client.Requests()
			const minutes = 10
			passes(minutes * time.Minute)
			sum := 0
			for verb, n := range s.client.Requests() {
				n -= before[verb]
				sum += n
				t.Logf("%s: %.1f a minute", verb, float64(n)/minutes)
			}
			if sum > 24*minutes {
				t.Errorf("%d requests in %d minutes", sum, minutes)
			}
		}
	})
}

// With the limits that hold when none is given, functions that take all the time they have are
// over before a slow clock's cover and limit reach beyond a fast clock's lease.
func TestThePredecessorsDefaultLimitKeepsTheLeaseBound(t *testing.T) {
	l := electionFor(t, Config{Predecessor: &Predecessor{Name: "old", Lock: ConfigMapLock}})
	cover, limit, lease := DefaultRenewDeadline, l.predecessor.Load().elector.DrainLimit(), DefaultLeaseDuration
	const drift = k8sleaderelection.DefaultMaxClockDrift
	if slow, fast := float64(cover+limit)/(1-drift), float64(lease)/(1+drift); slow > fast || limit < time.Second {
		t.Errorf("cover %v and drain limit %v last %v, a lease of %v only %v", cover, limit, time.Duration(slow), lease, time.Duration(fast))
	}
	l = electionFor(t, Config{Predecessor: &Predecessor{Name: "old", Lock: ConfigMapLock}, DrainLimit: 3 * time.Second})
	if is := l.predecessor.Load().elector.DrainLimit(); is != 3*time.Second {
		t.Errorf("drain limit %v", is)
	}
}

// A function that ends its goroutine stops the term, beside a predecessor and without.
func TestAFunctionThatEndsItsGoroutineIsAFailure(t *testing.T) {
	if err := runAll(t.Context(), []func(context.Context) error{
		func(context.Context) error { runtime.Goexit(); return nil },
		func(ctx context.Context) error { <-ctx.Done(); return nil },
	}); !errors.Is(err, k8sleaderelection.ErrGoexit) {
		t.Errorf("told %v", err)
	}
	bubble(t, func(t *testing.T, store *locktest.Store) {
		k, err := newPredecessorLock(successorOf(store.Lock("s", "canary")), func(context.Context) error { runtime.Goexit(); return nil }, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		if err := k.run(t.Context()); !errors.Is(err, k8sleaderelection.ErrGoexit) {
			t.Errorf("told %v", err)
		}
	})
}

// electionFor makes an election whose client reaches nobody.
func electionFor(t *testing.T, cfg Config) *LeaderElection {
	t.Helper()
	client, err := kube.NewClient(&rest.Config{Host: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Namespace, cfg.ElectionID, cfg.Identity = "istio-system", "new", "a"
	l, err := New(client, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return l
}
