package record

import (
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"
)

// Annotations of a lock object that belong to this project. Other electors preserve them but do not read them.
const (
	// Prefix is the prefix of all.
	Prefix = "incumbent.dev/"

	// MarkerAnnotation is "v1 <identity> <leaderTransitions>", then " handover" if the leader can hand over, then
	// " unfit" if it prefers not to lead.
	MarkerAnnotation = Prefix + "leader"
	// HandoverRequestAnnotation contains a Request as JSON.
	HandoverRequestAnnotation = Prefix + "handover-request"
	// NominatedAnnotation names the candidate that another process wrote into the record as holder.
	NominatedAnnotation = Prefix + "nominated"
	// HoldAnnotation contains a Hold as JSON.
	HoldAnnotation = Prefix + "hold"
	// WitnessReleaseAnnotation is "v1 <identity> <leaderTransitions> <duration>" on a lock that the witness of a leader has
	// released. The duration is the time from the end of the process until the release. It is for metrics, and a
	// witness recognizes its own release by it. No election depends on it. The next write of this project removes it.
	WitnessReleaseAnnotation = Prefix + "witness-release"

	// A coordinator uses the following annotations if the API server drops spec.strategy and spec.preferredHolder, because the
	// feature CoordinatedLeaderElection is off. Electors preserve them.

	// StrategyAnnotation replaces spec.strategy.
	StrategyAnnotation = Prefix + "strategy"
	// PreferredHolderAnnotation replaces spec.preferredHolder. A write of a lock with an empty value removes both.
	PreferredHolderAnnotation = Prefix + "preferred-holder"
)

// Annotations are the decoded annotations of incumbent on the lock object.
type Annotations struct {
	Marker    Marker
	Nominated Nomination
	Request   Request
	Hold      Hold
	Witness   WitnessRelease
}

// Marker is the annotation of an acting incumbent leader. The zero value is no marker.
type Marker struct {
	Identity    string
	Transitions int
	// Handover: this leader can judge and fulfill a request.
	Handover bool
	// Unfit: any fit candidate should replace this leader.
	Unfit bool
	// Uncoordinated: this leader of a coordinated election acts as without a coordinator, until a coordinator writes.
	Uncoordinated bool
}

// Matches reports whether the marker belongs to the holder and term of the record.
func (m Marker) Matches(r Record) bool { return r.IsTerm(m.Identity, m.Transitions) }

// Nomination is the annotation of a leader or coordinator that wrote the holder for this term. The zero value
// is no nomination.
type Nomination struct {
	Identity    string
	Transitions int
	// Uncounted: a coordinator wrote it, which does not increment transitions.
	Uncounted bool
}

// WitnessRelease is the annotation of a witness with its release. The zero value is no release.
type WitnessRelease struct {
	Identity    string
	Transitions int
	// After is the time from the end of the process until the release.
	After time.Duration
}

// Format of the marker and of the release of a witness.
const (
	version             = "v1"
	markerHandover      = "handover"
	markerUnfit         = "unfit"
	markerUncoordinated = "uncoordinated"
)

// Decode sets the annotations of a snapshot that has its Record and Strategy. An invalid annotation counts as absent.
func (s Snapshot) Decode(annotations map[string]string) Snapshot {
	s.Annotations = Annotations{
		Marker:  parseMarker(annotations[MarkerAnnotation]),
		Request: parseRequest(annotations[HandoverRequestAnnotation]),
		Hold:    fromJSON[Hold](annotations[HoldAnnotation]),
		Witness: parseWitnessRelease(annotations[WitnessReleaseAnnotation]),
	}
	s.Annotations.Nominated = s.Nomination(annotations[NominatedAnnotation])
	if s.Annotations.Nominated.Uncounted {
		s.Record.Acquired = s.Record.Renewed // as in other nominations
	}
	return s
}

// Invalid returns the names of annotations with an invalid value, sorted.
func (a Annotations) Invalid(annotations map[string]string) (names []string) {
	for _, c := range []struct {
		name  string
		valid bool
	}{
		{HandoverRequestAnnotation, a.Request != Request{}},
		{HoldAnnotation, a.Hold != Hold{}},
		{MarkerAnnotation, a.Marker != Marker{}},
	} {
		if annotations[c.name] != "" && !c.valid {
			names = append(names, c.name)
		}
	}
	return names
}

// Encode returns the annotations as locks store them.
func (a Annotations) Encode() map[string]string {
	annotations := map[string]string{
		MarkerAnnotation:          a.Marker.Encode(),
		HandoverRequestAnnotation: a.Request.Encode(),
		HoldAnnotation:            a.Hold.Encode(),
		WitnessReleaseAnnotation:  a.Witness.Encode(),
	}
	if !a.Nominated.Uncounted {
		annotations[NominatedAnnotation] = a.Nominated.Identity
	}
	maps.DeleteFunc(annotations, func(_, value string) bool { return value == "" })
	return annotations
}

// Nomination returns the nominated holder and the term, given the annotation. The annotation has only the name. An incumbent nominee
// removes it with its first write. A peer keeps it, but only the transfer of an operator nominates a peer, and
// the hold of the transfer has the term. A coordinator writes no annotation and no acquireTime. The first own
// write of the nominee sets acquireTime.
func (s Snapshot) Nomination(name string) Nomination {
	if r := s.Record; s.Strategy && r.Holder != "" && r.Acquired == 0 {
		return Nomination{Identity: r.Holder, Transitions: r.Transitions, Uncounted: true}
	}
	switch hold := s.Annotations.Hold; {
	case name == "":
		return Nomination{}
	case hold.Reason == HoldForTransfer && hold.Holder == name:
		return Nomination{Identity: name, Transitions: hold.Transitions}
	}
	return Nomination{Identity: name, Transitions: s.Record.Transitions}
}

// parseTerm returns the identity and the transitions of "v1 <identity> <transitions> …", and the words after them.
func parseTerm(s string) (identity string, transitions int, rest []string, ok bool) {
	words := strings.Split(s, " ")
	if len(words) < 3 || words[0] != version || words[1] == "" {
		return "", 0, nil, false
	}
	transitions, err := strconv.Atoi(words[2])
	return words[1], transitions, words[3:], err == nil
}

// parseMarker returns the zero Marker for an unknown format or version.
func parseMarker(s string) Marker {
	identity, transitions, rest, ok := parseTerm(s)
	if !ok {
		return Marker{}
	}
	m := Marker{Identity: identity, Transitions: transitions}
	for _, word := range rest {
		switch word {
		case markerHandover:
			m.Handover = true
		case markerUnfit:
			m.Unfit = true
		case markerUncoordinated:
			m.Uncoordinated = true
		default:
			return Marker{}
		}
	}
	return m
}

// Encode returns the annotation, or "" without a marker.
func (m Marker) Encode() string {
	if m == (Marker{}) {
		return ""
	}
	s := fmt.Sprintf("%s %s %d", version, m.Identity, m.Transitions)
	if m.Handover {
		s += " " + markerHandover
	}
	if m.Unfit {
		s += " " + markerUnfit
	}
	if m.Uncoordinated {
		s += " " + markerUncoordinated
	}
	return s
}

// parseWitnessRelease returns the zero value for an unknown format or version.
func parseWitnessRelease(s string) WitnessRelease {
	identity, transitions, rest, ok := parseTerm(s)
	if !ok || len(rest) != 1 {
		return WitnessRelease{}
	}
	after, err := time.ParseDuration(rest[0])
	if err != nil || after <= 0 {
		return WitnessRelease{}
	}
	return WitnessRelease{Identity: identity, Transitions: transitions, After: after}
}

// Encode returns the annotation, or "" without a release.
func (w WitnessRelease) Encode() string {
	if w == (WitnessRelease{}) {
		return ""
	}
	return fmt.Sprintf("%s %s %d %v", version, w.Identity, w.Transitions, w.After)
}

// parseRequest returns the zero Request for invalid input. Only an operator may omit the identity.
func parseRequest(s string) Request {
	r := fromJSON[Request](s)
	noIdentity := ValidateIdentity(r.Identity) != nil && (r.Identity != "" || r.Reason != ForOperator)
	if noIdentity || ValidateKey(r.Key) != nil { // otherwise the handover could not be written
		return Request{}
	}
	return r
}

// Encode returns the annotation, or "" without a request.
func (r Request) Encode() string { return toJSON(r) }

// Encode returns the annotation, or "" without a hold.
func (h Hold) Encode() string { return toJSON(h) }

// fromJSON returns the zero value for invalid input.
func fromJSON[T Request | Hold](s string) (v T) {
	if s == "" || json.Unmarshal([]byte(s), &v) != nil { // the first condition saves an allocation
		return *new(T)
	}
	return v
}

func toJSON[T Request | Hold](v T) string {
	if v == *new(T) {
		return ""
	}
	raw, _ := json.Marshal(v) // cannot fail for strings, numbers and booleans
	return string(raw)
}
