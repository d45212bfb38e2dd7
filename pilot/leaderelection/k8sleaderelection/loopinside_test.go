package k8sleaderelection

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock/locktest"
)

// stillLoop is the loop of an elector that does not run: nobody takes in what it is given.
func stillLoop(t testing.TB, lock k8sresourcelock.Interface, change ...func(*LeaderElectionConfig)) *loop {
	t.Helper()
	config := LeaderElectionConfig{Lock: lock, LeaseDuration: 30 * time.Second, RenewDeadline: 15 * time.Second, RetryPeriod: 7500 * time.Millisecond}
	for _, f := range change {
		f(&config)
	}
	le, err := NewLeaderElector(config)
	if err != nil {
		t.Fatal(err)
	}
	l := newLoop(le, campaigning)
	l.values = t.Context()
	l.events = make(chan *event, 16)
	l.timer = time.NewTimer(time.Hour)
	l.report = newReporter(le, &l.core)
	return l
}

// A call whose time was over while it waited for others is told as one that was not made.
func TestACallThatWasNeverMadeIsToldAsThat(t *testing.T) {
	d := &k8sresourcelock.Shared{CallsAtOnce: 1}
	hang := make(chan struct{})
	d.Call(t.Context(), time.Hour, func(ended func()) { <-hang; ended() }, func() {})
	defer close(hang)
	l := stillLoop(t, locktest.NewStore(locktest.ConfigMap).Lock("a", "stable").Locker, func(c *LeaderElectionConfig) { c.Shared = d })
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	l.values = ended
	l.send(core.Action{Op: core.Renew})
	l.helpers.Wait()
	if len(l.events) != 1 {
		t.Fatalf("%d events", len(l.events))
	}
	ev := <-l.events
	if ev.in.Kind != core.Replied || ev.in.Result != core.Unknown || ev.call.op != core.Renew || ev.call.result != core.Unknown ||
		!errors.Is(ev.call.err, errCrowded) || ev.call.took <= 0 {
		t.Errorf("told %+v, %+v", ev.in, ev.call)
	}
}

func TestADeadlineIsCountedFromItsReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		epoch := time.Now()
		clock := NewClock(func() int64 { return int64(time.Since(epoch)) })
		<-time.After(time.Minute)
		now := clock.Now()
		end := Validity{Mono: now.Mono + int64(10*time.Second), Boot: now.Boot + int64(9*time.Second), Wall: now.Wall + int64(11*time.Second)}
		at := time.Now()
		<-time.After(time.Hour) // a pause, which does not put it off
		if got, want := clock.Deadline(now, end), at.Add(9*time.Second); !got.Equal(want) {
			t.Errorf("%v, want %v", got, want)
		}
	})
}

// since is leaderlessSince of one pass.
func TestSinceWhenNobodyActs(t *testing.T) {
	l := stillLoop(t, locktest.NewStore(locktest.ConfigMap).Lock("a", "stable").Locker)
	const seen, now = core.Instant(1000), core.Instant(1 << 60)
	for name, c := range map[string]struct {
		record core.Record
		want   core.Instant
	}{
		"a lease":           {core.Record{Holder: "x", Lease: 40 * time.Second}, seen.After(40 * time.Second)},
		"a shorter one":     {core.Record{Holder: "x", Lease: time.Second}, seen.After(30 * time.Second)},
		"an absurd one":     {core.Record{Holder: "x", Lease: 100 * time.Hour}, seen.After(l.core.LeaseBound())},
		"nobody, in term 0": {core.Record{}, now},
	} {
		s := core.State{Known: core.Current, Since: core.Since{Record: seen}, Snap: core.Snapshot{Exists: true, Content: core.Readable, Record: c.record}}
		if got := l.report.leaderlessSince(&change{in: core.Input{Now: core.ClockReading{Mono: now}}, after: s}); got != c.want {
			t.Errorf("%s: since %d, want %d", name, got, c.want)
		}
	}
}

// bare is a lock with no more than Interface, that answers with what a test says.
type bare struct {
	k8sresourcelock.Interface
	record *k8sresourcelock.LeaderElectionRecord
	raw    []byte
	err    error
}

func (b *bare) Get(context.Context) (*k8sresourcelock.LeaderElectionRecord, []byte, error) {
	return b.record, b.raw, b.err
}
func (b *bare) Create(context.Context, k8sresourcelock.LeaderElectionRecord) error { return b.err }
func (b *bare) Update(context.Context, k8sresourcelock.LeaderElectionRecord) error { return b.err }
func (b *bare) Describe() string                                                   { return "ns/bare" }

func TestAPlainLockIsGivenVersions(t *testing.T) {
	resource := schema.GroupResource{Resource: "locks"}
	b := &bare{}
	p := versioned(b).(*plainLock)
	read := func() string {
		snap, err := p.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if snap.Exists && snap.Raw == nil {
			t.Errorf("a record without bytes: %+v", snap)
		}
		return snap.ResourceVersion
	}
	record := k8sresourcelock.LeaderElectionRecord{HolderIdentity: "x", LeaseDurationSeconds: 30, RenewTime: metav1.Now()}
	b.record = &record // its Get gives no bytes
	first := read()
	b.raw = []byte("x")
	second := read()
	if third := read(); first == "" || second == first || third != second {
		t.Errorf("versions %q, %q, and %q without a change", first, second, third)
	}
	b.err = errors.New("broken")
	if _, err := p.Read(t.Context()); !errors.Is(err, b.err) {
		t.Errorf("read: %v", err)
	}
	for _, base := range []k8sresourcelock.Snapshot{{}, {Exists: true}} {
		if snap, err := p.Write(t.Context(), base, record, nil); !errors.Is(err, b.err) || k8sresourcelock.IsConflict(err) || snap.Exists {
			t.Errorf("written on %+v: %v", base, err)
		}
	}
	for _, b.err = range []error{apierrors.NewConflict(resource, "x", nil), apierrors.NewAlreadyExists(resource, "x"), apierrors.NewNotFound(resource, "x")} {
		if _, err := p.Write(t.Context(), k8sresourcelock.Snapshot{}, record, nil); !k8sresourcelock.IsConflict(err) || !errors.Is(err, b.err) {
			t.Errorf("%v is written as %v", b.err, err)
		}
	}
	if b.err = nil; read() != second {
		t.Error("what failed has left a version")
	}
	b.record = nil
	if _, err := p.Read(t.Context()); err == nil {
		t.Error("neither a record nor an error is believed")
	}
	b.err = apierrors.NewNotFound(resource, "x")
	if snap, err := p.Read(t.Context()); err != nil || snap.Exists {
		t.Errorf("absent: %+v, %v", snap, err)
	}
}
