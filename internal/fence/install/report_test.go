package install

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"incumbent.dev/incumbent/internal/fence"
	"incumbent.dev/incumbent/internal/testutil/harness"
)

func TestReport(t *testing.T) {
	const ours, other = fence.PolicyPrefix + "s.work-1", fence.PolicyPrefix + "s.work-2"
	base := auditLine{stage: "ResponseComplete", verb: "update", user: "u", pods: `"p"`, resource: "configmaps", namespace: "ns", name: "x", message: denied(ours, "first")}
	with := func(change func(*auditLine)) auditLine { l := base; change(&l); return l }
	var log strings.Builder
	for _, l := range []auditLine{
		with(func(l *auditLine) { l.at = 5 }),
		with(func(l *auditLine) { l.at = 3; l.message = denied(ours, "second") }),
		with(func(l *auditLine) { l.at = 9; l.message = denied(ours, "third") }),
		with(func(l *auditLine) { l.at = 4; l.message = denied(ours, "last") }),
		with(func(l *auditLine) { l.stage = "RequestReceived" }),
		with(func(l *auditLine) { l.message = "" }),
		with(func(l *auditLine) { l.message = denied("another", "theirs") }),
		with(func(l *auditLine) { l.verb = "patch" }),
		with(func(l *auditLine) { l.message = denied(other, "another policy") }),
		with(func(l *auditLine) { l.user = "t" }),
		with(func(l *auditLine) { l.pods = `"q"` }),
		with(func(l *auditLine) { l.pods = `"p","q"` }),
		with(func(l *auditLine) { l.pods = "" }),
		with(func(l *auditLine) { l.name = "a" }),
		with(func(l *auditLine) { l.namespace, l.resource, l.name = "", "nodes", "n" }),
		with(func(l *auditLine) { l.resource, l.sub = "pods", "exec" }),
		with(func(l *auditLine) {
			l.message, l.failures = "", `[{"message":"theirs","policy":"another"},{"message":"admitted","policy":"`+ours+`"}]`
		}),
		with(func(l *auditLine) { l.message, l.failures = "", `[{"message":"theirs","policy":"another"}]` }),
		with(func(l *auditLine) { l.message, l.failures = "", `no JSON` }),
		// With both messages, the request was rejected.
		with(func(l *auditLine) { l.name, l.failures = "b", `[{"message":"admitted","policy":"`+other+`"}]` }),
		// Without "denied request", the rest is the message.
		with(func(l *auditLine) { l.name, l.message = "c", "ValidatingAdmissionPolicy '"+ours+"' with binding 'b'" }),
	} {
		log.WriteString(l.String())
	}
	log.WriteString("\n  \n" + with(func(l *auditLine) { l.name = strings.Repeat("n", 1<<20) }).String())
	found, err := Report("log", strings.NewReader(log.String()))
	harness.Must(t, err)
	var got []string
	for _, f := range found {
		f.Object = strings.ReplaceAll(f.Object, strings.Repeat("n", 1<<20), "long")
		got = append(got, f.String())
	}
	const line = "%6d  %-17s  %s %s by %s, last at 2026-01-02T03:04:%02dZ: %s"
	want := []string{
		fmt.Sprintf(line, 4, "rejected", "update", "configmaps ns/x", "u (pod p)", 9, "last"),
		// A token with two pods counts as not bound to a pod.
		fmt.Sprintf(line, 2, "rejected", "update", "configmaps ns/x", "u", 0, "first"),
		fmt.Sprintf(line, 1, "rejected", "update", "configmaps ns/a", "u (pod p)", 0, "first"),
		fmt.Sprintf(line, 1, "rejected", "update", "configmaps ns/b", "u (pod p)", 0, "first"),
		fmt.Sprintf(line, 1, "rejected", "update", "configmaps ns/c", "u (pod p)", 0, " with binding 'b'"),
		fmt.Sprintf(line, 1, "rejected", "update", "configmaps ns/long", "u (pod p)", 0, "first"),
		fmt.Sprintf(line, 1, "rejected", "update", "configmaps ns/x", "t (pod p)", 0, "first"),
		fmt.Sprintf(line, 1, "rejected", "patch", "configmaps ns/x", "u (pod p)", 0, "first"),
		fmt.Sprintf(line, 1, "would be rejected", "update", "configmaps ns/x", "u (pod p)", 0, "admitted"),
		fmt.Sprintf(line, 1, "rejected", "update", "configmaps ns/x", "u (pod p)", 0, "another policy"),
		fmt.Sprintf(line, 1, "rejected", "update", "configmaps ns/x", "u (pod q)", 0, "first"),
		fmt.Sprintf(line, 1, "rejected", "update", "nodes n", "u (pod p)", 0, "first"),
		fmt.Sprintf(line, 1, "rejected", "update", "pods/exec ns/x", "u (pod p)", 0, "first"),
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if f := found[0]; f.First.Second() != 3 || f.Last.Second() != 9 || f.Policy != ours {
		t.Errorf("%+v", f)
	}
	// An incomplete log is reported together with its violations.
	if found, err := Report("log", strings.NewReader(base.String()+"not an event\n"+base.String())); err == nil || len(found) != 1 || found[0].Count != 2 ||
		!strings.Contains(err.Error(), "log: the audit log does not suffice: 1 lines are not JSON events, first log:2") {
		t.Errorf("invalid line: %v, %v", found, err)
	}
	broken := errors.New("no such disk")
	if _, err := Report("log", io.MultiReader(strings.NewReader(base.String()), iotest.ErrReader(broken))); !errors.Is(err, broken) || !strings.HasPrefix(err.Error(), "log:2: ") {
		t.Errorf("got %v", err)
	}
}

// auditLine is one of an audit log.
type auditLine struct {
	stage, verb, user, pods string
	resource, sub           string
	namespace, name         string
	at                      int // seconds
	message, failures       string
}

func (l auditLine) String() string {
	at := time.Date(2026, 1, 2, 3, 4, l.at, 0, time.UTC).Format(time.RFC3339)
	return fmt.Sprintf(`{"stage":%q,"requestReceivedTimestamp":%q,"verb":%q,"user":{"username":%q,"extra":{%q:[%s]}},`+
		`"objectRef":{"resource":%q,"subresource":%q,"namespace":%q,"name":%q},"responseStatus":{"message":%q},"annotations":{%q:%q}}`+"\n",
		l.stage, at, l.verb, l.user, fence.PodClaim, l.pods, l.resource, l.sub, l.namespace, l.name, l.message, failureAnnotation, l.failures)
}

func denied(policy, why string) string {
	return "x is forbidden: ValidatingAdmissionPolicy '" + policy + "' with binding '" + policy + "' denied request: " + why
}
