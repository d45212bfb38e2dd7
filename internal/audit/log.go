package audit

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"strconv"
	"strings"
	"time"
)

// Log collects the writes of audit logs in a compact form.
type Log struct {
	// Objects keeps the stored objects for Write.Object. It needs as much memory as the log.
	Objects bool
	// Events counts the decoded events, Broken the lines that are not JSON. BrokenAt describes the first of them.
	Events, Broken int
	BrokenAt       string
	// Unfinished describes incomplete last lines: an API server was killed, or the file was copied while it was written.
	Unfinished []string

	entries []entry
	kept    map[uint32]map[string]any // by the sequence number of an entry
	open    map[uint64]entry          // requests without a response so far, by the hash of their audit ID
	done    []uint64                  // responses without a request so far
	seed    maphash.Seed
	actors  table[actor]
	kinds   table[kind]
	states  table[record]
	names   strings.Builder // names and UIDs of objects
}

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
	verb     verb
	exact    bool
	deleted  bool
	blind    bool // may have written a lock, and has no body
}

type verb uint8

var verbs = []string{"", "create", "update", "patch", "delete", "deletecollection"}

func verbOf(name string) verb {
	for i, known := range verbs {
		if known == name {
			return verb(i)
		}
	}
	return 0
}

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

// longestLine is the maximum size of a line: the API server accepts requests of 3 MiB, and a line has request and response.
const longestLine = 32 << 20

var gzipMagic = []byte{0x1f, 0x8b}

// Read reads an audit log with one JSON event per line, also compressed with gzip. name is used in errors.
func (l *Log) Read(name string, log io.Reader) error {
	lines := bufio.NewReaderSize(log, 256<<10)
	if start, _ := lines.Peek(len(gzipMagic)); bytes.Equal(start, gzipMagic) {
		unpacked, err := gzip.NewReader(lines)
		if err != nil {
			return fmt.Errorf("%s: read gzip: %w", name, err)
		}
		lines = bufio.NewReaderSize(unpacked, 256<<10)
	}
	var line []byte
	for number := 1; ; number++ {
		var err error
		line, err = readLine(lines, line[:0])
		at := fmt.Sprintf("%s:%d", name, number)
		last := errors.Is(err, io.EOF)
		switch {
		case errors.Is(err, io.ErrUnexpectedEOF):
			l.broken(at)
			return nil
		case err != nil && !last:
			return fmt.Errorf("%s: %w", at, err)
		}
		if err := l.line(at, bytes.TrimSpace(line), last); err != nil || last {
			return err
		}
	}
}

// readLine appends a line to the buffer.
func readLine(from *bufio.Reader, line []byte) ([]byte, error) {
	for {
		part, err := from.ReadSlice('\n')
		line = append(line, part...)
		if len(line) > longestLine {
			return line, fmt.Errorf("the line is longer than %d MiB; one JSON event per line is needed", longestLine>>20)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

func (l *Log) broken(at string) {
	l.Broken++
	if l.Broken == 1 {
		l.BrokenAt = at
	}
}

// line adds a line. last is true if no newline ended it.
func (l *Log) line(at string, line []byte, last bool) error {
	if len(line) == 0 {
		return nil
	}
	if onlyReads(line) {
		l.Events++
		return nil
	}
	var e Event
	err := json.Unmarshal(line, &e)
	if err != nil {
		// A restarted API server appends to the incomplete line of the killed one.
		if begin := bytes.LastIndex(line, lineStart); begin > 0 {
			line = line[begin:]
			e = Event{}
			err = json.Unmarshal(line, &e)
		}
	}
	switch {
	case err != nil && last && l.Events > 0:
		l.Unfinished = append(l.Unfinished, at)
		return nil
	case err != nil && l.Events == 0:
		return fmt.Errorf("%s: not a JSON event of an audit log: %w", at, err)
	case err != nil:
		l.broken(at)
		return nil
	case e.Kind == "EventList":
		return fmt.Errorf("%s: an EventList instead of events. Convert it with jq -c '.items[]'", at)
	case e.Verb == "" || e.Stage == "":
		return fmt.Errorf("%s: not an event of an audit log: it has no verb or stage", at)
	}
	return l.Add(e)
}

// Add adds an event.
func (l *Log) Add(e Event) error {
	l.Events++
	if !e.relevant() {
		return nil
	}
	id := maphash.String(l.seed, e.AuditID)
	if e.Stage == stageReceived {
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
		actor: l.actors.number(actorOf(e)), verb: verbOf(e.Verb), sequence: uint32(l.Events),
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
