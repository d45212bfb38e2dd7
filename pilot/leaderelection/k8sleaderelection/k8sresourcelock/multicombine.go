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

// Part is one object of a MultiLock.
type Part struct {
	// UID is the UID of the object. It is empty if the object does not exist. Version is the last known version.
	UID     types.UID
	Version uint64
	// Present reports whether this object has the record of the MultiLock, in the same term. A holder that is
	// named by one object only must not act.
	Present bool
}

// sums is the seed of record hashes. They are compared only within this process.
var sums = maphash.MakeSeed()

// coreSnapshot converts what the core needs of a Snapshot.
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
	out.Annotations.Nominated.Transitions = s.Record.LeaderTransitions
	if namesTerm(s.Annotations[MarkerAnnotation], s.Record) {
		out.Annotations.Marker = core.Marker{Identity: s.Record.HolderIdentity, Transitions: s.Record.LeaderTransitions}
	}
	if needs := s.Annotations[MultiLockAnnotation]; namesTerm(needs, s.Record) {
		out.Annotations.Needs = core.NeedsBoth{Identity: s.Record.HolderIdentity, Transitions: s.Record.LeaderTransitions, Other: otherUID(needs)}
	}
	return out, nil
}

// coreAnnotations copies requests and holds without decoding them, because they are only compared here.
func coreAnnotations(annotations map[string]string) core.Annotations {
	return core.Annotations{
		Nominated: core.Nomination{Identity: annotations[NominatedAnnotation]},
		Request:   core.Request{Note: annotations[HandoverRequestAnnotation]},
		Hold:      core.Hold{Note: annotations[HoldAnnotation]},
	}
}

func coreRecord(r LeaderElectionRecord) core.Record {
	return core.Record{
		Holder: r.HolderIdentity, Transitions: r.LeaderTransitions,
		Acquired: core.Stamp(r.AcquireTime.UnixMicro()), Renewed: core.Stamp(r.RenewTime.UnixMicro()),
	}
}

// corePair converts both objects.
func corePair(p Pair) (core.Pair, error) {
	primary, err := coreSnapshot(p.Primary)
	secondary, err2 := coreSnapshot(p.Secondary)
	return core.Pair{Primary: primary, Secondary: secondary}, errors.Join(err, err2)
}

// formatNeeds returns the value of MultiLockAnnotation.
func formatNeeds(n core.NeedsBoth) string {
	if n == (core.NeedsBoth{}) {
		return ""
	}
	return strings.TrimSpace(fmt.Sprintf("v1 %s %d %s", n.Identity, n.Transitions, n.Other))
}

// namesTerm reports whether an annotation "v1 <identity> <transitions> …" names the term of the record.
func namesTerm(annotation string, r LeaderElectionRecord) bool {
	words := strings.Split(annotation, " ")
	return len(words) >= 3 && words[0] == "v1" && words[1] == r.HolderIdentity && words[2] == strconv.Itoa(r.LeaderTransitions)
}

// otherUID returns the UID of the other object in a MultiLockAnnotation, or "".
func otherUID(annotation string) string {
	if words := strings.Split(annotation, " "); len(words) >= 4 {
		return words[3]
	}
	return ""
}

// combine returns both objects as one lock, as decided by the core. UID and ResourceVersion come from the
// secondary, because a fence uses the secondary. Raw contains both records, so that a change of either restarts
// the lease.
func combine(view core.PairView, objects Pair, self string) Snapshot {
	parts := [2]Part{
		{UID: types.UID(view.Primary.UID.First), Version: view.Primary.Version},
		{UID: types.UID(view.Secondary.UID.First), Version: view.Secondary.Version},
	}
	h, both := view.Select(self)
	combined, selected := view.Combine(h, both), objects.half(h)
	if !combined.Exists {
		return Snapshot{ResourceVersion: objects.Secondary.ResourceVersion, Parts: parts}
	}
	parts[core.Primary].Present, parts[core.Secondary].Present = combined.Halves&core.InFirst != 0, combined.Halves&core.InSecond != 0
	out := Snapshot{
		Exists: true, UID: objects.Secondary.UID, ResourceVersion: objects.Secondary.ResourceVersion, Parts: parts,
		Record: selected.Record, Annotations: withRequestAndHold(withAnnotation(selected.Annotations, MultiLockAnnotation, ""), combined.Annotations),
		Floor:  combined.Floor,
		Object: &objects,
	}
	if combined.Content == core.Unreadable {
		out.Unreadable, out.Record = errors.Join(objects.Primary.Unreadable, objects.Secondary.Unreadable), LeaderElectionRecord{}
	}
	if selected.Raw != nil {
		out.Raw = rawOf(objects)
	}
	return out
}

// withRequestAndHold returns annotations with the request and the hold that the core selected.
func withRequestAndHold(annotations map[string]string, chosen core.Annotations) map[string]string {
	annotations = withAnnotation(annotations, HandoverRequestAnnotation, chosen.Request.Note)
	return withAnnotation(annotations, HoldAnnotation, chosen.Hold.Note)
}

// withAnnotation returns annotations with key set, or removed if value is empty.
func withAnnotation(annotations map[string]string, key, value string) map[string]string {
	annotations = maps.Clone(annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[key] = value
	if value == "" {
		delete(annotations, key)
	}
	return annotations
}

// rawOf returns bytes that differ if one of the objects or records differs. It is never nil.
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
