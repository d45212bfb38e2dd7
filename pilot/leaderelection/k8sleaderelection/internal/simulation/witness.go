package simulation

import (
	"strings"
	"time"

	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// witness records what a process was shown. It is independent of the core.
type witness struct {
	snap            core.Snapshot
	known           bool
	recordAt        core.Instant // last change of the record
	defaultRevision core.DefaultRevision
	forged          bool // a nomination appeared after the record, or after a marker of the record
	unfit           bool
	asked           bool // it has sent a request

	request   core.Request // as the challenger wrote it
	refused   bool
	requestAt core.Instant
	holdAt    core.Instant
	duplicate bool // another process wrote in its name
	ousted    bool // another process acquired the lock from it
	oustedAt  core.Instant
	oustedKey string

	named  bool // a coordinator has named a holder
	absent bool // it was informed that the coordinator is gone
	alone  bool // it acquired the lock without a coordinator, or the marker of the leader has that, and no coordinator wrote since
}

// shown records a view that is newer than all before.
func (t *witness) shown(p *process, s core.Snapshot, now core.Instant, was core.Phase) {
	old := t.snap
	if !t.known || old.Exists != s.Exists || old.UID != s.UID || old.Sum != s.Sum || old.Content != s.Content {
		t.recordAt = now
	}
	sameRecord := t.known && old.Exists == s.Exists && old.UID == s.UID && old.Record == s.Record
	marked := names(old.Annotations.Marker, old.Record) && !old.Annotations.Nominated.Uncounted
	t.forged = sameRecord && (t.forged || marked || old.Annotations.Nominated.Identity != s.Annotations.Nominated.Identity)
	mine := old.Exists && old.Record.Holder == p.id && s.Exists && s.Record.Holder == p.id && old.UID == s.UID
	t.duplicate = s.Exists && s.Record.Holder == p.id && !p.stamped(s.Record) && (t.duplicate || mine && old.Sum != s.Sum)
	held := p.acked != nil && old.Exists && old.Record.Holder == p.id && writeOf(old.Record) == p.newestWrite
	if held && s.Exists && s.Content == record.Readable && s.Record.Holder != "" && s.Record.Holder != p.id && s.Annotations.Nominated.Identity == "" {
		t.ousted, t.oustedAt, t.oustedKey = true, now, ""
		if was != core.Following {
			t.oustedKey = s.Record.Key
		}
	}
	byCoordinator := isNominated(s) && s.Annotations.Nominated.Uncounted
	switch {
	case byCoordinator, s.Preferred != "" && s.Preferred != old.Preferred, t.known && s.Strategy && !old.Strategy:
		t.alone = false
	case names(s.Annotations.Marker, s.Record) && !isNominated(s) && s.Annotations.Marker.Uncoordinated && !(s.Record.Holder == p.id && p.stamped(s.Record)):
		t.alone = true
	case addressed(s) && strings.Contains(s.Annotations.Request.Refused, "coordinator"):
		t.alone = false
	}
	t.named = t.named || byCoordinator
	r := s.Annotations.Request
	refused := r.Refused != ""
	r.Accepted, r.Refused = false, ""
	if r != t.request || t.refused && !refused {
		t.requestAt = now
	}
	t.request, t.refused = r, refused
	if s.Annotations.Hold != old.Annotations.Hold {
		t.holdAt = now
	}
	t.snap, t.known = s, true
}

func (t *witness) observe(in core.Input) {
	switch in.Kind {
	case core.DefaultChanged:
		if in.Default != t.defaultRevision {
			t.ousted = false
		}
		t.defaultRevision = in.Default
	case core.Fitness:
		t.unfit = in.Unfit
	case core.Coordinator:
		t.absent = in.Absent
		t.alone = t.alone && in.Absent
	case core.Tick, core.Seen, core.Replied, core.Watching, core.Unwatched, core.Drained, core.StepDown, core.Stop, core.Bar:
	}
}

// uncoordinated reports whether the process acts as without a coordinator.
func (t *witness) uncoordinated() bool { return t.absent || t.alone }

// pending reports whether a request to the present term has not expired.
func (t *witness) pending(now core.Instant) bool {
	r := t.snap.Annotations.Request
	return addressed(t.snap) && (r.Accepted || r.Refused == "" && now < t.runsOut())
}

func (t *witness) runsOut() core.Instant {
	return t.requestAt.After(time.Duration(t.snap.Annotations.Request.Seconds) * time.Second)
}

// paused reports whether a hold is in effect.
func (t *witness) paused(now core.Instant) bool {
	h := t.snap.Annotations.Hold
	return t.snap.Exists && h.Holder != "" && h.Holder == t.snap.Record.Holder && h.Transitions == t.snap.Record.Transitions &&
		now < t.holdAt.After(time.Duration(h.Seconds)*time.Second)
}

// addressed reports whether the request is addressed to the recorded term.
func addressed(s core.Snapshot) bool {
	r := s.Annotations.Request
	return s.Exists && s.Content == record.Readable && r.Holder != "" && r.Holder == s.Record.Holder &&
		r.Transitions == s.Record.Transitions && r.Identity != r.Holder && (r.Identity != "" || r.Reason == record.ForOperator)
}
