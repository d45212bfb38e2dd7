package install

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"incumbent.dev/incumbent/internal/audit"
	"incumbent.dev/incumbent/internal/fence"
)

// Found is a group of equal violations in an audit log.
type Found struct {
	Policy string `json:"policy"`
	User   string `json:"user"`
	Pod    string `json:"pod,omitempty"`
	Verb   string `json:"verb"`
	Object string `json:"object"`
	// Refused is false if the write was admitted because of mode audit or warn.
	Refused bool `json:"refused"`
	// Count is the number of violations in the Span.
	Count int `json:"count"`
	audit.Span
	// Message is the most recent message.
	Message string `json:"message"`
}

func (f Found) String() string {
	who, what := f.User, "would be rejected"
	if f.Pod != "" {
		who += " (pod " + f.Pod + ")"
	}
	if f.Refused {
		what = "rejected"
	}
	return fmt.Sprintf("%6d  %-17s  %s %s by %s, last at %s: %s", f.Count, what, f.Verb, f.Object, who, f.Last.UTC().Format(time.RFC3339), f.Message)
}

// failureAnnotation is the audit annotation for admitted violations.
const failureAnnotation = "validation.policy.admission.k8s.io/validation_failure"

// Report reads an audit log, whose name is used in errors. It returns the violations that fences rejected, or admitted in mode audit or
// warn, the most frequent first. It also returns them if the log is incomplete.
func Report(name string, log io.Reader) ([]Found, error) {
	all := map[Found]*Found{}
	var reading audit.Reading
	// Requests to connect are logged as reads.
	skip := func([]byte) bool { return false }
	err := reading.Read(name, log, skip, func(e audit.Event) error {
		if e.Stage != "ResponseComplete" {
			return nil // each request is logged in several stages
		}
		found, any := foundBy(e)
		if !any {
			return nil
		}
		key := found
		key.Message = ""
		if all[key] == nil {
			all[key] = new(key)
		}
		f := all[key]
		f.Count++
		f.Message = found.Message
		f.Add(e.RequestReceivedTimestamp)
		return nil
	})
	if reasons := reading.Incomplete(); err == nil && len(reasons) > 0 {
		err = fmt.Errorf("%s: the audit log does not suffice: %s", name, strings.Join(reasons, "; "))
	}
	report := make([]Found, 0, len(all))
	for _, f := range all {
		report = append(report, *f)
	}
	slices.SortFunc(report, func(a, b Found) int {
		return cmp.Or(b.Count-a.Count, cmp.Compare(a.Object, b.Object), cmp.Compare(a.User+a.Pod, b.User+b.Pod), cmp.Compare(a.Policy, b.Policy), cmp.Compare(a.Verb, b.Verb))
	})
	return report, err
}

// foundBy returns the violation of a request. It returns false if no fence caused it.
func foundBy(e audit.Event) (Found, bool) {
	f := Found{User: e.User.Username, Pod: e.Pod(), Verb: e.Verb}
	f.Object = e.Resource() + " " + strings.TrimPrefix(e.ObjectRef.Namespace+"/"+e.ObjectRef.Name, "/")
	// During a change of mode, an event can have a message of both modes.
	if f.Policy, f.Message, f.Refused = fence.ParseRefusal(e.ResponseStatus.Message); f.Refused {
		return f, true
	}
	var failures []struct {
		Message string `json:"message"`
		Policy  string `json:"policy"`
	}
	if text := e.Annotations[failureAnnotation]; text != "" && json.Unmarshal([]byte(text), &failures) == nil {
		for _, failure := range failures {
			if strings.HasPrefix(failure.Policy, fence.PolicyPrefix) {
				f.Policy, f.Message = failure.Policy, failure.Message
				return f, true
			}
		}
	}
	return f, false
}
