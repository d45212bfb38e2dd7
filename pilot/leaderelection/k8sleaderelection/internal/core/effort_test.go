package core

import (
	"testing"
	"time"
)

// Calls of one kind that fail in a row are repeated less often. Calls of other kinds are not affected.
func TestFailed_Count(t *testing.T) {
	c := testConfig()
	long := seconds(-31) // more than two leases ago: an older problem
	for name, x := range map[string]struct {
		op     Op
		result Result
		base   uint64 // version that guarded the call; the earlier conflicts had 20
		last   Instant
		want   Effort
	}{
		"the first":                    {Renew, Unknown, 20, long, Effort{Fails: 1, Next: seconds(0.125), Last: testNow.Mono}},
		"repeated":                     {Renew, Unknown, 20, seconds(-30), Effort{Fails: 6, Conflicts: 2, Base: 20, Next: seconds(2), Last: testNow.Mono}},
		"first refusal":                {Renew, Refused, 20, long, Effort{Fails: 1, Next: seconds(0.125), Last: testNow.Mono}},
		"a conflict":                   {Renew, Conflict, 20, long, Effort{Conflicts: 1, Base: 20, Last: testNow.Mono}},
		"conflict after a pause":       {Renew, Conflict, 21, seconds(-5), Effort{Fails: 5, Conflicts: 1, Base: 21, Last: testNow.Mono}},
		"a second conflict":            {Renew, Conflict, 21, seconds(-4), Effort{Fails: 5, Conflicts: 3, Base: 21, Next: seconds(0.25), Last: testNow.Mono}},
		"conflict at the same version": {Renew, Conflict, 20, seconds(-5), Effort{Fails: 6, Conflicts: 2, Base: 20, Next: seconds(2), Last: testNow.Mono}},
		"read with a conflict":         {Read, Conflict, 20, long, Effort{Fails: 5, Conflicts: 2, Base: 20, Next: seconds(7), Last: long}},
	} {
		s := ours(seenAt(0, lock("mine")), Leading)
		s.Effort.Writes = Effort{Fails: 5, Conflicts: 2, Base: 20, Next: seconds(7), Last: x.last}
		s.Effort.Reads.Last = testNow.Mono
		s = c.failed(s, Call{Op: x.op, Base: x.base}, reply(0, x.result, Snapshot{}))
		if s.Effort.Writes != x.want {
			t.Errorf("%s: %+v", name, s.Effort.Writes)
		}
		if read := x.op == Read; (s.Effort.Reads.Fails == 1) != read {
			t.Errorf("%s: reads %+v", name, s.Effort.Reads)
		}
	}
	s := seenAt(0, lock("lower, hands over"))
	s = c.failed(s, Call{Op: SendRequest}, reply(0, Unknown, Snapshot{}))
	if s.Effort.Requests.Fails != 1 || s.Effort.Writes.Fails != 0 {
		t.Errorf("a request: %+v", s)
	}
	s.Requesting.NotBefore = seconds(9)
	if s = c.failed(s, Call{Op: SendRequest}, reply(0, Conflict, Snapshot{})); s.Requesting.NotBefore != 0 || s.Effort.Requests.Next != 0 {
		t.Errorf("a request that met a renewal is delayed: %+v", s)
	}
	s.Requesting.NotBefore = seconds(9)
	if s = c.failed(s, Call{Op: SendRequest, Base: 1}, reply(0, Conflict, Snapshot{})); s.Requesting.NotBefore != seconds(9) || s.Effort.Requests.Next != seconds(0.125) {
		t.Errorf("a request with repeated conflicts: %+v", s)
	}
	s = ours(seenAt(0, lock("mine")), Leading)
	s.Requesting.NotBefore = seconds(9)
	if s = c.failed(s, Call{Op: Renew}, reply(0, Conflict, Snapshot{})); s.Requesting.NotBefore != seconds(9) {
		t.Errorf("conflict of a renewal: %+v", s)
	}
}

// Pauses are bounded by RetryPeriod for reads and for a term that could be lost, otherwise by the lease. Jitter shortens them by up to a quarter.
func TestPause(t *testing.T) {
	c := testConfig()
	const ms = time.Millisecond
	for name, x := range map[string]struct {
		phase  Phase
		op     Op
		jitter uint8
		seen   float64 // last change of the record
		want   []time.Duration
	}{
		"reads":                   {Following, Read, 0, 0, []time.Duration{125 * ms, 250 * ms, 500 * ms, 1000 * ms, 2000 * ms, 2000 * ms}},
		"a holder's writes":       {Leading, Renew, 0, 0, []time.Duration{125 * ms, 500 * ms, 1000 * ms, 2000 * ms, 2000 * ms}},
		"a follower's writes":     {Following, Acquire, 0, 0, []time.Duration{125 * ms, 500 * ms, 2000 * ms, 8000 * ms, 15000 * ms, 15000 * ms}},
		"shortened by an eighth":  {Following, Acquire, 128, 0, []time.Duration{125*ms - 125*ms/8, 500*ms - 500*ms/8}},
		"settling":                {Settling, Renew, 0, 14.999, []time.Duration{125 * ms, 500 * ms, 1000 * ms, 2000 * ms, 2000 * ms}},
		"settling, lease expired": {Settling, Renew, 0, 15, []time.Duration{125 * ms, 500 * ms, 2000 * ms, 8000 * ms, 15000 * ms}},
	} {
		for i, want := range x.want {
			s := State{Phase: x.phase, Since: Since{Record: seconds(-x.seen)}}
			if got := c.pause(s, x.op, uint8(i+1), Input{Now: testNow, Jitter: x.jitter}); got != want {
				t.Errorf("%s: after %d failures %v, want %v", name, i+1, got, want)
			}
		}
	}
	// Retry-After counts up to the longest pause.
	for phase, x := range map[Phase]struct{ wish, want float64 }{Leading: {60, 2}, Following: {60, 15}, Settling: {1, 1}} {
		s := State{Phase: phase, Known: Current, Watch: true, Since: Since{Record: testNow.Mono}}
		in := reply(0, Refused, Snapshot{})
		in.RetryAfter = time.Duration(x.wish) * time.Second
		if got := c.failed(s, Call{Op: Renew}, in).Effort.Writes.Next; got != seconds(x.want) {
			t.Errorf("%s: Retry-After %vs: %v", phase, x.wish, testNow.Mono.Until(got))
		}
		if in.Result = Unknown; c.failed(s, Call{Op: Renew}, in).Effort.Writes.Next != seconds(0.125) {
			t.Errorf("%s: Retry-After without a refusal counts", phase)
		}
	}
}
