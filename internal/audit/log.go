package audit

import (
	"cmp"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Log collects the writes of audit logs in a compact form.
type Log struct {
	Reading
	// Objects keeps the stored objects for Write.Object. It needs as much memory as the log.
	Objects bool

	entries []entry
	kept    map[uint32]map[string]any // by the sequence number of an entry
	open    map[uint64]entry          // requests without a response so far, by the hash of their audit ID
	done    []uint64                  // responses without a request so far
	seed    maphash.Seed
	actors  table[actor]
	kinds   table[kind]
	states  table[content]
	names   strings.Builder // names and UIDs of objects
	files   table[origin]
	origin  uint32 // of the event that is added
}

// origin is the file of a write, and its cluster if the file names one.
type origin struct{ file, cluster string }

// entry is a write. A log has millions of them.
type entry struct {
	version  uint64 // that it produced; if not exact, a lower bound
	received int64  // in nanoseconds
	took     uint32 // in microseconds
	actor    uint32
	kind     uint32
	name     uint32 // the position in Log.names
	nameSize uint16
	uidSize  uint16
	state    uint32 // of the lock that it wrote, plus 1; 0 if it wrote no lock
	sequence uint32
	origin   uint32
	verb     verb
	exact    bool
	deleted  bool
	blind    bool // may have written a lock, and has no body
}

type verb uint8

var verbs = []string{"", "create", "update", "patch", "delete", "deletecollection"}

func verbOf(name string) verb { return verb(max(0, slices.Index(verbs, name))) }

// actor is a writer. Without a pod in the token, the address and the program identify it.
type actor struct{ user, pod, source, program string }

// kind is a kind of objects in a namespace. resource includes the subresource.
type kind struct{ group, resource, namespace string }

// target is an object.
type target struct {
	kind
	name, uid string
}

// table numbers equal values.
type table[T comparable] struct {
	numbers map[T]uint32
	values  []T
}

func (t *table[T]) number(value T) uint32 {
	n, known := t.numbers[value]
	if !known {
		if t.numbers == nil {
			t.numbers = map[T]uint32{}
		}
		n = uint32(len(t.values))
		t.numbers[value] = n
		t.values = append(t.values, value)
	}
	return n
}

// NewLog returns an empty log.
func NewLog() *Log {
	return &Log{kept: map[uint32]map[string]any{}, open: map[uint64]entry{}, seed: maphash.MakeSeed()}
}

// Read reads an audit log. name is used in errors.
func (l *Log) Read(name string, log io.Reader) error {
	return l.Reading.Read(name, log, onlyReads, func(e Event) error {
		l.origin = l.files.number(origin{name, e.Cluster})
		return l.add(e)
	})
}

// add adds an event.
func (l *Log) add(e Event) error {
	if !e.relevant() {
		return nil
	}
	id := maphash.String(l.seed, e.AuditID)
	if e.Stage == stageReceived || e.uncertain() {
		w, _, err := l.entryOf(e)
		l.open[id] = w
		return err
	}
	if _, asked := l.open[id]; asked {
		delete(l.open, id)
	} else {
		l.done = append(l.done, id)
	}
	if e.Stage != stageComplete || e.ResponseStatus.Code >= 300 {
		return nil
	}
	w, unchanged, err := l.entryOf(e)
	if err != nil || unchanged {
		return err
	}
	if l.Objects && !w.deleted && present(e.ResponseObject) {
		var full map[string]any
		if err := json.Unmarshal(e.ResponseObject, &full); err != nil {
			return fmt.Errorf("decode response %s: %w", e.AuditID, err)
		}
		l.kept[w.sequence] = full
	}
	l.entries = append(l.entries, w)
	return nil
}

// entryOf converts an event. unchanged is true if the write changed nothing, which its request and response show.
func (l *Log) entryOf(e Event) (w entry, unchanged bool, err error) {
	w = entry{
		received: e.RequestReceivedTimestamp.UnixNano(), took: uint32(max(0, e.StageTimestamp.Sub(e.RequestReceivedTimestamp)/time.Microsecond)),
		actor: l.actors.number(actorOf(e)), verb: verbOf(e.Verb), sequence: uint32(l.Events), origin: l.origin,
	}
	var sent, stored object
	if present(e.RequestObject) { // a JSON patch is a list
		if err := json.Unmarshal(e.RequestObject, &sent); err != nil {
			return w, false, fmt.Errorf("decode request %s: %w", e.AuditID, err)
		}
	}
	if present(e.ResponseObject) {
		if err := json.Unmarshal(e.ResponseObject, &stored); err != nil {
			return w, false, fmt.Errorf("decode response %s: %w", e.AuditID, err)
		}
	}
	seen := stored
	if version := stored.Metadata.ResourceVersion; version != "" && stored.Kind != "Status" && e.Verb != "deletecollection" {
		if w.version, err = strconv.ParseUint(version, 10, 64); err != nil {
			return w, false, fmt.Errorf("read resourceVersion in the response %s: %w", e.AuditID, err)
		}
		w.exact = true
		unchanged = sent.Metadata.ResourceVersion == version
	} else if e.Verb != "patch" {
		seen = sent
	}
	w.deleted = e.Verb == "delete" && !w.exact
	at := targetOf(e, seen.Metadata.Name, cmp.Or(seen.Metadata.UID, stored.Details.UID))
	l.name(&w, at)
	if !mayBeLock(at) || w.deleted {
		return w, unchanged, nil
	}
	w.blind = seen.Metadata.Name == "" && len(seen.Metadata.Annotations) == 0 && len(seen.Spec) == 0
	if r, is := recordOf(at, e.Verb == "create" || e.ResponseStatus.Code == 201, seen); is && !w.blind {
		w.state = l.states.number(r) + 1
	}
	return w, unchanged, nil
}

// name stores the names of the object. Only locks and kept objects need a UID.
func (l *Log) name(w *entry, at target) {
	w.kind = l.kinds.number(at.kind)
	w.name = uint32(l.names.Len())
	w.nameSize = uint16(len(at.name))
	l.names.WriteString(at.name)
	if l.Objects || mayBeLock(at) {
		w.uidSize = uint16(len(at.uid))
		l.names.WriteString(at.uid)
	}
}

// target returns the object of a write.
func (l *Log) target(e entry) target {
	text := l.names.String()[e.name:]
	name, rest := text[:e.nameSize], text[e.nameSize:]
	return target{l.kinds.values[e.kind], name, rest[:e.uidSize]}
}

// settle removes the open requests that have a response. Rotated files may come in any order.
func (l *Log) settle() {
	if len(l.open) == 0 {
		return
	}
	for _, id := range l.done {
		delete(l.open, id)
	}
}

func actorOf(e Event) actor {
	if pod := e.Pod(); pod != "" {
		return actor{user: e.User.Username, pod: pod}
	}
	return actor{user: e.User.Username, source: fmt.Sprint(e.SourceIPs), program: e.program()}
}

// targetOf returns the object. Requests to create have no name, and the object in them may have no UID.
func targetOf(e Event, name, uid string) target {
	at := target{
		kind{e.ObjectRef.APIGroup, e.Resource(), e.ObjectRef.Namespace}, cmp.Or(name, e.ObjectRef.Name), cmp.Or(uid, e.ObjectRef.UID),
	}
	if e.ObjectRef.Resource == "namespaces" {
		// The API server logs the name of an existing Namespace as its namespace.
		at.name = cmp.Or(at.name, at.namespace)
		at.namespace = ""
	}
	return at
}
