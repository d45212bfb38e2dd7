package k8sresourcelock

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// standing is what one object of a pair says.
type standing uint8

const (
	// vacant: no object, or none with a record.
	vacant standing = iota
	// unreadableRecord: one that cannot be believed.
	unreadableRecord
	// nobody: the last holder's term has ended.
	nobody
	// nominee: somebody was written in, and has not written itself.
	nominee
	// half: a holder that says it needs both objects. By itself this gives no right to
	// act: it is a claim under way, or what is left of a term that ended on the other.
	half
	// alone: a holder that needs this object only: a candidate of the first or of the
	// third step, or a peer.
	alone
)

func standingOf(s Snapshot) standing {
	holder := s.Record.HolderIdentity
	switch {
	case s.Unreadable != nil:
		return unreadableRecord
	case s.Raw == nil:
		return vacant
	case holder == "":
		return nobody
	case s.Notes[NominatedAnnotation] == holder && s.Record.AcquireTime.Equal(&s.Record.RenewTime):
		return nominee // a peer keeps the annotation, and its renewals tell
	case namesTerm(s.Notes[MultiLockAnnotation], s.Record):
		return half
	}
	return alone
}

// multiNote says of a record that its holder needs both objects, and what the other
// one's UID was.
func multiNote(r LeaderElectionRecord, otherUID string) string {
	return strings.TrimSpace(fmt.Sprintf("v1 %s %d %s", r.HolderIdentity, r.LeaderTransitions, otherUID))
}

// namesTerm reports whether a note of the form "v1 identity transitions …" is about the
// record's term.
func namesTerm(note string, r LeaderElectionRecord) bool {
	words := strings.Split(note, " ")
	return len(words) >= 3 && words[0] == "v1" && words[1] == r.HolderIdentity && words[2] == strconv.Itoa(r.LeaderTransitions)
}

// otherUID is the UID that a multiNote names; empty when it names none.
func otherUID(note string) string {
	if words := strings.Split(note, " "); len(words) >= 4 {
		return words[3]
	}
	return ""
}

// side is one object of a pair. Of an absent object version is the last that was known. echo
// says that it is as this process's latest write of both left it: what others had to say since
// is not there.
type side struct {
	Snapshot
	version uint64
	echo    bool
}

func sideOf(s Snapshot) side {
	version, _ := strconv.ParseUint(s.ResourceVersion, 10, 64) // checked when it was remembered
	return side{Snapshot: s, version: version}
}

// Stands is in which of a MultiLock's objects a record stands.
type Stands uint8

const (
	InPrimary Stands = 1 << iota
	InSecondary
)

// Half reports whether the record has a holder that stands in one object of two.
func (s Snapshot) Half() bool {
	return s.Record.HolderIdentity != "" && (s.Stands == InPrimary || s.Stands == InSecondary)
}

// combine shows two objects as one lock. What is shown is never more than one of them
// says, and at least as much as the one that matters in either step of a migration:
//
//   - Either unreadable: unreadable.
//   - The same term in both: that, with the secondary's notes. Requests and holds may
//     stand on either.
//   - A holder that needs one object alone: that holder. Which step the migration is in
//     shows in which object it is, and what the other says is then of no account.
//   - Otherwise one object's word; Stands says whose. See choose.
//
// UID and ResourceVersion are "primary+secondary", and Raw is made of both, so that a
// change of either restarts the lease.
func combine(p, s side, self string) Snapshot {
	if !p.Exists && !s.Exists {
		gone := Snapshot{}
		if p.version+s.version > 0 {
			gone.ResourceVersion = joinVersions(p.version, s.version)
		}
		return gone
	}
	i, full := choose(p, s, self)
	stands := [2]Stands{InPrimary, InSecondary}[i]
	if full {
		stands = InPrimary | InSecondary
	}
	shown := [2]side{p, s}[i].Snapshot
	out := Snapshot{
		Exists: true,
		UID:    types.UID(string(p.UID) + pairSeparator + string(s.UID)), ResourceVersion: joinVersions(p.version, s.version),
		Record: shown.Record, Notes: without(shown.Notes, MultiLockAnnotation),
		Stands: stands,
		Floor:  max(p.Record.LeaderTransitions, s.Record.LeaderTransitions),
		Object: &Pair{p.Snapshot, s.Snapshot},
	}
	if p.Unreadable != nil || s.Unreadable != nil {
		out.Unreadable, out.Record = errors.Join(p.Unreadable, s.Unreadable), LeaderElectionRecord{}
	}
	if shown.Raw != nil {
		out.Raw = rawOf(p, s)
	}
	if full {
		out.Notes = mergeNotes(out.Notes, p, s)
	}
	return out
}

// choose picks the object whose word counts, and reports whether one term stands in both.
func choose(p, s side, self string) (which int, full bool) {
	const primary, secondary = 0, 1
	ps, ss := standingOf(p.Snapshot), standingOf(s.Snapshot)
	newer := primary
	if s.version > p.version {
		newer = secondary
	}
	switch {
	case ps == unreadableRecord:
		return primary, false
	case ss == unreadableRecord:
		return secondary, false
	case ps >= half && ss >= half && sameTerm(p.Snapshot, s.Record):
		return secondary, true
	case ps == alone && ss == alone:
		// The two steps that must not meet, or what one left behind. Never oneself.
		if p.Record.HolderIdentity == self {
			return secondary, false
		}
		if s.Record.HolderIdentity == self {
			return primary, false
		}
		return newer, false
	case !s.Exists:
		return primary, false
	case !p.Exists:
		return secondary, false
	case ps == vacant && ss == vacant:
		return newer, false
	case ps == alone || ss == vacant:
		return primary, false
	case ss == alone || ps == vacant:
		return secondary, false
	case ps == half && ss == half:
		return newer, false
	case ps == half:
		return showClaim(p, s), false
	case ss == half:
		return showRest(p, s), false
	}
	return newer, sameTerm(p.Snapshot, s.Record)
}

// showClaim judges a holder that stands in the primary alone, beside a secondary that
// is free or nominates somebody. It may be writing the secondary just now, and then
// must not be disturbed. It no longer can when the secondary is another object than
// the claim was decided on, or has come to count a later term.
func showClaim(p, s side) int {
	passed := s.version > p.version && s.Record.LeaderTransitions > p.Record.LeaderTransitions
	anew := s.UID != types.UID(otherUID(p.Notes[MultiLockAnnotation]))
	if passed || anew {
		return 1
	}
	return 0
}

// showRest judges a holder that stands in the secondary alone, beside a primary that
// is free or nominates somebody. It has lost the primary, so its term is over. If it is
// passing the lock on, in the order primary and secondary, it is let finish.
func showRest(p, s side) int {
	ended := s.Record.LeaderTransitions
	if standingOf(p.Snapshot) == nominee {
		ended++
	}
	if p.version < s.version || p.Record.LeaderTransitions == ended {
		return 1
	}
	return 0
}

// mergeNotes adds to a copy of the secondary's notes what stands on the primary: a candidate of
// the first step knows no other place. Where both have one, the newer object's counts; but what
// was written to the primary between the holder's two writes is newer than the second of them.
func mergeNotes(notes map[string]string, p, s side) map[string]string {
	for _, key := range othersNotes {
		v := p.Notes[key]
		echoed := s.echo && !p.echo
		if v == "" || notes[key] != "" && s.version > p.version && !echoed {
			continue
		}
		if notes == nil {
			notes = map[string]string{}
		}
		notes[key] = v
	}
	return notes
}

func without(notes map[string]string, key string) map[string]string {
	notes = maps.Clone(notes)
	delete(notes, key)
	return notes
}

// rawOf is never nil, and differs when either object or its record does.
func rawOf(p, s side) []byte {
	var raw []byte
	for _, half := range []side{p, s} {
		for _, part := range [][]byte{[]byte(half.UID), half.Raw} {
			raw = binary.AppendUvarint(raw, uint64(len(part)))
			raw = append(raw, part...)
		}
	}
	return raw
}

// pairSeparator stands between the two parts of a pair's UID and version.
const pairSeparator = "+"

func joinVersions(p, s uint64) string {
	return strconv.FormatUint(p, 10) + pairSeparator + strconv.FormatUint(s, 10)
}

// Fence returns the UID and the version of the object that a fence goes by: the
// lock object, or of a MultiLock the secondary.
func (s Snapshot) Fence() (uid types.UID, version string) {
	_, last, pair := strings.Cut(string(s.UID), pairSeparator)
	_, version, _ = strings.Cut(s.ResourceVersion, pairSeparator)
	if !pair {
		return s.UID, s.ResourceVersion
	}
	return types.UID(last), version
}

func sameRecord(a, b LeaderElectionRecord) bool {
	times := a.AcquireTime.Equal(&b.AcquireTime) && a.RenewTime.Equal(&b.RenewTime)
	a.AcquireTime, a.RenewTime = b.AcquireTime, b.RenewTime
	return times && a == b
}
