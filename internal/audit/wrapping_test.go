package audit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"incumbent.dev/incumbent/internal/testutil/auditlog"
	"incumbent.dev/incumbent/internal/testutil/harness"
)

// asJSON returns the JSON of a value.
func asJSON(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	harness.Must(t, err)
	return string(text)
}

func indented(t *testing.T, text string) string {
	t.Helper()
	var out bytes.Buffer
	harness.Must(t, json.Indent(&out, []byte(text), "", "  "))
	return out.String()
}

// cloud returns a line as an entry of Google Cloud's audit logs, which have no pod. The address identifies the pod.
func cloud(t *testing.T, line string) string {
	t.Helper()
	var e Event
	harness.Must(t, json.Unmarshal([]byte(line), &e))
	address := map[string]string{"stable-1": "10.0.0.1", "canary-1": "10.0.0.2"}[e.Pod()]
	group, kind := "core", "core"
	if e.ObjectRef.Resource == "leases" {
		group, kind = "coordination.k8s.io", "coordination"
	}
	payload := auditlog.Fields{
		"@type": "type.googleapis.com/google.cloud.audit.AuditLog", "serviceName": "k8s.io",
		"methodName":         fmt.Sprintf("io.k8s.%s.v1.%s.%s", kind, e.ObjectRef.Resource, e.Verb),
		"resourceName":       fmt.Sprintf("%s/v1/namespaces/%s/%s/%s", group, e.ObjectRef.Namespace, e.Resource(), e.ObjectRef.Name),
		"authenticationInfo": auditlog.Fields{"principalEmail": e.User.Username},
		"requestMetadata":    auditlog.Fields{"callerIp": address, "callerSuppliedUserAgent": "pilot/v1"},
		"request":            e.RequestObject, "response": e.ResponseObject,
	}
	if e.ResponseStatus.Code != 200 {
		payload["status"] = auditlog.Fields{"code": 7, "message": "denied"}
	}
	return asJSON(t, auditlog.Fields{
		"protoPayload": payload, "insertId": e.AuditID, "timestamp": e.StageTimestamp, "operation": auditlog.Fields{"id": e.AuditID},
		"resource": auditlog.Fields{"type": "k8s_cluster", "labels": auditlog.Fields{"project_id": "p", "location": "here", "cluster_name": "one"}},
	})
}

// The verdict does not depend on how a log service wraps the events.
func TestLog_Wrappings(t *testing.T) {
	s := begun(t)
	s.Play("lock stable-1 - 1; lock canary-1 canary-1 2; bundle canary-1 a one; bundle stable-1 b one")
	s.Log(auditlog.Request{Verb: "patch", Resource: "configmaps", Namespace: "shop", Name: "bundle", Who: "stable-1", Code: 403, Stage: auditlog.Complete})
	lines := strings.Split(strings.TrimSpace(s.Lines.String()), "\n")
	each := func(f func(line string) any) (all []any) {
		for _, line := range lines {
			all = append(all, f(line))
		}
		return all
	}
	perLine := func(f func(line string) any) string {
		var out strings.Builder
		for _, line := range lines {
			out.WriteString(asJSON(t, f(line)) + "\n")
		}
		return out.String()
	}
	message := func(line string) any { return auditlog.Fields{"timestamp": 1, "message": line, "ingestionTime": 2} }
	events := func(line string) any { return json.RawMessage(line) }
	azure := func(line string) any {
		return auditlog.Fields{"time": "x", "category": "kube-audit", "resourceId": "/SUBSCRIPTIONS/1", "properties": auditlog.Fields{"log": line + "\n", "stream": "stdout"}}
	}
	insights := each(func(line string) any {
		return []any{auditlog.Fields{"field": "@message", "value": line}, auditlog.Fields{"field": "@ptr", "value": "Cm8K"}}
	})
	other := auditlog.Fields{"message": "I0102 12:00:00.000000 other log of the same group"}
	for name, text := range map[string]string{
		"events":                    strings.Join(lines, "\n"),
		"EventList":                 asJSON(t, auditlog.Fields{"kind": "EventList", "items": each(events)}),
		"list over several lines":   indented(t, asJSON(t, each(events))),
		"EventList, indented":       indented(t, asJSON(t, auditlog.Fields{"kind": "EventList", "items": each(events)})),
		"events, indented":          indented(t, lines[0]) + "\n" + strings.Join(lines[1:], "\n"),
		"aws logs filter":           indented(t, asJSON(t, auditlog.Fields{"events": append(each(message), other), "searchedLogStreams": []any{}})),
		"CloudWatch messages":       perLine(message) + asJSON(t, other),
		"CloudWatch subscription":   asJSON(t, auditlog.Fields{"messageType": "DATA_MESSAGE", "logGroup": "/aws/eks/one/cluster", "logEvents": each(message)}),
		"CloudWatch Insights":       asJSON(t, auditlog.Fields{"results": insights, "status": "Complete"}),
		"CloudWatch export to S3":   "2026-01-02T12:00:00.000Z " + strings.Join(lines, "\n2026-01-02T12:00:00.000Z "),
		"strings":                   perLine(func(line string) any { return line }),
		"Azure, a line each":        perLine(azure),
		"Azure, records":            asJSON(t, auditlog.Fields{"records": each(azure)}),
		"container logs":            perLine(func(line string) any { return auditlog.Fields{"log": line, "stream": "stdout"} }),
		"Google Cloud":              strings.Join(strings.Split(perLine(func(line string) any { return json.RawMessage(cloud(t, line)) }), "\n"), "\n"),
		"Google Cloud, list":        indented(t, asJSON(t, each(func(line string) any { return json.RawMessage(cloud(t, line)) }))),
		"events with other fields":  perLine(func(line string) any { return json.RawMessage(strings.Replace(line, "{", `{"new":{"field":[1]},`, 1)) }),
		"events of several servers": strings.Join(slices.Concat(lines, lines), "\n"),
	} {
		if got := summary(examined(t, options(), text)); got != "interleaved stable-1 1 late 3s overlap 2s" {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// What cannot be read is an error or makes the log insufficient.
func TestLog_BrokenWrappings(t *testing.T) {
	lines := begun(t).Lines.String()
	first, _, _ := strings.Cut(lines, "\n")
	for name, c := range map[string]struct{ text, want string }{
		"shortened message":   {asJSON(t, []any{auditlog.Fields{"message": first}, auditlog.Fields{"message": first[:90]}}), "1 lines are not JSON events, first log1: value 2"},
		"end of a list":       {"[" + first + ",", "the file is truncated: log1: value 2"},
		"list without an end": {"[" + first, "the file is truncated: log1"},
		"deep wrappings":      {strings.Repeat(`{"message":`, maxDepth+2) + first + strings.Repeat("}", maxDepth+2) + "\n" + first, "1 lines are not JSON events, first log1:1"},
		"no JSON in a list":   {"[" + first + ", nothing]", "1 lines are not JSON events, first log1: value 2"},
	} {
		if got := summary(examined(t, options(), c.text)); !strings.Contains(got, c.want) {
			t.Errorf("%s: %q", name, got)
		}
	}
	for name, c := range map[string]struct{ text, want string }{
		"unknown in a list": {"[" + first + `,{"a":1,"b":{}}]`, `value 2: not an event of an audit log, and no known wrapping of one: it has the fields "a", "b"`},
		"large value":       {`["` + strings.Repeat("x", longestLine+1<<20) + `"]`, "longer than 32 MiB"},
		"no payload":        {`{"protoPayload":7}`, "decode protoPayload"},
	} {
		if err := NewLog().Read("log", strings.NewReader(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	one := cloud(t, first)
	two := strings.Replace(one, `"cluster_name":"one"`, `"cluster_name":"two"`, 1)
	if got := summary(examined(t, options(), one, two)); !strings.Contains(got, "log1 is of cluster p/here/one, and log2 of cluster p/here/two") {
		t.Errorf("two clusters: %q", got)
	}
}
