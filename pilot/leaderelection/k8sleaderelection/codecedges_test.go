package k8sleaderelection

import (
	"context"
	"errors"
	"maps"
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

// Others write what they like onto the lock: nothing but a marker is one.
func TestMarkers(t *testing.T) {
	for s, want := range map[string]core.Marker{
		"v1 a 3":                {Identity: "a", Transitions: 3},
		"v1 a 3 handover":       {Identity: "a", Transitions: 3, Handover: true},
		"v1 a 3 unfit":          {Identity: "a", Transitions: 3, Unfit: true},
		"v1 a 3 handover unfit": {Identity: "a", Transitions: 3, Handover: true, Unfit: true},
		"":                      {}, "v1": {}, "v1 a": {}, "v2 a 3": {}, "v1  3": {}, "v1 a x": {}, "v1 a 3 later": {}, "v1 a 3 ": {},
	} {
		got := parseMarker(s)
		if got != want {
			t.Errorf("%q: %+v, want %+v", s, got, want)
		}
		if want != (core.Marker{}) && formatMarker(got) != s {
			t.Errorf("%q is written as %q", s, formatMarker(got))
		}
	}
}

func TestRequestsAndHolds(t *testing.T) {
	for s, believed := range map[string]bool{
		`{"identity":"b","key":"canary","reason":"default-revision"}`: true,
		`{"identity":"b c","reason":"default-revision"}`:              false,
		`{"identity":"b c","reason":"operator"}`:                      false,
		`{"reason":"operator"}`:                                       true, // to step down
		`{"reason":"default-revision"}`:                               false,
		`{"identity":"b","key":"a b"}`:                                false,
		`{"identity":7}`:                                              false,
		``:                                                            false,
		`null`:                                                        false,
	} {
		r := parseRequest(s)
		if (r != core.Request{}) != believed {
			t.Errorf("%s: %+v", s, r)
		}
		if again := parseRequest(formatRequest(r)); believed && again != r {
			t.Errorf("%+v became %+v", r, again)
		}
	}
	for s, believed := range map[string]bool{`{"holder":"a","seconds":5}`: true, `{"holder":7}`: false, ``: false} {
		if h := parseHold(s); (h != core.Hold{}) != believed {
			t.Errorf("%s: %+v", s, h)
		}
	}
}

func TestNotesAreWrittenWhereTheyAreSomething(t *testing.T) {
	if got := encodeNotes(core.Notes{}); len(got) != 0 {
		t.Errorf("no notes are written as %v", got)
	}
	got := encodeNotes(core.Notes{Marker: core.Marker{Identity: "a", Transitions: 3}, Nominated: core.Nomination{Identity: "b"}})
	want := map[string]string{k8sresourcelock.MarkerAnnotation: "v1 a 3", k8sresourcelock.NominatedAnnotation: "b"}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestSnapshotsAreDecoded(t *testing.T) {
	l := stillLoop(t, locktest.NewStore(locktest.ConfigMap).Lock("a", "stable").Locker)
	for name, c := range map[string]struct {
		snap k8sresourcelock.Snapshot
		want core.Content
	}{
		"empty":      {k8sresourcelock.Snapshot{Exists: true, ResourceVersion: "7", Floor: 5}, core.Missing},
		"unreadable": {k8sresourcelock.Snapshot{Exists: true, ResourceVersion: "7", Floor: 5, Raw: []byte("{"), Unreadable: k8sresourcelock.ErrUnreadable}, core.Unreadable},
		"a record":   {k8sresourcelock.Snapshot{Exists: true, ResourceVersion: "7", Floor: 5, Raw: []byte("{}")}, core.Readable},
	} {
		got, err := l.le.codec.snapshot(c.snap)
		if err != nil || got.Content != c.want || got.Version != 7 || got.Floor != 5 {
			t.Errorf("%s: %+v, error %v", name, got, err)
		}
	}
	if stamp(metav1.Time{}) != 0 || unstamp(0) != (metav1.Time{}) {
		t.Error("no time is a time")
	}
	now := metav1.Now().Rfc3339Copy()
	if got := unstamp(stamp(now)); !got.Equal(&now) {
		t.Errorf("%v became %v", now, got)
	}
}

// answering is a lock whose calls say what they are asked, and with which deadline.
type answering struct {
	k8sresourcelock.Versioned
	err   error
	left  time.Duration
	takes time.Duration
	asked []string
}

func (a *answering) note(ctx context.Context, what string) (k8sresourcelock.Snapshot, error) {
	deadline, _ := ctx.Deadline()
	a.left, a.asked = time.Until(deadline), append(a.asked, what)
	<-time.After(a.takes)
	return k8sresourcelock.Snapshot{}, a.err
}

func (a *answering) Read(ctx context.Context) (k8sresourcelock.Snapshot, error) {
	return a.note(ctx, "read")
}

func (a *answering) Write(ctx context.Context, _ k8sresourcelock.Snapshot, _ k8sresourcelock.LeaderElectionRecord, _ map[string]string) (k8sresourcelock.Snapshot, error) {
	return a.note(ctx, "write")
}

// annotating can be annotated, too.
type annotating struct{ *answering }

func (a annotating) Annotate(ctx context.Context, _ k8sresourcelock.Snapshot, _ map[string]string) (k8sresourcelock.Snapshot, error) {
	return a.note(ctx, "annotate")
}

func TestWhatBecomesOfACall(t *testing.T) {
	resource := schema.GroupResource{Resource: "locks"}
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		op     core.Op
		err    error
		result core.Result
		after  time.Duration
		asked  string
	}{
		"a read":                {core.Read, nil, core.OK, 0, "read"},
		"a renewal":             {core.Renew, nil, core.OK, 0, "write"},
		"a request":             {core.Ask, nil, core.OK, 0, "annotate"},
		"a request that fails":  {core.Ask, broken, core.Unknown, 0, "annotate"},
		"a conflict":            {core.Renew, k8sresourcelock.ErrConflict, core.Conflict, 0, "write"},
		"too many":              {core.Renew, apierrors.NewTooManyRequests("x", 7), core.Refused, 7 * time.Second, "write"},
		"far too many":          {core.Renew, apierrors.NewTooManyRequests("x", 1<<30), core.Refused, time.Hour, "write"},
		"too many, before now":  {core.Renew, apierrors.NewTooManyRequests("x", -7), core.Refused, 0, "write"},
		"forbidden":             {core.Renew, apierrors.NewForbidden(resource, "x", nil), core.Refused, 0, "write"},
		"a server that is slow": {core.Renew, apierrors.NewServerTimeout(resource, "update", 5), core.Unknown, 0, "write"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := locktest.NewStore(locktest.ConfigMap)
				lock := &answering{Versioned: store.Lock("a", "stable").Unwatched(), err: c.err, takes: time.Second}
				d := &k8sresourcelock.Shared{CallsAtOnce: 1}
				epoch := time.Now()
				l := stillLoop(t, annotating{lock}, func(config *LeaderElectionConfig) {
					config.Shared, config.Clock = d, NewClock(func() int64 { return int64(time.Since(epoch)) })
				})
				l.send(core.Action{Op: c.op})
				l.helpers.Wait()
				ev := <-l.events
				if ev.in.Result != c.result || ev.in.RetryAfter != c.after || ev.call.op != c.op || !errors.Is(ev.call.err, c.err) || ev.call.took != time.Second {
					t.Errorf("%+v, %+v", ev.in, ev.call)
				}
				if len(lock.asked) != 1 || lock.asked[0] != c.asked || lock.left != l.core.CallTimeout {
					t.Errorf("asked %q, within %v", lock.asked, lock.left)
				}
				next := false // the first call has made room for another
				d.Call(t.Context(), time.Hour, func(ended func()) { next = true; ended() }, func() {})
				if synctest.Wait(); !next {
					t.Error("the call is still under way")
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		lock := &answering{Versioned: locktest.NewStore(locktest.ConfigMap).Lock("a", "stable").Unwatched()}
		l := stillLoop(t, lock) // which cannot be annotated
		l.send(core.Action{Op: core.Ask})
		l.helpers.Wait()
		if len(lock.asked) != 1 || lock.asked[0] != "write" {
			t.Errorf("asked %q", lock.asked)
		}
	})
	if fromServer(broken) || !fromServer(apierrors.NewForbidden(resource, "x", nil)) {
		t.Error("what an API server has answered is not told from other errors")
	}
}

func TestAClockWithAnotherWall(t *testing.T) {
	clock := NewClock(func() int64 { return 5 })
	if got := clock.WithWall(func() int64 { return 7 }).Now(); got.Wall != 7 || got.Boot != 5 {
		t.Errorf("%+v", got)
	}
	if got := clock.Now(); got.Wall < time.Now().Add(-time.Hour).UnixNano() {
		t.Errorf("%+v", got)
	}
}
