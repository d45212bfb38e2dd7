package verdict

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Write is a write that was stored.
type Write struct {
	// Version is the resourceVersion that the write produced. A deletion has the last version of the object.
	Version uint64
	Deleted bool
	Verb    string
	// Resource includes the subresource: "gateways/status".
	Resource, Namespace, Name, UID string
	// Pod is the Pod that the writer's token is bound to, User the user name.
	Pod, User string
	// Received and Answered are timestamps of the API server.
	Received, Answered time.Time
	// Object is the stored object.
	Object map[string]any
}

func (w Write) String() string {
	name := w.Name
	if w.Namespace != "" {
		name = w.Namespace + "/" + w.Name
	}
	return fmt.Sprintf("%s by %s of %s %s at %d", w.Verb, cmp.Or(w.Pod, w.User), w.Resource, name, w.Version)
}

// Kind returns the resource without a subresource.
func (w Write) Kind() string {
	kind, _, _ := strings.Cut(w.Resource, "/")
	return kind
}

// History is the ordered list of all stored writes.
type History struct {
	Writes []Write
	// Unanswered are writes without a logged response. They may have been stored or not.
	Unanswered []Write
}

// Order merges the events of all API servers into one history. It drops dry runs, rejected writes, and writes that
// changed nothing.
func Order(logs ...[]Event) (History, error) {
	var h History
	open := map[string]Event{}
	seen := map[string]bool{}   // versions of an object
	last := map[string]uint64{} // the last version of an object
	var deletions []Write
	for _, e := range slices.Concat(logs...) {
		if e.dryRun() {
			continue
		}
		if e.Stage == stageReceived {
			open[e.AuditID] = e
			continue
		}
		delete(open, e.AuditID)
		if e.Stage != stageComplete || e.ResponseStatus.Code >= 300 {
			continue
		}
		w, from, err := writeOf(e)
		if err != nil {
			return h, err
		}
		if w.Deleted {
			deletions = append(deletions, w)
			continue
		}
		id := fmt.Sprint(w.UID, " ", w.Version)
		if from == w.Version || seen[id] {
			continue
		}
		seen[id] = true
		last[w.UID] = max(last[w.UID], w.Version)
		h.Writes = append(h.Writes, w)
	}
	for _, d := range deletions {
		d.Version = max(d.Version, last[d.UID])
		h.Writes = append(h.Writes, d)
	}
	slices.SortStableFunc(h.Writes, func(a, b Write) int {
		if a.Version == b.Version && a.Deleted != b.Deleted {
			if b.Deleted {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.Version, b.Version)
	})
	for _, id := range slices.Sorted(maps.Keys(open)) {
		w, _, err := writeOf(open[id])
		if err != nil {
			return h, err
		}
		h.Unanswered = append(h.Unanswered, w)
	}
	return h, nil
}

// writeOf converts an event. from is the version that the request was based on, or 0.
func writeOf(e Event) (w Write, from uint64, err error) {
	w = Write{
		Verb: e.Verb, Resource: e.ObjectRef.Resource, Namespace: e.ObjectRef.Namespace, Name: e.ObjectRef.Name,
		Pod: e.pod(), User: e.User.Username, Received: e.RequestReceivedTimestamp.Time, Answered: e.StageTimestamp.Time,
	}
	if e.ObjectRef.Resource == "namespaces" {
		// The API server logs the name of an existing Namespace as its namespace.
		w.Name = cmp.Or(w.Name, w.Namespace)
		w.Namespace = ""
	}
	if e.ObjectRef.Subresource != "" {
		w.Resource += "/" + e.ObjectRef.Subresource
	}
	var request map[string]any // stays nil for a JSON patch, which is a list
	_ = json.Unmarshal(e.RequestObject, &request)
	from, _ = strconv.ParseUint(text(request, "metadata", "resourceVersion"), 10, 64)
	if len(e.ResponseObject) == 0 || string(e.ResponseObject) == "null" {
		return w, from, nil
	}
	var object map[string]any
	if err := json.Unmarshal(e.ResponseObject, &object); err != nil {
		return w, 0, fmt.Errorf("read response of %v: %w", w, err)
	}
	if e.Verb == "delete" && text(object, "kind") == "Status" {
		w.Deleted = true
		w.UID = text(object, "details", "uid")
		return w, 0, nil
	}
	w.Object = object
	w.UID = text(object, "metadata", "uid")
	w.Name = cmp.Or(text(object, "metadata", "name"), w.Name)
	if w.Version, err = strconv.ParseUint(text(object, "metadata", "resourceVersion"), 10, 64); err != nil {
		return w, 0, fmt.Errorf("read resourceVersion of %v: %w", w, err)
	}
	return w, from, nil
}

// at returns the value at a path of keys, or nil.
func at(object map[string]any, path ...string) any {
	var value any = object
	for _, key := range path {
		fields, ok := value.(map[string]any)
		if !ok {
			return nil
		}
		value = fields[key]
	}
	return value
}

func text(object map[string]any, path ...string) string {
	s, _ := at(object, path...).(string)
	return s
}

func number(object map[string]any, path ...string) int {
	f, _ := at(object, path...).(float64)
	return int(f)
}

func list(object map[string]any, path ...string) []any {
	l, _ := at(object, path...).([]any)
	return l
}
