package k8sresourcelock

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// Part is one object of a MultiLock and its version. One that is not there has no UID, and
// the last version that was known.
type Part struct {
	UID     types.UID
	Version uint64
	// Present: the record that the MultiLock shows is in this object, too, in this term. A
	// holder that stands in one of the two must not act.
	Present bool
}

// sums hashes records to be compared within this process.
var sums = maphash.MakeSeed()

// coreSnapshot is as much of an object as the core decides on.
func coreSnapshot(s Snapshot) (core.Snapshot, error) {
	out := core.Snapshot{Exists: s.Exists, UID: core.UID{First: string(s.UID)}, Sum: maphash.Bytes(sums, s.Raw)}
	if s.ResourceVersion != "" {
		version, err := strconv.ParseUint(s.ResourceVersion, 10, 64)
		if err != nil {
			return core.Snapshot{}, fmt.Errorf("resourceVersion %q is not a decimal number: %w", s.ResourceVersion, err)
		}
		out.Version = version
	}
	switch {
	case s.Unreadable != nil:
		out.Content = core.Unreadable
	case s.Raw != nil:
		out.Content = core.Readable
	}
	out.Record, out.Annotations = coreRecord(s.Record), coreAnnotations(s.Annotations)
	if note := s.Annotations[MultiLockAnnotation]; namesTerm(note, s.Record) {
		out.Annotations.Needs = core.NeedsBoth{Identity: s.Record.HolderIdentity, Transitions: s.Record.LeaderTransitions, Other: otherUID(note)}
	}
	return out, nil
}

// coreAnnotations has requests and holds as they are written, to be compared: what they say is the
// elector's to read.
func coreAnnotations(notes map[string]string) core.Annotations {
	return core.Annotations{
		Nominated: core.Nomination{Identity: notes[NominatedAnnotation]},
		Request:   core.Request{Note: notes[HandoverRequestAnnotation]},
		Hold:      core.Hold{Note: notes[HoldAnnotation]},
	}
}

func coreRecord(r LeaderElectionRecord) core.Record {
	return core.Record{
		Holder: r.HolderIdentity, Transitions: r.LeaderTransitions,
		Acquired: core.Stamp(r.AcquireTime.UnixMicro()), Renewed: core.Stamp(r.RenewTime.UnixMicro()),
	}
}

// corePair is coreSnapshot of both.
func corePair(p Pair) (core.Pair, error) {
	primary, err := coreSnapshot(p.Primary)
	secondary, err2 := coreSnapshot(p.Secondary)
	return core.Pair{Primary: primary, Secondary: secondary}, errors.Join(err, err2)
}

// formatNeeds is the note's form.
func formatNeeds(n core.NeedsBoth) string {
	if n == (core.NeedsBoth{}) {
		return ""
	}
	return strings.TrimSpace(fmt.Sprintf("v1 %s %d %s", n.Identity, n.Transitions, n.Other))
}

// namesTerm reports whether a note of the form "v1 identity transitions …" is about the
// record's term.
func namesTerm(note string, r LeaderElectionRecord) bool {
	words := strings.Split(note, " ")
	return len(words) >= 3 && words[0] == "v1" && words[1] == r.HolderIdentity && words[2] == strconv.Itoa(r.LeaderTransitions)
}

// otherUID is the UID that formatNeeds has put into a note; empty when there is none.
func otherUID(note string) string {
	if words := strings.Split(note, " "); len(words) >= 4 {
		return words[3]
	}
	return ""
}

// combine shows two objects as one lock, as the core decides. UID and ResourceVersion are those of
// the secondary, which a fence goes by. Raw is made of both, so that a change of either restarts
// the lease.
func combine(sight core.PairView, objects Pair, self string) Snapshot {
	parts := [2]Part{
		{UID: types.UID(sight.Primary.UID.First), Version: sight.Primary.Version},
		{UID: types.UID(sight.Secondary.UID.First), Version: sight.Secondary.Version},
	}
	h, both := sight.Select(self)
	is, one := sight.Combine(h, both), objects.half(h)
	if !is.Exists {
		return Snapshot{ResourceVersion: objects.Secondary.ResourceVersion, Parts: parts}
	}
	parts[core.Primary].Present, parts[core.Secondary].Present = is.Halves&core.InFirst != 0, is.Halves&core.InSecond != 0
	out := Snapshot{
		Exists: true, UID: objects.Secondary.UID, ResourceVersion: objects.Secondary.ResourceVersion, Parts: parts,
		Record: one.Record, Annotations: withOthers(withAnnotation(one.Annotations, MultiLockAnnotation, ""), is.Annotations),
		Floor:  is.Floor,
		Object: &objects,
	}
	if is.Content == core.Unreadable {
		out.Unreadable, out.Record = errors.Join(objects.Primary.Unreadable, objects.Secondary.Unreadable), LeaderElectionRecord{}
	}
	if one.Raw != nil {
		out.Raw = rawOf(objects)
	}
	return out
}

// withOthers is notes with the request and the hold that the core has chosen.
func withOthers(notes map[string]string, chosen core.Annotations) map[string]string {
	notes = withAnnotation(notes, HandoverRequestAnnotation, chosen.Request.Note)
	return withAnnotation(notes, HoldAnnotation, chosen.Hold.Note)
}

// withAnnotation is notes with one more; an empty value leaves it out.
func withAnnotation(notes map[string]string, key, value string) map[string]string {
	notes = maps.Clone(notes)
	if notes == nil {
		notes = map[string]string{}
	}
	notes[key] = value
	if value == "" {
		delete(notes, key)
	}
	return notes
}

// rawOf is never nil, and differs when either object or its record does.
func rawOf(objects Pair) []byte {
	var raw []byte
	for _, half := range []Snapshot{objects.Primary, objects.Secondary} {
		for _, part := range [][]byte{[]byte(half.UID), half.Raw} {
			raw = binary.AppendUvarint(raw, uint64(len(part)))
			raw = append(raw, part...)
		}
	}
	return raw
}

func sameRecord(a, b LeaderElectionRecord) bool {
	times := a.AcquireTime.Equal(&b.AcquireTime) && a.RenewTime.Equal(&b.RenewTime)
	a.AcquireTime, a.RenewTime = b.AcquireTime, b.RenewTime
	return times && a == b
}
