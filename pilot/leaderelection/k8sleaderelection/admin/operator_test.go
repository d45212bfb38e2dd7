package admin

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/internal/testutil/apiserver"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/internal/testutil/locktest"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// heldBy returns a store with a lock that an incumbent leader holds in term 3. The leader is not running.
func heldBy(holder string, lease time.Duration) *locktest.Store {
	store := locktest.NewStore(locktest.ConfigMap)
	now := metav1.Now()
	store.Put(holder, k8sresourcelock.LeaderElectionRecord{
		HolderIdentity: holder, LeaseDurationSeconds: int(lease / time.Second), LeaderTransitions: 3,
		AcquireTime: now, RenewTime: metav1.NewTime(now.Add(time.Second)),
	})
	store.Annotate(record.MarkerAnnotation, "v1 "+holder+" 3")
	return store
}

type command func(context.Context, Operator) error

func pause(ctx context.Context, o Operator) error    { return o.Pause(ctx, "", time.Minute) }
func resume(ctx context.Context, o Operator) error   { return o.Resume(ctx) }
func stepDown(ctx context.Context, o Operator) error { return o.StepDown(ctx, "", time.Minute) }

func transferTo(to string) command {
	return func(ctx context.Context, o Operator) error { return o.Transfer(ctx, to, "", "", time.Minute) }
}

// A request is written completely, and its outcome is polled until the context ends.
func TestOperatorRequest(t *testing.T) {
	for name, c := range map[string]struct {
		command command
		lease   time.Duration
		want    string
	}{
		"transfer": {func(ctx context.Context, o Operator) error {
			return o.Transfer(ctx, "b", "canary", "try it", time.Hour)
		}, 20 * time.Second,
			`{"identity":"b","key":"canary","reason":"operator","requester":"alice","note":"try it","holder":"a","transitions":3,"seconds":20,"accepted":false,"holdSeconds":3600}`},
		"step-down": {func(ctx context.Context, o Operator) error { return o.StepDown(ctx, "node drain", time.Minute) }, 20 * time.Second,
			`{"identity":"","key":"","reason":"operator","requester":"alice","note":"node drain","holder":"a","transitions":3,"seconds":20,"accepted":false,"holdSeconds":60}`},
		"no lease": {stepDown, 0,
			`{"identity":"","key":"","reason":"operator","requester":"alice","holder":"a","transitions":3,"seconds":1,"accepted":false,"holdSeconds":60}`},
	} {
		synctest.Test(t, func(t *testing.T) {
			store := heldBy("a", c.lease)
			lock := store.Lock("operator", "")
			ctx, cancel := context.WithTimeout(t.Context(), 950*time.Millisecond)
			defer cancel()
			err := c.command(ctx, Operator{Lock: lock.Lock, Requester: "alice"})
			if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "the command may still be executed") {
				t.Errorf("%s: %v", name, err)
			}
			if got := store.Snapshot().Annotations[record.HandoverRequestAnnotation]; got != c.want {
				t.Errorf("%s: request\n%s, want\n%s", name, got, c.want)
			}
			if n := lock.Counts()[locktest.Get]; n != 1+10 {
				t.Errorf("%s: %d reads", name, n)
			}
		})
	}
}

func TestOperatorHold(t *testing.T) {
	store := heldBy("a", 20*time.Second)
	lock := store.Lock("operator", "").Lock
	wants := func(err error, want string) {
		t.Helper()
		if got := store.Snapshot().Annotations[record.HoldAnnotation]; err != nil || got != want {
			t.Errorf("error %v, hold %s, want %s", err, got, want)
		}
	}
	wants(Operator{Lock: lock, Requester: "alice"}.Pause(t.Context(), "incident", time.Minute),
		`{"holder":"a","transitions":3,"seconds":60,"requester":"alice","reason":"pause","note":"incident"}`)
	bob := Operator{Lock: lock, Requester: "bob"}
	wants(bob.Resume(t.Context()), `{"holder":"a","transitions":3,"seconds":0,"requester":"bob","reason":"pause","note":"incident"}`)
	if err := bob.Resume(t.Context()); !errors.Is(err, ErrNoHold) {
		t.Errorf("second resume: %v", err)
	}
	for _, hold := range []string{
		`{"holder":"b","transitions":3,"seconds":60,"requester":"x","reason":"pause"}`, `{"holder":"a","transitions":4,"seconds":60,"requester":"x","reason":"pause"}`,
	} {
		store.Annotate(record.HoldAnnotation, hold)
		if err := bob.Resume(t.Context()); !errors.Is(err, ErrNoHold) {
			t.Errorf("hold of another term: %v", err)
		}
	}
}

// Cancel removes the request of an operator, and ends the hold of a transfer.
func TestOperatorCancel(t *testing.T) {
	const mine = `{"identity":"b","key":"","reason":"operator","requester":"bob","holder":"a","transitions":3,"seconds":20,"accepted":false}`
	byRank, old := strings.Replace(mine, "operator", "default-revision", 1), strings.Replace(mine, `"transitions":3`, `"transitions":2`, 1)
	const hold = `{"holder":"a","transitions":3,"seconds":60,"requester":"bob","reason":"transfer"}`
	paused := strings.Replace(hold, `"transfer"`, `"pause"`, 1)
	for name, c := range map[string]struct {
		request, hold         string
		wantRequest, wantHold string
		want                  error
	}{
		"request":            {mine, "", "", "", nil},
		"accepted":           {strings.Replace(mine, "false", "true", 1), "", "", "", nil},
		"request and hold":   {mine, hold, "", strings.NewReplacer("60", "0", "bob", "alice").Replace(hold), nil},
		"hold of a transfer": {"", hold, "", strings.NewReplacer("60", "0", "bob", "alice").Replace(hold), nil},
		"pause":              {"", paused, "", paused, ErrNoRequest},
		"request by rank":    {byRank, "", byRank, "", ErrNoRequest},
		"request of a term":  {old, "", old, "", ErrNoRequest},
		"nothing":            {"", "", "", "", ErrNoRequest},
	} {
		store := heldBy("a", 20*time.Second)
		store.Annotate(record.HandoverRequestAnnotation, c.request)
		store.Annotate(record.HoldAnnotation, c.hold)
		err := Operator{Lock: store.Lock("operator", "").Lock, Requester: "alice"}.Cancel(t.Context())
		if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%s: %v", name, err)
		}
		a := store.Snapshot().Annotations
		if a[record.HandoverRequestAnnotation] != c.wantRequest || a[record.HoldAnnotation] != c.wantHold {
			t.Errorf("%s: %v", name, a)
		}
	}
}

// badVersion has a version that is not a number.
type badVersion struct{ k8sresourcelock.Lock }

func (b badVersion) Read(ctx context.Context) (k8sresourcelock.Snapshot, error) {
	snap, err := b.Lock.Read(ctx)
	snap.ResourceVersion = "1a"
	return snap, err
}

// Invalid commands are rejected with the name of the lock, and nothing is written.
func TestOperatorInvalid(t *testing.T) {
	store := heldBy("a", 20*time.Second)
	client := store.Lock("operator", "")
	locker := client.Lock
	for want, c := range map[string]struct {
		lock    k8sresourcelock.Lock
		command command
	}{
		"transfer: " + locker.Describe() + ": ": {locker, transferTo("b c")},
		"a is already the leader":               {locker, transferTo("a")},
		"key": {locker, func(ctx context.Context, o Operator) error {
			return o.Transfer(ctx, "b", strings.Repeat("k", 2000), "", time.Minute)
		}},
		"step-down: " + locker.Describe() + ": duration 0s": {locker, func(ctx context.Context, o Operator) error { return o.StepDown(ctx, "", 0) }},
		"pause: " + locker.Describe() + ": duration 192h":   {locker, func(ctx context.Context, o Operator) error { return o.Pause(ctx, "", 8*24*time.Hour) }},
		"resume: no lock: no Lock: set the lock":            {nil, resume},
		"no Requester":                                      {locker, func(ctx context.Context, o Operator) error { return pause(ctx, Operator{Lock: o.Lock}) }},
		"1a":                                                {badVersion{locker}, pause},
		"the lock does not exist":                           {locktest.NewStore(locktest.Lease).Lock("operator", "").Lock, stepDown},
	} {
		if err := c.command(t.Context(), Operator{Lock: c.lock, Requester: "alice"}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	store.Corrupt()
	if err := pause(t.Context(), Operator{Lock: locker, Requester: "alice"}); err == nil || errors.Is(err, ErrNoLeader) {
		t.Errorf("unreadable record: %v", err)
	}
	if client.Counts()[locktest.Update] != 0 {
		t.Error("a command was written")
	}
}

// A command removes the nomination of another term and keeps a current nomination.
func TestOperatorKeepsNomination(t *testing.T) {
	for transitions, want := range map[string]string{"4": "istiod", "3": ""} {
		store := locktest.NewStore(locktest.ConfigMap)
		now := metav1.Now()
		store.Put("a", k8sresourcelock.LeaderElectionRecord{
			HolderIdentity: "istiod", LeaseDurationSeconds: 30, LeaderTransitions: 4, AcquireTime: now, RenewTime: now,
		})
		store.Annotate(record.NominatedAnnotation, "istiod")
		store.Annotate(record.HoldAnnotation, `{"holder":"istiod","transitions":`+transitions+`,"seconds":600,"requester":"o","reason":"transfer"}`)
		harness.Must(t, pause(t.Context(), Operator{Lock: store.Lock("operator", "").Lock, Requester: "x"}))
		if got := store.Snapshot().Annotations[record.NominatedAnnotation]; got != want {
			t.Errorf("nomination of term %s in term 4: %q, want %q", transitions, got, want)
		}
	}
}

// If other writes conflict, a command is written again, up to maxTries and while its context is not done.
func TestOperatorConflicts(t *testing.T) {
	for name, c := range map[string]struct {
		conflicts int
		cancel    bool
		reads     int
		fails     bool
	}{"four": {4, false, 5, false}, "always": {1000, false, maxTries, true}, "context done": {1000, true, 1, true}} {
		store := heldBy("a", 20*time.Second)
		lock := store.Lock("operator", "")
		ctx, cancel := context.WithCancel(t.Context())
		writes := 0
		lock.On(func(r apiserver.Request) apiserver.Fault {
			if r.Verb == locktest.Update {
				if writes++; writes <= c.conflicts {
					if c.cancel {
						cancel()
					}
					return apiserver.Fault{Err: k8sresourcelock.ErrConflict}
				}
			}
			return apiserver.Fault{}
		})
		err := pause(ctx, Operator{Lock: lock.Lock, Requester: "alice"})
		if n := lock.Counts()[locktest.Get]; (err != nil) != c.fails || n != c.reads {
			t.Errorf("%s: %v after %d reads", name, err, n)
		}
		cancel()
	}
}

// A request that is not answered is sent twice, and ends after 10 s.
func TestOperatorCallTimeout(t *testing.T) {
	for _, verb := range []string{locktest.Get, locktest.Update} {
		for hang, want := range map[int]time.Duration{1: 500 * time.Millisecond, 2: 10 * time.Second} {
			synctest.Test(t, func(t *testing.T) {
				lock := heldBy("a", 20*time.Second).Lock("operator", "")
				for range hang {
					lock.FailNext(verb, apiserver.Fault{Hang: true})
				}
				began := time.Now()
				err := pause(t.Context(), Operator{Lock: lock.Lock, Requester: "alice"})
				if took := time.Since(began); (hang == 2) != errors.Is(err, context.DeadlineExceeded) || (hang == 1) != (err == nil) || took != want {
					t.Errorf("%s hangs %d times: %v after %v", verb, hang, err, took)
				}
			})
		}
	}
}

// After the command was written, the lock cannot be read or is deleted.
func TestOperatorAwait_NoLock(t *testing.T) {
	for name, c := range map[string]struct {
		fault  apiserver.Fault
		delete bool
		waits  time.Duration
		took   time.Duration
		want   string
	}{
		"read fails":   {apiserver.Fault{Lose: apiserver.TheRequest}, false, time.Hour, 6100 * time.Millisecond, "reading the lock failed for 5s"},
		"read hangs":   {apiserver.Fault{Hang: true}, false, 8 * time.Second, 8 * time.Second, "the command may still be executed"},
		"lock deleted": {apiserver.Fault{}, true, time.Hour, 0, "the lock was deleted"},
	} {
		synctest.Test(t, func(t *testing.T) {
			store := heldBy("a", 5*time.Second)
			lock := store.Lock("operator", "")
			written := false
			lock.On(func(r apiserver.Request) apiserver.Fault {
				if written {
					if c.delete {
						store.Delete()
					}
					return c.fault
				}
				written = r.Verb == locktest.Update
				return apiserver.Fault{}
			})
			began := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), c.waits)
			defer cancel()
			err := stepDown(ctx, Operator{Lock: lock.Lock, Requester: "alice"})
			if took := time.Since(began); took != c.took || err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: after %v %v", name, took, err)
			}
		})
	}
}

func TestHoldSeconds(t *testing.T) {
	for d, want := range map[time.Duration]int{
		time.Second: 1, time.Second + 1: 2, record.MaxHold: 7 * 24 * 3600, time.Second - 1: 0, record.MaxHold + 1: 0, -time.Hour: 0,
	} {
		got, err := holdSeconds(d)
		if got != want || (err == nil) != (want > 0) {
			t.Errorf("%v: %d, %v", d, got, err)
		}
	}
}

// ledBy returns a lock that an incumbent leader holds.
func ledBy(holder string, transitions int) core.Snapshot {
	return core.Snapshot{
		Exists: true, Content: record.Readable,
		Record:      core.Record{Holder: holder, Transitions: transitions, Lease: 10 * time.Second, Acquired: 1, Renewed: 2},
		Annotations: core.Annotations{Marker: core.Marker{Identity: holder, Transitions: transitions}},
	}
}

func TestExecutable(t *testing.T) {
	request := func(accepted bool) core.Request {
		return core.Request{Identity: "b", Holder: "a", Transitions: 3, Accepted: accepted}
	}
	for name, c := range map[string]struct {
		change func(*core.Snapshot)
		want   error
	}{
		"old marker":   {func(s *core.Snapshot) { s.Annotations.Marker.Transitions = 2 }, ErrNoLeader},
		"accepted":     {func(s *core.Snapshot) { s.Annotations.Request = request(true) }, ErrHandoverUnderWay},
		"not accepted": {func(s *core.Snapshot) { s.Annotations.Request = request(false) }, nil},
		"accepted in another term": {func(s *core.Snapshot) {
			s.Annotations.Request = request(true)
			s.Annotations.Request.Transitions = 2
		}, nil},
	} {
		snap := ledBy("a", 3)
		c.change(&snap)
		if err := executable(snap, "c"); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestProgressOutcome(t *testing.T) {
	request := core.Request{Identity: "b", Requester: "op", Reason: record.ForOperator, Holder: "a", Transitions: 3, Seconds: 10}
	const began = core.Instant(time.Hour)
	pending := func(change func(*core.Request)) core.Snapshot {
		s := ledBy("a", 3)
		s.Annotations.Request = request
		change(&s.Annotations.Request)
		return s
	}
	unchanged := func(*core.Request) {}
	next := func(holder string, change func(*core.Snapshot)) core.Snapshot {
		s := ledBy(holder, 4)
		change(&s)
		return s
	}
	unmarked := func(s *core.Snapshot) { s.Annotations.Marker = core.Marker{} }
	const done = "done"
	for name, c := range map[string]struct {
		snap core.Snapshot
		at   time.Duration // since began
		held bool          // the candidate has held the lock since began
		want string        // error, done or, if empty, neither
	}{
		"not accepted in time":     {pending(unchanged), 10 * time.Second, false, "a did not accept within 10 s"},
		"refused":                  {pending(func(r *core.Request) { r.Refused = "not fit" }), 0, false, "a refused: not fit"},
		"replaced":                 {pending(func(r *core.Request) { r.Requester = "other" }), 0, false, "replaced by a request of other"},
		"replaced, same requester": {pending(func(r *core.Request) { r.Identity = "c" }), 0, false, "replaced by"},
		"removed":                  {pending(func(r *core.Request) { *r = core.Request{} }), 0, false, "replaced by"},
		"leads":                    {next("b", func(*core.Snapshot) {}), 0, false, done},
		"another leads":            {next("c", func(*core.Snapshot) {}), 0, false, "b did not acquire the lock; c holds it"},
		"released":                 {next("", unmarked), 0, false, "the leader released the lock"},
		"settles too long":         {next("b", unmarked), 20*time.Second + 1, true, "b has held the lock for 20s without a marker"},
		"marker of another term":   {next("b", func(s *core.Snapshot) { s.Annotations.Marker.Transitions = 3 }), 0, false, ""},
		"nominated peer": {next("b", func(s *core.Snapshot) {
			unmarked(s)
			s.Annotations.Nominated = core.Nomination{Identity: "b", Transitions: 4}
			s.Record.Renewed = s.Record.Acquired
		}), time.Hour, true, ""},
		"peer leads": {next("b", func(s *core.Snapshot) {
			unmarked(s)
			s.Annotations.Nominated = core.Nomination{Identity: "b", Transitions: 4}
		}), 0, false, done},
	} {
		w := progress{r: request, lease: 10 * time.Second, began: began, changed: began}
		if c.held {
			w.heldSince = began
		}
		ok, err := w.outcome(c.snap, began.After(c.at))
		if ok != (c.want == done) || (err != nil) != (c.want != done && c.want != "") ||
			err != nil && (!errors.Is(err, ErrNotExecuted) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, %v", name, ok, err)
		}
	}
	w := progress{r: core.Request{Holder: "a", Transitions: 3}, began: began}
	if ok, err := w.outcome(next("c", func(*core.Snapshot) {}), began); !ok || err != nil {
		t.Errorf("step-down: %v, %v", ok, err)
	}
}

// The leader may drain for eight leases after its acceptance was seen.
func TestProgressUpdate_Drain(t *testing.T) {
	request := core.Request{Identity: "b", Requester: "op", Holder: "a", Transitions: 3, Seconds: 10}
	const began = core.Instant(time.Hour)
	const lease = 10 * time.Second
	snap := ledBy("a", 3)
	snap.Annotations.Request = request
	w := progress{r: request, lease: lease, began: began, changed: began}
	for _, c := range []struct {
		accepted bool
		at       time.Duration
		fails    bool
	}{{false, 5 * time.Second, false}, {true, 6 * time.Second, false}, {true, 6*time.Second + 8*lease, false}, {true, 6*time.Second + 8*lease + 1, true}} {
		snap.Annotations.Request.Accepted = c.accepted
		snap.Record.Renewed++
		done, err := w.update(snap, nil, began.After(c.at))
		if done || (err != nil) != c.fails || errors.Is(err, ErrNotExecuted) {
			t.Errorf("at %v: %v, %v", c.at, done, err)
		}
	}
}

// A record that is unchanged for its lease has no live holder. The lease counts from a second to an hour.
func TestProgressUpdate_Expired(t *testing.T) {
	const began = core.Instant(time.Hour)
	request := core.Request{Identity: "b", Requester: "op", Holder: "a", Transitions: 3, Seconds: 10, Accepted: true}
	unreachable := errors.New("unreachable")
	for recorded, lease := range map[time.Duration]time.Duration{
		0: time.Second, time.Second: time.Second, 2 * time.Second: 2 * time.Second, time.Hour: time.Hour, 1000 * time.Hour: time.Hour,
	} {
		snap := ledBy("a", 3)
		snap.Annotations.Request = request
		snap.Record.Lease = recorded
		for _, readErr := range []error{nil, unreachable} {
			w := progress{r: request, lease: time.Minute, began: began, changed: began}
			want := readErr
			if want == nil {
				want = ErrNotExecuted
			}
			if _, err := w.update(snap, nil, began); err != nil {
				t.Errorf("lease %v: %v", recorded, err)
			}
			if _, err := w.update(snap, readErr, began.After(lease+time.Second)); err != nil {
				t.Errorf("lease %v, at its end: %v", recorded, err)
			}
			if _, err := w.update(snap, readErr, began.After(lease+time.Second+1)); !errors.Is(err, want) {
				t.Errorf("lease %v, after its end: %v", recorded, err)
			}
		}
	}
}
