package audit

import (
	"cmp"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"io"
	"slices"
	"strconv"
	"unique"
)

// Log collects the writes of audit logs in a compact form.
type Log struct {
	Reading
	// Objects keeps the stored objects for Write.Object. It needs as much memory as the log.
	Objects bool

	entries []entry
	open    map[uint64]entry // requests without a response so far, by the hash of their audit ID
	done    []uint64         // responses without a request so far
	seed    maphash.Seed
	origins []origin // in the order of reading
}

// origin is the file of a write, and its cluster if the file names one.
type origin struct{ file, cluster string }

// entry is a write. A log has millions of them, so equal values are stored once.
type entry struct {
	version  uint64 // that it produced; if not exact, a lower bound
	received int64  // in nanoseconds
	answered int64
	actor    unique.Handle[actor]
	target   unique.Handle[target]
	verb     unique.Handle[string]
	state    unique.Handle[content] // of the lock that it wrote, or zero
	origin   unique.Handle[origin]
	object   map[string]any // if Log.Objects is set
	sequence uint32
	exact    bool
	deleted  bool
	blind    bool // may have written a lock, and has no body
}

// content returns the content of the lock that it wrote, or nil.
func (e entry) content() *content {
	if e.state == (unique.Handle[content]{}) {
		return nil
	}
	return new(e.state.Value())
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

func (t target) lock() Lock { return Lock{t.resource, t.namespace, t.name} }

// NewLog returns an empty log.
func NewLog() *Log {
	return &Log{open: map[uint64]entry{}, seed: maphash.MakeSeed()}
}

// Read reads an audit log. name is used in errors.
func (l *Log) Read(name string, log io.Reader) error {
	return l.Reading.Read(name, log, onlyReads, func(e Event) error {
		return l.add(e, origin{name, e.Cluster})
	})
}

// add adds an event.
func (l *Log) add(e Event, from origin) error {
	if !slices.Contains(l.origins, from) {
		l.origins = append(l.origins, from)
	}
	if !e.relevant() {
		return nil
	}
	id := maphash.String(l.seed, e.AuditID)
	if e.Stage == stageReceived || e.uncertain() {
		w, _, err := l.entryOf(e, from)
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
	w, unchanged, err := l.entryOf(e, from)
	if err != nil || unchanged {
		return err
	}
	if l.Objects && !w.deleted && present(e.ResponseObject) {
		if err := json.Unmarshal(e.ResponseObject, &w.object); err != nil {
			return fmt.Errorf("decode response %s: %w", e.AuditID, err)
		}
	}
	l.entries = append(l.entries, w)
	return nil
}

// entryOf converts an event. unchanged is true if the write changed nothing, which its request and response show.
func (l *Log) entryOf(e Event, from origin) (w entry, unchanged bool, err error) {
	w = entry{
		received: e.RequestReceivedTimestamp.UnixNano(), actor: unique.Make(actorOf(e)), verb: unique.Make(e.Verb), sequence: uint32(l.Events), origin: unique.Make(from),
	}
	w.answered = max(w.received, e.StageTimestamp.UnixNano())
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
	if !l.Objects && !mayBeLock(at) {
		at.uid = "" // only locks and kept objects need one
	}
	w.target = unique.Make(at)
	if !mayBeLock(at) || w.deleted {
		return w, unchanged, nil
	}
	w.blind = seen.Metadata.Name == "" && len(seen.Metadata.Annotations) == 0 && len(seen.Spec) == 0
	if r, is := recordOf(at, e.Verb == "create" || e.ResponseStatus.Code == 201, seen); is && !w.blind {
		w.state = unique.Make(r)
	}
	return w, unchanged, nil
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
