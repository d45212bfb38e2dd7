package locktest

import (
	"context"
	"errors"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

func held(by string, n int) k8sresourcelock.LeaderElectionRecord {
	at := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	return k8sresourcelock.LeaderElectionRecord{
		HolderIdentity: by, HolderKey: "stable", LeaseDurationSeconds: 30,
		AcquireTime: at, RenewTime: at, LeaderTransitions: n,
	}
}

// inBubbles runs a test for both kinds, each in a bubble of its own.
func inBubbles(t *testing.T, test func(t *testing.T, s *Store)) {
	for _, kind := range []Kind{ConfigMap, Lease} {
		t.Run(string(kind), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, NewStore(kind)) })
		})
	}
}

// elapse lets the bubble's time pass.
func elapse(t *testing.T, d time.Duration) {
	t.Helper()
	if err := pass(t.Context(), d); err != nil {
		t.Fatal(err)
	}
}

func TestFaults(t *testing.T) {
	tests := []struct {
		name      string
		fault     Fault
		timeout   time.Duration
		wantErr   error
		wantTook  time.Duration
		committed bool // when the call returns
		later     bool // in the end
	}{
		{name: "none", committed: true, later: true},
		{name: "latency", fault: Fault{Before: time.Second, After: 2 * time.Second}, wantTook: 3 * time.Second, committed: true, later: true},
		{name: "lost request", fault: Fault{Before: time.Second, Lose: TheRequest}, wantErr: ErrConnection, wantTook: time.Second},
		{name: "lost reply", fault: Fault{After: time.Second, Lose: TheReply}, wantErr: syscall.ECONNRESET, wantTook: time.Second, committed: true, later: true},
		{name: "hanging request", fault: Fault{Hang: true}, timeout: 5 * time.Second, wantErr: context.DeadlineExceeded, wantTook: 5 * time.Second},
		{name: "hanging reply", fault: Fault{Hang: true, Lose: TheReply}, timeout: 5 * time.Second, wantErr: context.DeadlineExceeded, wantTook: 5 * time.Second, committed: true, later: true},
		{name: "given up on the way", fault: Fault{Before: 9 * time.Second}, timeout: 5 * time.Second, wantErr: context.DeadlineExceeded, wantTook: 5 * time.Second},
		{name: "arrives all the same", fault: Fault{Before: 9 * time.Second, Arrives: true}, timeout: 5 * time.Second, wantErr: context.DeadlineExceeded, wantTook: 5 * time.Second, later: true},
		{name: "refused", fault: Fault{Err: ErrUnavailable}, wantErr: ErrUnavailable},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inBubbles(t, func(t *testing.T, s *Store) {
				ctx := t.Context()
				if tt.timeout > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tt.timeout)
					defer cancel()
				}
				lock := s.Lock("pod-a", "stable")
				lock.FailNext(Create, tt.fault)
				start := time.Now()
				_, err := lock.Write(ctx, k8sresourcelock.Snapshot{}, held("pod-a", 1), nil)
				if !errors.Is(err, tt.wantErr) {
					t.Errorf("error %v, want %v", err, tt.wantErr)
				}
				if k8sresourcelock.IsConflict(err) {
					t.Errorf("%v claims that nothing was written", err)
				}
				if took := time.Since(start); took != tt.wantTook {
					t.Errorf("took %v, want %v", took, tt.wantTook)
				}
				if got := s.Snapshot().Exists; got != tt.committed {
					t.Errorf("committed: %v, want %v", got, tt.committed)
				}
				elapse(t, time.Minute)
				if got := s.Snapshot().Exists; got != tt.later {
					t.Errorf("committed in the end: %v, want %v", got, tt.later)
				}
				if n := lock.Requests()[Create]; n != 1 {
					t.Errorf("%d requests counted, want 1", n)
				}
			})
		})
	}
}

// A late request is guarded by its base.
func TestLateRequest_Guarded(t *testing.T) {
	inBubbles(t, func(t *testing.T, s *Store) {
		a, b := s.Lock("pod-a", "stable"), s.Lock("pod-b", "canary")
		base, err := a.Write(t.Context(), k8sresourcelock.Snapshot{}, held("pod-a", 1), nil)
		if err != nil {
			t.Fatal(err)
		}
		a.FailNext(Update, Fault{Before: 10 * time.Second, Arrives: true})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := a.Write(ctx, base, held("", 1), nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("error %v, want a deadline", err)
		}
		if _, err := b.Write(t.Context(), base, held("pod-b", 2), nil); err != nil {
			t.Fatal(err)
		}
		elapse(t, time.Minute)
		if got := s.Snapshot().Record.HolderIdentity; got != "pod-b" {
			t.Errorf("the late release won: holder %q", got)
		}
	})
}

// A late request does not change if its caller changes the object, as client-go does.
func TestLateRequest_Unchanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewStore(Lease)
		client := s.Client("pod-a")
		mine := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: Name}, Spec: coordinationv1.LeaseSpec{HolderIdentity: new("sent")}}
		client.FailNext(Create, Fault{Before: 10 * time.Second, Arrives: true})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := client.Leases(Namespace).Create(ctx, mine, metav1.CreateOptions{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("error %v, want a deadline", err)
		}
		mine.Spec.HolderIdentity = new("changed")
		elapse(t, time.Minute)
		if got := s.Snapshot().Record.HolderIdentity; got != "sent" {
			t.Errorf("%q has arrived", got)
		}
	})
}

// recorder runs a watch and records its results.
type recorder struct {
	mu    sync.Mutex
	state recorded
}

type recorded struct {
	seen   []k8sresourcelock.Snapshot
	at     []time.Time
	up     bool
	ended  bool
	resume string
	err    error
}

func (r *recorder) note(f func(*recorded)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f(&r.state)
}

// now is the record once all goroutines in the bubble are blocked.
func (r *recorder) now() (all recorded) {
	synctest.Wait()
	r.note(func(s *recorded) { all = *s })
	return all
}

func (r recorded) holders() (names []string) {
	for _, s := range r.seen {
		names = append(names, s.Record.HolderIdentity)
	}
	return names
}

func follow(ctx context.Context, lock *Lock, from string) *recorder {
	r := &recorder{}
	go func() {
		up := func() { r.note(func(s *recorded) { s.up = true }) }
		resume, err := lock.Watch(ctx, from, up, func(snap k8sresourcelock.Snapshot) {
			r.note(func(s *recorded) { s.seen, s.at = append(s.seen, snap), append(s.at, time.Now()) })
		})
		r.note(func(s *recorded) { s.ended, s.resume, s.err = true, resume, err })
	}()
	synctest.Wait()
	return r
}

func TestWatchDelayMuteAndDrop(t *testing.T) {
	inBubbles(t, func(t *testing.T, s *Store) {
		lock := s.Lock("pod-a", "stable")
		s.Put("istiod", held("one", 1))
		r := follow(t.Context(), lock, "")
		if got := r.now().holders(); len(got) != 1 || !r.now().up {
			t.Fatalf("up %v, saw %q; want the present state", r.now().up, got)
		}

		lock.SetWatchDelay(3 * time.Second)
		start := time.Now()
		s.Put("istiod", held("two", 2))
		lock.SetWatchDelay(time.Second)
		s.Put("istiod", held("three", 3)) // must not overtake
		elapse(t, time.Minute)
		if got := r.now().holders(); len(got) != 3 || got[1] != "two" || got[2] != "three" {
			t.Fatalf("saw %q", got)
		}
		if d := r.now().at[1].Sub(start); d != 3*time.Second {
			t.Errorf("delayed by %v, want 3s", d)
		}

		lock.MuteWatches(true)
		s.Put("istiod", held("four", 4))
		elapse(t, time.Minute)
		if got := r.now().holders(); len(got) != 3 {
			t.Errorf("a muted watch saw %q", got)
		}
		lock.MuteWatches(false)
		if got := r.now().holders(); len(got) != 4 {
			t.Errorf("after muting saw %q", got)
		}

		lock.SetWatchDelay(time.Hour)
		s.Put("istiod", held("five", 5)) // lost with the connection
		lock.DropWatches()
		end := r.now()
		if !end.ended || end.err != nil || end.resume != "101" || lock.Watching() != 0 {
			t.Errorf("ended %v, error %v, resume %q, %d open; want an ordinary end at 101", end.ended, end.err, end.resume, lock.Watching())
		}
		lock.SetWatchDelay(0)
		again := follow(t.Context(), lock, end.resume)
		if got := again.now().holders(); len(got) != 1 || got[0] != "five" {
			t.Errorf("resumed watch saw %q, want the lost event", got)
		}
		lock.DropWatches()
	})
}

func TestWatchExpired(t *testing.T) {
	inBubbles(t, func(t *testing.T, s *Store) {
		lock := s.Lock("pod-a", "stable")
		s.Put("istiod", held("one", 1))
		open := follow(t.Context(), lock, "")
		lock.ExpireWatches()
		r := open.now()
		if !r.ended || !apierrors.IsResourceExpired(r.err) || r.resume != "" {
			t.Errorf("ended %v, error %v, resume %q; want Expired and no resume", r.ended, r.err, r.resume)
		}
		s.Put("istiod", held("two", 2))
		s.Compact()
		r = follow(t.Context(), lock, "98").now()
		if !r.ended || r.up || !apierrors.IsResourceExpired(r.err) || r.resume != "" {
			t.Errorf("ended %v, up %v, error %v, resume %q; want a refusal", r.ended, r.up, r.err, r.resume)
		}
	})
}

func TestWatchBookmarkAndTimeLimit(t *testing.T) {
	inBubbles(t, func(t *testing.T, s *Store) {
		lock := s.Lock("pod-a", "stable")
		open := follow(t.Context(), lock, "")
		s.Bookmark()
		elapse(t, 5*time.Minute-time.Second)
		if open.now().ended {
			t.Fatal("ended within five minutes")
		}
		elapse(t, 5*time.Minute)
		r := open.now()
		if !r.ended || r.err != nil || r.resume != "98" || len(r.seen) != 0 {
			t.Errorf("ended %v, error %v, resume %q, saw %d; want an ordinary end at the bookmark", r.ended, r.err, r.resume, len(r.seen))
		}
	})
}

func TestRestoreAndRevert(t *testing.T) {
	inBubbles(t, func(t *testing.T, s *Store) {
		lock := s.Lock("pod-a", "stable")
		s.Put("istiod", held("one", 1))
		uid := s.Snapshot().UID
		backup := s.Backup()
		s.Put("istiod", held("two", 2))
		s.Delete()
		s.Put("istiod", held("three", 3))
		if s.Snapshot().UID == uid {
			t.Error("a re-created object has its predecessor's UID")
		}
		r := follow(t.Context(), lock, "")
		s.Restore(backup)
		if snap := s.Snapshot(); snap.Record.HolderIdentity != "one" || snap.ResourceVersion != "98" || snap.UID != uid || !r.now().ended {
			t.Errorf("restored to %q at %s, watch ended: %v", snap.Record.HolderIdentity, snap.ResourceVersion, r.now().ended)
		}
		s.Put("istiod", held("four", 4))
		if err := s.Revert(backup); err != nil {
			t.Fatal(err)
		}
		if snap := s.Snapshot(); snap.Record.HolderIdentity != "one" || snap.ResourceVersion != "100" {
			t.Errorf("reverted to %q at %s", snap.Record.HolderIdentity, snap.ResourceVersion)
		}
	})
}

func TestLatencyHookAndCounters(t *testing.T) {
	inBubbles(t, func(t *testing.T, s *Store) {
		a, b := s.Lock("pod-a", "stable"), s.Lock("pod-b", "canary")
		a.SetLatency(time.Second, time.Second)
		start := time.Now()
		if _, err := a.Read(t.Context()); err != nil || time.Since(start) != 2*time.Second {
			t.Errorf("took %v, %v; want 2s", time.Since(start), err)
		}
		var asked []Verb
		a.SetFault(func(v Verb) Fault {
			asked = append(asked, v)
			s.Put("peer", held("peer", len(asked))) // a concurrent write
			return Fault{}
		})
		_, err := a.Write(t.Context(), k8sresourcelock.Snapshot{}, held("pod-a", 1), nil)
		if !k8sresourcelock.IsConflict(err) || len(asked) != 1 || asked[0] != Create {
			t.Errorf("%v, asked for %v", err, asked)
		}
		if _, err := b.Write(t.Context(), s.Snapshot(), held("pod-b", 2), nil); err != nil {
			t.Error(err)
		}
		if got := s.Requests(); got[Get] != 1 || got[Create] != 1 || got[Update] != 1 || got[Watch] != 0 {
			t.Errorf("requests %v", got)
		}
		history := s.History()
		if len(history) != 2 || history[0].By != "peer" || history[1].By != "pod-b" || history[1].Version != s.Version() ||
			history[1].Snapshot.Record.HolderIdentity != "pod-b" || history[1].At != start.Add(2*time.Second) {
			t.Errorf("history %+v", history)
		}
	})
}
