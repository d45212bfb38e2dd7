package codec

import (
	"encoding/json"
	"fmt"
	"hash/maphash"
	"maps"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// seed makes hashes of records comparable within this process.
var seed = maphash.MakeSeed()

// Snapshot decodes a snapshot of a lock. It fails if the version of the object is not a number.
func Snapshot(s k8sresourcelock.Snapshot) (core.Snapshot, error) {
	version, err := ParseVersion(s.ResourceVersion)
	if err != nil {
		return core.Snapshot{}, err
	}
	out := Decode(s)
	out.UID = string(s.UID)
	out.Version = version
	if s.Exists {
		out.Sum = maphash.Bytes(seed, s.Raw)
	}
	return out, nil
}

// Decode returns the record and annotations of a snapshot without UID and version.
func Decode(s k8sresourcelock.Snapshot) core.Snapshot {
	out := core.Snapshot{Exists: s.Exists}
	if !s.Exists {
		return out
	}
	out.Annotations = decodeAnnotations(s.Annotations)
	out.Annotations.Nominated = nomination(s, out.Annotations.Hold)
	out.Strategy = s.Strategy != ""
	if k8sresourcelock.ValidateIdentity(s.PreferredHolder) == nil { // otherwise the handover could not be written
		out.Preferred = s.PreferredHolder
	}
	switch {
	case s.Unreadable != nil:
		out.Content = core.Unreadable
	case s.Raw == nil:
		out.Content = core.Missing
	default:
		out.Content = core.Readable
		out.Record = decodeRecord(s.Record)
		if out.Annotations.Nominated.Uncounted {
			out.Record.Acquired = out.Record.Renewed // as in other nominations
		}
	}
	return out
}

// ParseVersion parses a resourceVersion. Empty is 0.
func ParseVersion(s string) (uint64, error) {
	if s == "" {
		return 0, nil
	}
	version, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("resourceVersion %q is not a decimal number: %w", s, err)
	}
	return version, nil
}

func decodeRecord(r k8sresourcelock.LeaderElectionRecord) core.Record {
	return core.Record{
		Holder: r.HolderIdentity, Key: r.HolderKey,
		Lease:    time.Duration(min(r.LeaseDurationSeconds, maxLeaseSeconds)) * time.Second,
		Acquired: stamp(r.AcquireTime), Renewed: stamp(r.RenewTime),
		Transitions: r.LeaderTransitions,
	}
}

// maxLeaseSeconds prevents an overflow of Duration.
const maxLeaseSeconds = 1 << 31

// EncodeRecord returns the record as locks store it.
func EncodeRecord(r core.Record) k8sresourcelock.LeaderElectionRecord {
	return k8sresourcelock.LeaderElectionRecord{
		HolderIdentity: r.Holder, HolderKey: r.Key,
		LeaseDurationSeconds: int(r.Lease / time.Second),
		AcquireTime:          unstamp(r.Acquired), RenewTime: unstamp(r.Renewed),
		LeaderTransitions: r.Transitions,
	}
}

// stamp and unstamp are inverse. The zero time is 0.
func stamp(t metav1.Time) core.Stamp {
	if t.IsZero() {
		return 0
	}
	return core.Stamp(t.UnixMicro())
}

func unstamp(s core.Stamp) metav1.Time {
	if s == 0 {
		return metav1.Time{}
	}
	return metav1.Time{Time: time.UnixMicro(int64(s)).UTC()}
}

// Words of the marker.
const (
	markerVersion  = "v1"
	markerHandover = "handover"
	markerUnfit    = "unfit"
)

func decodeAnnotations(annotations map[string]string) core.Annotations {
	return core.Annotations{
		Marker:  parseMarker(annotations[k8sresourcelock.MarkerAnnotation]),
		Request: parseRequest(annotations[k8sresourcelock.HandoverRequestAnnotation]),
		Hold:    fromJSON[core.Hold](annotations[k8sresourcelock.HoldAnnotation]),
	}
}

// parseMarker returns the zero Marker for an unknown format or version.
func parseMarker(s string) core.Marker {
	words := strings.Split(s, " ")
	if len(words) < 3 || words[0] != markerVersion || words[1] == "" {
		return core.Marker{}
	}
	transitions, err := strconv.Atoi(words[2])
	if err != nil {
		return core.Marker{}
	}
	m := core.Marker{Identity: words[1], Transitions: transitions}
	for _, word := range words[3:] {
		switch word {
		case markerHandover:
			m.Handover = true
		case markerUnfit:
			m.Unfit = true
		default:
			return core.Marker{}
		}
	}
	return m
}

// nomination returns the nominated holder and the term. The annotation has only the name. An incumbent nominee
// removes it with its first write. A peer keeps it, but only the transfer of an operator nominates a peer, and
// the hold of the transfer has the term. A coordinator writes no annotation and no acquireTime. The first own
// write of the nominee sets acquireTime.
func nomination(s k8sresourcelock.Snapshot, hold core.Hold) core.Nomination {
	if r := s.Record; s.Strategy != "" && r.HolderIdentity != "" && r.AcquireTime.IsZero() {
		return core.Nomination{Identity: r.HolderIdentity, Transitions: r.LeaderTransitions, Uncounted: true}
	}
	n := core.Nomination{Identity: s.Annotations[k8sresourcelock.NominatedAnnotation]}
	switch {
	case n.Identity == "":
		return core.Nomination{}
	case hold.Reason == core.HoldForTransfer && hold.Holder == n.Identity:
		n.Transitions = hold.Transitions
	default:
		n.Transitions = s.Record.LeaderTransitions
	}
	return n
}

// EncodeAnnotations returns the annotations as locks store them.
func EncodeAnnotations(n core.Annotations) map[string]string {
	annotations := map[string]string{
		k8sresourcelock.MarkerAnnotation:          formatMarker(n.Marker),
		k8sresourcelock.HandoverRequestAnnotation: FormatRequest(n.Request),
		k8sresourcelock.HoldAnnotation:            FormatHold(n.Hold),
	}
	if !n.Nominated.Uncounted {
		annotations[k8sresourcelock.NominatedAnnotation] = n.Nominated.Identity
	}
	maps.DeleteFunc(annotations, func(_, value string) bool { return value == "" })
	return annotations
}

func formatMarker(m core.Marker) string {
	if m == (core.Marker{}) {
		return ""
	}
	s := fmt.Sprintf("%s %s %d", markerVersion, m.Identity, m.Transitions)
	if m.Handover {
		s += " " + markerHandover
	}
	if m.Unfit {
		s += " " + markerUnfit
	}
	return s
}

// parseRequest returns the zero Request for invalid input. Only an operator may omit the identity.
func parseRequest(s string) core.Request {
	r := fromJSON[core.Request](s)
	noIdentity := k8sresourcelock.ValidateIdentity(r.Identity) != nil && (r.Identity != "" || r.Reason != core.ForOperator)
	if noIdentity || k8sresourcelock.ValidateKey(r.Key) != nil { // otherwise the handover could not be written
		return core.Request{}
	}
	return r
}

// FormatRequest returns the annotation of a request, or "" without a request.
func FormatRequest(r core.Request) string { return toJSON(r) }

// FormatHold returns the annotation of a hold, or "" without a hold.
func FormatHold(h core.Hold) string { return toJSON(h) }

// fromJSON returns the zero value for invalid input.
func fromJSON[T core.Request | core.Hold](s string) (v T) {
	if s == "" || json.Unmarshal([]byte(s), &v) != nil { // the first condition saves an allocation
		return *new(T)
	}
	return v
}

func toJSON[T core.Request | core.Hold](v T) string {
	if v == *new(T) {
		return ""
	}
	raw, _ := json.Marshal(v) // cannot fail for strings, numbers and booleans
	return string(raw)
}
