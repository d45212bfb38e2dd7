package codec

import (
	"encoding/json"
	"fmt"
	"hash/maphash"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// Codec decodes what one elector reads. Sums of stored records are comparable among its own.
type Codec struct{ seed maphash.Seed }

// New returns a Codec.
func New() Codec { return Codec{seed: maphash.MakeSeed()} }

// Snapshot decodes a lock's snapshot to plain values. It fails when the object's
// version is not one that grows.
func (c Codec) Snapshot(s k8sresourcelock.Snapshot) (core.Snapshot, error) {
	out := Decode(s)
	if s.Parts == [2]k8sresourcelock.Part{} {
		version, err := ParseVersion(s.ResourceVersion)
		if err != nil {
			return core.Snapshot{}, err
		}
		out.UID.First = string(s.UID)
		out.Version = version
	} else {
		pair := core.Pair{Primary: part(s.Parts[0]), Secondary: part(s.Parts[1])}
		out.UID = pair.UID()
		out.Version = pair.Version()
		for i, where := range []core.Halves{core.InFirst, core.InSecond} {
			if s.Parts[i].Present {
				out.Halves |= where
			}
		}
	}
	if s.Exists {
		out.Sum = maphash.Bytes(c.seed, s.Raw)
	}
	return out, nil
}

// Decode returns the record and the notes of a lock's snapshot, without which object they are of.
func Decode(s k8sresourcelock.Snapshot) core.Snapshot {
	out := core.Snapshot{Exists: s.Exists, Floor: s.Floor}
	if !s.Exists {
		return out
	}
	out.Annotations = decodeNotes(s.Notes)
	out.Annotations.Nominated = nomination(s, out.Annotations.Hold)
	out.Strategy = s.Strategy != ""
	if note := s.Notes[k8sresourcelock.PredecessorAnnotation]; note != "" {
		out.Successor = strings.HasPrefix(note, SuccessorsNote(s.Record, ""))
	}
	if k8sresourcelock.ValidateIdentity(s.PreferredHolder) == nil { // with another the handover could not be written
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
			out.Record.Acquired = out.Record.Renewed // as beside other nominations
		}
	}
	return out
}

func part(p k8sresourcelock.Part) core.Snapshot {
	return core.Snapshot{UID: core.UID{First: string(p.UID)}, Version: p.Version}
}

// ParseVersion reads an object's version; none is 0.
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

// maxLeaseSeconds keeps an absurd lease from overflowing a Duration.
const maxLeaseSeconds = 1 << 31

// EncodeRecord is the record as locks store it.
func EncodeRecord(r core.Record) k8sresourcelock.LeaderElectionRecord {
	return k8sresourcelock.LeaderElectionRecord{
		HolderIdentity: r.Holder, HolderKey: r.Key,
		LeaseDurationSeconds: int(r.Lease / time.Second),
		AcquireTime:          unstamp(r.Acquired), RenewTime: unstamp(r.Renewed),
		LeaderTransitions: r.Transitions,
	}
}

// stamp and unstamp are inverse. The zero time is no stamp.
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

// The marker's words.
const (
	markerVersion  = "v1"
	markerHandover = "handover"
	markerUnfit    = "unfit"
)

func decodeNotes(notes map[string]string) core.Annotations {
	return core.Annotations{
		Marker:  parseMarker(notes[k8sresourcelock.MarkerAnnotation]),
		Request: parseRequest(notes[k8sresourcelock.HandoverRequestAnnotation]),
		Hold:    parseHold(notes[k8sresourcelock.HoldAnnotation]),
	}
}

// parseMarker returns the zero Marker for anything that is not a marker of a version
// that we know: nothing is believed without its guard.
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

// nomination says who was written in, and for which term. The annotation is no more than
// a name, which is enough for a nominee of ours: it takes it away with its first write. A
// peer keeps it, through later terms too; it can only have been put there by an
// operator's transfer, whose hold names the term. A coordinator writes no annotation, and no acquireTime: its
// nominee's first own write gives that.
func nomination(s k8sresourcelock.Snapshot, hold core.Hold) core.Nomination {
	if r := s.Record; s.Strategy != "" && r.HolderIdentity != "" && r.AcquireTime.IsZero() {
		return core.Nomination{Identity: r.HolderIdentity, Transitions: r.LeaderTransitions, Uncounted: true}
	}
	n := core.Nomination{Identity: s.Notes[k8sresourcelock.NominatedAnnotation]}
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

// EncodeNotes are the annotations that say the notes.
func EncodeNotes(n core.Annotations) map[string]string {
	notes := map[string]string{}
	if n.Marker != (core.Marker{}) {
		notes[k8sresourcelock.MarkerAnnotation] = formatMarker(n.Marker)
	}
	if n.Request != (core.Request{}) {
		notes[k8sresourcelock.HandoverRequestAnnotation] = FormatRequest(n.Request)
	}
	if n.Hold != (core.Hold{}) {
		notes[k8sresourcelock.HoldAnnotation] = FormatHold(n.Hold)
	}
	if n.Nominated.Identity != "" && !n.Nominated.Uncounted {
		notes[k8sresourcelock.NominatedAnnotation] = n.Nominated.Identity
	}
	return notes
}

func formatMarker(m core.Marker) string {
	s := fmt.Sprintf("%s %s %d", markerVersion, m.Identity, m.Transitions)
	if m.Handover {
		s += " " + markerHandover
	}
	if m.Unfit {
		s += " " + markerUnfit
	}
	return s
}

// SuccessorsNote returns the PredecessorAnnotation for a record of Successors. Beside the record of a process it says that
// the process has won a predecessor's lock and does not act by it yet.
func SuccessorsNote(r k8sresourcelock.LeaderElectionRecord, writer string) string {
	return fmt.Sprintf("v1 %s %d %s", r.HolderIdentity, r.LeaderTransitions, writer)
}

// requestJSON is the form of a request on the lock object.
type requestJSON struct {
	Identity    string `json:"identity"`
	Key         string `json:"key"`
	Reason      string `json:"reason"`
	Requester   string `json:"requester"`
	Note        string `json:"note,omitempty"`
	Holder      string `json:"holder"`
	Transitions int    `json:"transitions"`
	Seconds     int    `json:"seconds"`
	Accepted    bool   `json:"accepted"`
	Refused     string `json:"refused,omitempty"`
	HoldSeconds int    `json:"holdSeconds,omitempty"`
}

// parseRequest returns the zero Request for anything that is not one. Only an operator
// may leave the identity open.
func parseRequest(s string) core.Request {
	if s == "" { // as mostly; r would be allocated
		return core.Request{}
	}
	var r requestJSON
	if json.Unmarshal([]byte(s), &r) != nil {
		return core.Request{}
	}
	if k8sresourcelock.ValidateKey(r.Key) != nil {
		return core.Request{} // with it the handover could not be written
	}
	if k8sresourcelock.ValidateIdentity(r.Identity) != nil && (r.Identity != "" || r.Reason != core.ForOperator) {
		return core.Request{}
	}
	return core.Request(r)
}

// FormatRequest is a request's annotation.
func FormatRequest(r core.Request) string { return toJSON(requestJSON(r)) }

// holdJSON is the form of a hold on the lock object.
type holdJSON struct {
	Holder      string `json:"holder"`
	Transitions int    `json:"transitions"`
	Seconds     int    `json:"seconds"`
	Requester   string `json:"requester"`
	Reason      string `json:"reason"`
	Note        string `json:"note,omitempty"`
}

// parseHold returns the zero Hold for anything that is not one.
func parseHold(s string) core.Hold {
	if s == "" { // as mostly; h would be allocated
		return core.Hold{}
	}
	var h holdJSON
	if json.Unmarshal([]byte(s), &h) != nil {
		return core.Hold{}
	}
	return core.Hold(h)
}

// FormatHold is a hold's annotation.
func FormatHold(h core.Hold) string { return toJSON(holdJSON(h)) }

func toJSON(v any) string {
	raw, err := json.Marshal(v)
	if err != nil { // strings, numbers and booleans always can be
		return ""
	}
	return string(raw)
}
