package audit

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Log services wrap the events of audit logs. wrappings are the fields in which they have an event, a list, or either as a string:
// lists of events, CloudWatch of EKS, Azure Monitor of AKS, and shippers of container logs.
var wrappings = []string{"items", "message", "@message", "log", "jsonPayload", "properties", "events", "logEvents", "records", "results", "value"}

// clusterFields name the cluster in a wrapping.
var clusterFields = []string{"logGroup", "@log", "resourceId"}

// errBroken means that a wrapping has an event that is not JSON, for example because the service shortened it.
var errBroken = errors.New("event in the wrapping is not JSON")

// maxDepth limits nested wrappings, because each is decoded again.
const maxDepth = 10

// unwrap returns the events in a JSON value, or none.
func unwrap(raw []byte, cluster string, depth int) (events []Event, err error) {
	raw = bytes.TrimSpace(raw)
	switch {
	case len(raw) == 0:
	case depth > maxDepth:
		return nil, errBroken
	case raw[0] == '"':
		var text string
		if err := json.Unmarshal(raw, &text); err != nil {
			return nil, err
		}
		text = strings.TrimSpace(text)
		if !strings.HasPrefix(text, "{") && !strings.HasPrefix(text, "[") {
			return nil, nil // the service has other logs, too
		}
		if !json.Valid([]byte(text)) {
			return nil, errBroken
		}
		return unwrap([]byte(text), cluster, depth+1)
	case raw[0] == '[':
		var list []json.RawMessage
		if err := json.Unmarshal(raw, &list); err != nil {
			return nil, err
		}
		return unwrapAll(list, cluster, depth+1)
	case raw[0] == '{':
		var e Event
		if err := json.Unmarshal(raw, &e); err == nil && e.Verb != "" && e.Stage != "" {
			e.Cluster = cluster
			return []Event{e}, nil
		}
		return unwrapObject(raw, cluster, depth)
	default:
		return nil, json.Unmarshal(raw, new(any)) // other JSON has no events
	}
	return nil, nil
}

func unwrapAll(list []json.RawMessage, cluster string, depth int) (events []Event, err error) {
	for _, raw := range list {
		more, err := unwrap(raw, cluster, depth)
		if err != nil {
			return nil, err
		}
		events = append(events, more...)
	}
	return events, nil
}

func unwrapObject(raw []byte, cluster string, depth int) ([]Event, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return nil, err
	}
	for _, name := range clusterFields {
		var text string
		if json.Unmarshal(fields[name], &text) == nil {
			cluster = cmp.Or(text, cluster)
		}
	}
	if fields["protoPayload"] != nil {
		var entry cloudEntry
		if err := json.Unmarshal(raw, &entry); err != nil {
			return nil, fmt.Errorf("decode protoPayload: %w", err)
		}
		return []Event{entry.event()}, nil
	}
	var list []json.RawMessage
	for _, name := range wrappings {
		if value := fields[name]; value != nil {
			list = append(list, value)
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("not an event of an audit log, and no known wrapping of one: it has %s", fieldsOf(raw))
	}
	return unwrapAll(list, cluster, depth+1)
}

// fieldsOf returns the names of the fields of an object, for an error.
func fieldsOf(line []byte) string {
	decoder := json.NewDecoder(bytes.NewReader(line))
	var names []string
	if first, err := decoder.Token(); err != nil || first != json.Delim('{') {
		return "no fields"
	}
	const most = 12
	for decoder.More() && len(names) < most {
		name, err := decoder.Token()
		var value json.RawMessage
		if err != nil || decoder.Decode(&value) != nil {
			break
		}
		names = append(names, fmt.Sprintf("%.40q", name))
	}
	if len(names) == 0 {
		return "no fields"
	}
	return "the fields " + strings.Join(names, ", ")
}

// cloudEntry is an event in the audit logs of Google Cloud.
type cloudEntry struct {
	InsertID  string
	Timestamp time.Time
	Labels    map[string]string
	Operation struct{ ID string }
	Resource  struct{ Labels map[string]string }

	ProtoPayload struct {
		MethodName, ResourceName string
		AuthenticationInfo       struct{ PrincipalEmail string }
		RequestMetadata          struct{ CallerIP, CallerSuppliedUserAgent string }
		Request, Response        json.RawMessage
		Status                   struct {
			Code    int
			Message string
		}
	}
}

// uncertainCodes are the codes of gRPC for a code of 500 or more.
var uncertainCodes = []int{2, 4, 13, 14, 15}

func (c cloudEntry) event() Event {
	p := c.ProtoPayload
	e := Event{
		Kind: "Event", Stage: stageComplete, AuditID: cmp.Or(c.Operation.ID, c.InsertID), UserAgent: p.RequestMetadata.CallerSuppliedUserAgent,
		SourceIPs: []string{p.RequestMetadata.CallerIP}, Annotations: c.Labels, RequestObject: p.Request, ResponseObject: p.Response,
		RequestReceivedTimestamp: c.Timestamp, StageTimestamp: c.Timestamp,
		Cluster: strings.Trim(c.Resource.Labels["project_id"]+"/"+c.Resource.Labels["location"]+"/"+c.Resource.Labels["cluster_name"], "/"),
	}
	e.User.Username = p.AuthenticationInfo.PrincipalEmail
	e.Verb = p.MethodName[strings.LastIndex(p.MethodName, ".")+1:]
	e.ResponseStatus.Message = p.Status.Message
	switch {
	case p.Status.Code == 0:
		e.ResponseStatus.Code = 200
	case slices.Contains(uncertainCodes, p.Status.Code):
		e.ResponseStatus.Code = 500
	default:
		e.ResponseStatus.Code = 400
	}
	// GROUP/VERSION/[namespaces/NAMESPACE/]RESOURCE[/NAME[/SUBRESOURCE]]
	path := strings.Split(p.ResourceName, "/")
	if len(path) > 2 && path[0] != "core" {
		e.ObjectRef.APIGroup = path[0]
	}
	path = path[min(2, len(path)):]
	if len(path) > 2 && path[0] == "namespaces" {
		e.ObjectRef.Namespace = path[1]
		path = path[2:]
	}
	for i, field := range []*string{&e.ObjectRef.Resource, &e.ObjectRef.Name, &e.ObjectRef.Subresource} {
		if i < len(path) {
			*field = path[i]
		}
	}
	return e
}

// document reads a file that has JSON values over several lines, for example the output of a command-line tool.
func (r *Reading) document(name string, from *bufio.Reader, add func(Event) error) error {
	bound := &bounded{from: from}
	decoder := json.NewDecoder(bound)
	list := false
	if start, _ := from.Peek(1); string(start) == "[" {
		_, _ = decoder.Token() // decode its elements
		list = true
	}
	for number := 1; decoder.More(); number++ {
		bound.read = 0
		at := fmt.Sprintf("%s: value %d", name, number)
		var raw json.RawMessage
		err := decoder.Decode(&raw)
		var syntax *json.SyntaxError
		switch {
		case errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF):
			r.Truncated = append(r.Truncated, at)
			return nil
		case errors.As(err, &syntax):
			r.broken(at)
			return nil
		case err != nil:
			return fmt.Errorf("%s: %w", at, err)
		}
		events, err := unwrap(raw, "", 0)
		if err := r.take(at, events, err, add); err != nil {
			return err
		}
	}
	if _, err := decoder.Token(); err != nil && (list || !errors.Is(err, io.EOF)) {
		r.Truncated = append(r.Truncated, name)
	}
	return nil
}

// bounded is a reader that fails after longestLine bytes.
type bounded struct {
	from io.Reader
	read int
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.read >= longestLine {
		return 0, errTooLong
	}
	n, err := b.from.Read(p[:min(len(p), longestLine-b.read)])
	b.read += n
	return n, err
}

// take adds the events that unwrap returned.
func (r *Reading) take(at string, events []Event, err error, add func(Event) error) error {
	switch {
	case errors.Is(err, errBroken):
		r.broken(at)
		return nil
	case err != nil:
		return fmt.Errorf("%s: %w", at, err)
	}
	for _, e := range events {
		r.Events++
		if err := add(e); err != nil {
			return err
		}
	}
	return nil
}
