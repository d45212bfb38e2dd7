package install

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

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
	// Count is the number of violations between First and Last.
	Count int       `json:"count"`
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
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

// again adds a violation.
func (f *Found) again(message string, at time.Time) {
	f.Count++
	f.Message = message
	if at.Before(f.First) {
		f.First = at
	}
	if at.After(f.Last) {
		f.Last = at
	}
}

// failureAnnotation is the audit annotation for admitted violations.
const failureAnnotation = "validation.policy.admission.k8s.io/validation_failure"

// auditEvent has the relevant fields of an audit event.
type auditEvent struct {
	Stage string    `json:"stage"`
	At    time.Time `json:"requestReceivedTimestamp"`
	Verb  string    `json:"verb"`
	User  struct {
		Username string              `json:"username"`
		Extra    map[string][]string `json:"extra"`
	} `json:"user"`
	Object struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	Response struct {
		Message string `json:"message"`
	} `json:"responseStatus"`
	Annotations map[string]string `json:"annotations"`
}

// longestLine is the maximum size of a line, which can include request bodies.
const longestLine = 16 << 20

// Report reads an audit log with one JSON event per line. It returns the violations that fences rejected, or admitted in
// mode audit or warn, the most frequent first.
func Report(log io.Reader) ([]Found, error) {
	all := map[Found]*Found{}
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, longestLine)
	for n := 1; lines.Scan(); n++ {
		if len(strings.TrimSpace(lines.Text())) == 0 {
			continue
		}
		var event auditEvent
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			return nil, fmt.Errorf("line %d of the audit log is not a JSON event: %w", n, err)
		}
		if event.Stage != "ResponseComplete" && event.Stage != "" {
			continue // each request is logged in several stages
		}
		found, any := event.found()
		if !any {
			continue
		}
		key := found
		key.Message = ""
		if all[key] == nil {
			first := key
			first.First = event.At
			all[key] = &first
		}
		all[key].again(found.Message, event.At)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read the audit log: %w", err)
	}
	report := make([]Found, 0, len(all))
	for _, f := range all {
		report = append(report, *f)
	}
	slices.SortFunc(report, func(a, b Found) int {
		return cmp.Or(b.Count-a.Count, cmp.Compare(a.Object, b.Object), cmp.Compare(a.User+a.Pod, b.User+b.Pod), cmp.Compare(a.Policy, b.Policy), cmp.Compare(a.Verb, b.Verb))
	})
	return report, nil
}

// found decodes an event. It returns false if no fence caused it.
func (e auditEvent) found() (Found, bool) {
	f := Found{User: e.User.Username, Verb: e.Verb, Object: e.Object.Resource}
	if pods := e.User.Extra[fence.PodClaim]; len(pods) == 1 {
		f.Pod = pods[0]
	}
	if e.Object.Subresource != "" {
		f.Object += "/" + e.Object.Subresource
	}
	f.Object += " " + strings.TrimPrefix(e.Object.Namespace+"/"+e.Object.Name, "/")
	// During a change of mode, an event can have a message of both modes.
	if _, rest, ours := strings.Cut(e.Response.Message, "ValidatingAdmissionPolicy '"+fence.PolicyPrefix); ours {
		name, rest, _ := strings.Cut(rest, "'")
		if _, message, found := strings.Cut(rest, "denied request: "); found {
			rest = message
		}
		f.Policy, f.Message, f.Refused = fence.PolicyPrefix+name, rest, true
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
