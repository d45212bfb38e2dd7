package k8sleaderelection

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock/locktest"
)

// Each cause is told once in a spell, eight at most; then the topic is quiet for a minute.
func TestHowOftenATroubleIsTold(t *testing.T) {
	now := core.Instant(time.Hour)
	ts := troubles{now: func() core.Instant { return now }}
	begins := func(topic, cause string, want bool) {
		t.Helper()
		if got := ts.begin(topic, cause); got != want {
			t.Errorf("%s, %s is told %v", topic, cause, got)
		}
	}
	for i := range maxCauses {
		begins(topicRead, fmt.Sprint(i), true)
		begins(topicRead, fmt.Sprint(i), false)
	}
	begins(topicRead, "one more", false)
	if !ts.end(topicRead) || ts.end(topicRead) || ts.end(topicAsk) {
		t.Error("the end of a trouble is told once, and of none never")
	}
	now = now.After(quietFor - 1)
	begins(topicRead, "0", false)
	now = now.After(1)
	begins(topicRead, "0", true)
	begins(topicRecord, "0", true)
	ts.end(topicRecord)
	begins(topicRecord, "0", true) // what a record says is of account at once
}

func TestWhetherATroubleIsNews(t *testing.T) {
	r, _, log := reporting(t)
	if !r.warnOnce(topicAsk, "cause", "message") || r.warnOnce(topicAsk, "cause", "message") || strings.Count(log.String(), "msg=message") != 1 {
		t.Errorf("it is news once:\n%s", log)
	}
}

// What an API server says is told in words that help, by what the call was for, and so is its end.
func TestWhatAServersRefusalTells(t *testing.T) {
	locks := schema.GroupResource{Resource: "locks"}
	says := func(text string) error {
		err := apierrors.NewForbidden(locks, "x", nil)
		err.ErrStatus.Message = text
		return err
	}
	terminating := apierrors.NewForbidden(locks, "x", nil)
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for name, err := range map[string]error{
		"namespace-terminating":  terminating,
		"quota":                  says("exceeded quota: few"),
		"admission-policy":       says("ValidatingAdmissionPolicy 'no' denied request"),
		"admission-webhook":      says("admission webhook denied the request"),
		"admission-webhook-down": says("failed calling webhook: no endpoints"),
		"store-full":             apierrors.NewInternalError(errors.New("mvcc: database space exceeded")),
		"too-many-requests":      apierrors.NewTooManyRequests("later", 1),
		"forbidden":              apierrors.NewForbidden(locks, "x", nil),
		"unauthorized":           apierrors.NewUnauthorized("who"),
		"namespace-missing":      apierrors.NewNotFound(locks, "x"),
		"error InternalError":    apierrors.NewInternalError(errors.New("odd")),
	} {
		if got := causeOf(err); got.name != name || got.message == "" {
			t.Errorf("%v is taken for %q", err, got.name)
		}
	}
	for op, end := range map[core.Op]string{
		core.Read: "the lock can be read again", core.Renew: "the lock can be written again", core.Acquire: "the lock can be written again",
		core.SendRequest: "requests to hand over can be written again",
	} {
		r, _, log := reporting(t)
		r.callFailed(call{op: op, err: says("exceeded quota: few")})
		r.callFailed(call{op: op, err: says("exceeded quota: few")})
		if strings.Count(log.String(), "\n") != 1 || !strings.Contains(log.String(), "cause=quota") || !strings.Contains(log.String(), "leaves no room") {
			t.Errorf("%v:\n%s", op, log)
		}
		log.Reset()
		r.callSucceeded(call{op: op})
		r.callSucceeded(call{op: op})
		if strings.Count(log.String(), "\n") != 1 || !strings.Contains(log.String(), end) {
			t.Errorf("%v succeeds, want %q:\n%s", op, end, log)
		}
		r, _, log = reporting(t)
		r.callFailed(call{op: op, err: errors.New("no route")})
		if strings.Count(log.String(), "\n") != 1 || !strings.Contains(log.String(), "a call for the lock failed") || strings.Contains(log.String(), "cause=") {
			t.Errorf("%v without an answer:\n%s", op, log)
		}
	}
}

// What a subscription tells becomes an input, and what is in its way is logged.
func TestWhatNewsBecome(t *testing.T) {
	store := locktest.NewStore(locktest.ConfigMap)
	for name, c := range map[string]struct {
		news  k8sresourcelock.News
		watch bool // there was one
		want  core.Input
		log   string
	}{
		"up":                   {k8sresourcelock.News{Kind: k8sresourcelock.Up}, false, core.Input{Kind: core.Watching}, ""},
		"up after a gap":       {k8sresourcelock.News{Kind: k8sresourcelock.Up, Gap: true}, false, core.Input{Kind: core.Watching, Gap: true}, ""},
		"down":                 {k8sresourcelock.News{Kind: k8sresourcelock.Down}, true, core.Input{Kind: core.Unwatched}, ""},
		"down with an error":   {k8sresourcelock.News{Kind: k8sresourcelock.Down, Err: errors.New("x")}, true, core.Input{Kind: core.Unwatched}, "cannot be watched"},
		"never up":             {k8sresourcelock.News{Kind: k8sresourcelock.Down, Err: errors.New("x")}, false, core.Input{}, "cannot be watched"},
		"what cannot be taken": {k8sresourcelock.News{Kind: k8sresourcelock.Changed, Snapshot: k8sresourcelock.Snapshot{Exists: true, ResourceVersion: "1a"}}, true, core.Input{}, "1a"},
	} {
		r, _, log := reporting(t)
		l := stillLoop(t, store.Lock("a", "stable").Plain())
		l.report, l.state.Watch = r, c.watch
		ev := &event{news: &c.news}
		if l.decodeNews(ev); ev.in != c.want || (log.Len() > 0) != (c.log != "") || !strings.Contains(log.String(), c.log) {
			t.Errorf("%s: %+v, log %q", name, ev.in, log)
		}
	}
	r, _, log := reporting(t)
	l := stillLoop(t, store.Lock("a", "stable").Plain())
	l.report = r
	l.report.watching(errors.New("x"))
	if l.decodeNews(&event{news: &k8sresourcelock.News{Kind: k8sresourcelock.Down}}); strings.Contains(log.String(), "watched again") {
		t.Errorf("a watch is down: %s", log)
	}
	if l.decodeNews(&event{news: &k8sresourcelock.News{Kind: k8sresourcelock.Up}}); !strings.Contains(log.String(), "the lock is being watched again") {
		t.Errorf("a watch is up: %s", log)
	}
}

// endsAtOnce is a gate that ends what its loop hears from as soon as it is told of anything.
type endsAtOnce struct {
	told int
	end  func()
}

func (e *endsAtOnce) Set(Term, Validity) { e.told++; e.end() }
func (*endsAtOnce) Drain()               {}

// Of what a subscription has in store, nothing is taken in once one piece of it has ended it.
func TestNewsEndWithTheirSubscription(t *testing.T) {
	for name, end := range map[string]func(*loop){
		"nothing":      func(*loop) {},
		"the election": func(l *loop) { l.state.Phase = core.Done },
	} {
		synctest.Test(t, func(t *testing.T) {
			store := locktest.NewStore(locktest.Lease)
			store.ShareWatches()
			gate := &endsAtOnce{end: func() {}}
			l := stillLoop(t, store.Lock("a", "stable").Locker, func(c *LeaderElectionConfig) {
				c.Gate = gate
				c.Clock = NewClock(func() int64 { return time.Now().UnixNano() })
			})
			l.takeNews() // there is none
			l.startWatching()
			synctest.Wait()
			for n := range 3 {
				store.Put("x", k8sresourcelock.LeaderElectionRecord{HolderIdentity: "x", LeaseDurationSeconds: 30, LeaderTransitions: n})
				synctest.Wait()
			}
			gate.end = func() { end(l) }
			l.takeNews()
			if name == "nothing" && gate.told < 3 || name != "nothing" && gate.told != 1 {
				t.Errorf("%s has ended: %d pieces were taken in", name, gate.told)
			}
			l.watch.End()
			l.timer.Stop()
			l.helpers.Wait()
		})
	}
}

// Whoever asks, before or after the end, hears when the last function has returned.
func TestWhenNobodyIsLeft(t *testing.T) {
	l := stillLoop(t, locktest.NewStore(locktest.ConfigMap).Lock("a", "stable").Locker)
	closed := func(c <-chan struct{}) bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
	before := &term{l: l}
	first, second := before.drained(), before.drained()
	if closed(first) || first != second {
		t.Error("one is there, and it is said that none is")
	}
	if before.end(); !closed(first) || !closed(before.drained()) {
		t.Error("none is there, and it is not said")
	}
	late := &term{l: l}
	if late.end(); !closed(late.drained()) {
		t.Error("asked after the end, it is not said")
	}
}

// A term waits for all of its functions, whichever returns first; a panic ends the process now.
func TestATermWaitsForAllButAPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := stillLoop(t, locktest.NewStore(locktest.ConfigMap).Lock("a", "stable").Locker)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		returned := false
		slow := func(context.Context) error { <-time.After(time.Second); returned = true; return nil }
		quick := func(context.Context) error { return nil }
		if (&term{l: l}).run(ended, []func(context.Context) error{slow, quick}); !returned || len(l.events) != 1 {
			t.Errorf("the term has ended, its slow function %v, events %d", returned, len(l.events))
		}
		defer func() {
			if p := recover(); p != "broken" || len(l.events) != 1 {
				t.Errorf("a panic became %v, events %d", p, len(l.events))
			}
		}()
		(&term{l: l}).run(ended, []func(context.Context) error{func(context.Context) error { panic("broken") }})
	})
}

// The terms of a lock with no more than Interface are of one object, by its UID.
func TestATermOfAPlainLockNamesIt(t *testing.T) {
	p := versioned(locktest.NewStore(locktest.ConfigMap).Lock("a", "stable").Plain())
	snap, err := p.Write(t.Context(), k8sresourcelock.Snapshot{}, k8sresourcelock.LeaderElectionRecord{HolderIdentity: "a", LeaseDurationSeconds: 30}, nil)
	if uid := snap.UID; err != nil || uid != "plain" {
		t.Errorf("UID %q, %v", uid, err)
	}
}
