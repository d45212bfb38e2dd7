package elections

import (
	"strings"
	"testing"
	"time"

	"incumbent.dev/incumbent/internal/testutil/lives"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// Requests that no elector of this test wrote, by hand beside the record of a leader.
func TestRequestsThatAreNotHeeded(t *testing.T) {
	t.Parallel()
	valid := handoverRequest{
		Identity: "stranger", Key: "canary", Reason: "default-revision", Requester: "stranger",
		Holder: "a", Transitions: 0, Seconds: 600,
	}
	with := func(change func(*handoverRequest)) string {
		r := valid
		change(&r)
		return r.json()
	}
	for name, request := range map[string]string{
		"without rank":            with(func(r *handoverRequest) { r.Key = "other" }),
		"of the leader's rank":    with(func(r *handoverRequest) { r.Key = "stable" }),
		"without a key":           with(func(r *handoverRequest) { r.Key = "" }),
		"of a later term":         with(func(r *handoverRequest) { r.Transitions = 1 }),
		"of another's term":       with(func(r *handoverRequest) { r.Holder = "x" }),
		"run out":                 with(func(r *handoverRequest) { r.Seconds = 0 }),
		"run out before it began": with(func(r *handoverRequest) { r.Seconds = -600 }),
		"of nobody":               with(func(r *handoverRequest) { r.Identity = "" }),
		"of no possible process":  with(func(r *handoverRequest) { r.Identity = "a b" }),
		"of the leader itself":    with(func(r *handoverRequest) { r.Identity = "a" }),
		"unreadable":              `{"identity":"stranger",`,
		"accepted, of a past term": with(func(r *handoverRequest) {
			r.Accepted, r.Transitions, r.Holder = true, -1, "x"
		}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, leaderelection.LeaseLock)
			c := s.chronicle(t)
			s.setDefault(t, "canary")
			a := s.enterRanked(t, "a", "stable", brisk)
			eventually(t, "a leads", a.Live)
			s.note(t, requestNote, request)
			c.renewals(t, 4)
			if !strings.Contains(request, `"accepted":true`) {
				c.never(t, "accepts")
			}
			c.never(t, "nominated")
			if len(a.Spans()) != 1 || !a.Live() {
				t.Errorf("a ran %v", a.Spans())
			}
		})
	}
	t.Run("and one that is", func(t *testing.T) {
		t.Parallel()
		s := newStage(t, leaderelection.LeaseLock)
		c := s.chronicle(t)
		s.setDefault(t, "canary")
		a := s.enterRanked(t, "a", "stable", brisk)
		eventually(t, "a leads", a.Live)
		s.note(t, requestNote, valid.json())
		c.await(t, "stranger 1, nominated")
		lives.Apart(t, a)
	})
}

// A refusal is written with its reason.
func TestRefusalSaysWhy(t *testing.T) {
	t.Parallel()
	s := newStage(t, leaderelection.ConfigMapLock)
	c := s.chronicle(t)
	s.setDefault(t, "stable")
	a := s.enterRanked(t, "a", "stable", brisk)
	eventually(t, "a leads", a.Live)
	s.note(t, requestNote, handoverRequest{Identity: "x", Key: "canary", Holder: "a", Seconds: 600}.json())
	c.await(t, "a 0, leads, refuses x")
	snap, err := s.observer(t).Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if why := requestIn(snap.Notes).Refused; !strings.Contains(why, "does not outrank") {
		t.Errorf("refused because %q", why)
	}
}

// A leader of ours was overwritten by an istiod, which leaves marker and request on
// the object: neither counts beside its record.
func TestWhatADisplacedLeaderLeavesBehind(t *testing.T) {
	both(t, func(t *testing.T, s *stage) {
		a, b, c := s.pair(t, brisk)
		a.wire.mute(webhooks)
		s.setDefault(t, "canary")
		c.await(t, "a 0, leads, refuses b")
		preempting := b.wire.hold(taking)
		s.put(t, record{"istiod", "stable", int(briskLease / time.Second), 1})
		preempting.await(t)
		a.wire.unmute(webhooks)
		eventually(t, "a knows", func() bool { return a.Status().Default == "canary" })
		preempting.letGo()
		eventually(t, "b leads", b.Live)
		displaced := c.firstSeenButRequests(t, "istiod 1, marker of a 0 handover")
		b.notBefore(t, displaced.Add(briskLease-seenApart), "istiod's lease and a's evidence had run out")
		b.after(t, a)
		c.never(t, "istiod 1, leads")
		c.expectButRequests(t, "a 0, leads", "istiod 1, marker of a 0 handover", "b 2, marker of a 0 handover", "b 2, leads")
		lives.Apart(t, a, b)
	})
}

// The istiod has released meanwhile: the marker says that one of ours may still act, and
// its finder settles although the lock is free.
func TestMarkerBesideAFreeLock(t *testing.T) {
	both(t, func(t *testing.T, s *stage) {
		c := s.chronicle(t)
		s.put(t, record{"", "", 1, 7})
		s.note(t, markerNote, "v1 gone 5 handover")
		s.setDefault(t, "stable")
		a := s.enterRanked(t, "a", "stable", brisk)
		eventually(t, "a leads", a.Live)
		a.notBefore(t, c.firstSeen(t, "nobody 7, marker of gone 5 handover").Add(briskLease-seenApart), "the evidence had run out")
		c.expect(t, "nobody 7", "nobody 7, marker of gone 5 handover", "a 8, marker of gone 5 handover", "a 8, leads")
	})
}

// A request of long ago is found again when the lock happens to be in the term that it
// was addressed to: it was somebody else's term, and is gone with the first own write.
func TestOldRequestIsFoundLater(t *testing.T) {
	t.Parallel()
	old := handoverRequest{
		Identity: "b", Key: "canary", Reason: "default-revision", Requester: "b",
		Holder: "a", Transitions: 4, Seconds: 3600, Accepted: true,
	}.json()
	for name, prepare := range map[string]func(t *testing.T, s *stage){
		"at a free lock": func(t *testing.T, s *stage) { s.put(t, record{"", "", 1, 3}) },
		"at one's own": func(t *testing.T, s *stage) {
			s.put(t, record{"a", "stable", int(briskLease / time.Second), 4})
			s.note(t, markerNote, "v1 a 4 handover")
		},
	} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, s *stage) {
				prepare(t, s)
				s.note(t, requestNote, old)
				c := s.chronicle(t)
				s.setDefault(t, "canary")
				a := s.enterRanked(t, "a", "stable", brisk)
				eventually(t, "a leads", a.Live)
				c.renewals(t, 3)
				if len(a.Spans()) != 1 || !a.Live() {
					t.Errorf("a ran %v", a.Spans())
				}
				snap, err := s.observer(t).Read(t.Context())
				if err != nil || snap.Notes[k8sresourcelock.HandoverRequestAnnotation] != "" {
					t.Errorf("the old request still stands: %v (%v)", snap.Notes, err)
				}
				c.never(t, "nominated")
			})
		})
	}
}
