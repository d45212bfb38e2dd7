package verdict

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// History is what was stored, in the order in which it was.
type History struct {
	Writes []Write
	// Unanswered are writes of which no log has the answer: they may have been stored or not.
	Unanswered []Write
	// Needless were accepted and changed nothing, Refused were not accepted: by the pod that sent them.
	Needless, Refused map[string]int
}

// Order puts the events of all API servers' logs into one history.
func Order(logs ...[]Event) (History, error) {
	h := History{Needless: map[string]int{}, Refused: map[string]int{}}
	open := map[string]Event{}
	seen, last := map[string]bool{}, map[string]uint64{} // versions of an object; its last
	var deletions []Write
	for _, log := range logs {
		for _, e := range log {
			if e.dryRun() {
				continue
			}
			if e.Stage == stageReceived {
				open[e.AuditID] = e
				continue
			}
			delete(open, e.AuditID)
			if e.Stage != stageComplete || e.ResponseStatus.Code >= 300 {
				h.Refused[e.pod()]++
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
				h.Needless[w.Pod]++
				continue
			}
			seen[id] = true
			last[w.UID] = max(last[w.UID], w.Version)
			h.Writes = append(h.Writes, w)
		}
	}
	for _, d := range deletions {
		d.Version = max(d.Version, last[d.UID])
		h.Writes = append(h.Writes, d)
	}
	slices.SortStableFunc(h.Writes, func(a, b Write) int {
		return cmp.Or(cmp.Compare(a.Version, b.Version), compareBool(a.Deleted, b.Deleted))
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

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// writeOf reads a write, and the version that its request says it is based on; 0 if it does not.
func writeOf(e Event) (w Write, from uint64, err error) {
	w = Write{
		Verb: e.Verb, Resource: e.ObjectRef.Resource, Namespace: e.ObjectRef.Namespace, Name: e.ObjectRef.Name,
		Pod: e.pod(), User: e.User.Username, Came: e.RequestReceivedTimestamp.Time, Answered: e.StageTimestamp.Time,
	}
	if e.ObjectRef.Resource == "namespaces" {
		// Requests about one that there is are noted as in it, the one that makes it is not.
		w.Name, w.Namespace = cmp.Or(w.Name, w.Namespace), ""
	}
	if e.ObjectRef.Subresource != "" {
		w.Resource += "/" + e.ObjectRef.Subresource
	}
	var request map[string]any // a JSON patch is a list, and has none
	_ = json.Unmarshal(e.RequestObject, &request)
	from, _ = strconv.ParseUint(text(request, "metadata", "resourceVersion"), 10, 64)
	if len(e.ResponseObject) == 0 || string(e.ResponseObject) == "null" {
		return w, from, nil
	}
	var object map[string]any
	if err := json.Unmarshal(e.ResponseObject, &object); err != nil {
		return w, 0, fmt.Errorf("what %v left cannot be read: %w", w, err)
	}
	if e.Verb == "delete" && text(object, "kind") == "Status" {
		w.Deleted, w.UID = true, text(object, "details", "uid")
		return w, 0, nil
	}
	w.Object, w.UID = object, text(object, "metadata", "uid")
	if name := text(object, "metadata", "name"); name != "" {
		w.Name = name
	}
	if w.Version, err = strconv.ParseUint(text(object, "metadata", "resourceVersion"), 10, 64); err != nil {
		return w, 0, fmt.Errorf("the resourceVersion that %v left: %w", w, err)
	}
	return w, from, nil
}

// at is the value below some keys, nil when there is none.
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
