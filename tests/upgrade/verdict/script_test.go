package verdict

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// script builds an audit log. Each write gets the next version, and its response comes a second after the previous one.
type script struct {
	t       *testing.T
	lines   bytes.Buffer
	version int
	clock   time.Time
	uids    map[string]string
}

func newScript(t *testing.T) *script {
	return &script{t: t, clock: time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC), uids: map[string]string{}}
}

const home = "istio-system"

type fields = map[string]any

// request is one line of the log.
type request struct {
	verb, resource, namespace, name string
	who                             string // a Pod such as stable-1, or a user
	object                          fields
	code                            int
	from                            string
	dry                             bool
	stage                           string
}

func (s *script) log(r request) {
	s.t.Helper()
	user, extra := r.who, map[string][]string{}
	if revision, _, isPod := strings.Cut(r.who, "-"); isPod && (revision == "stable" || revision == "canary") {
		user = "system:serviceaccount:istio-system:pilot-" + revision
		extra[podExtra] = []string{r.who}
	}
	resource, subresource, _ := strings.Cut(r.resource, "/")
	if resource == "namespaces" && r.verb != "create" {
		r.namespace = r.name // as the API server logs it
	}
	ref := fields{"resource": resource, "subresource": subresource, "namespace": r.namespace, "name": r.name}
	uri := "/apis"
	if r.dry {
		uri += "?dryRun=All"
	}
	line := fields{
		"auditID": fmt.Sprint(s.version, r), "stage": r.stage, "verb": r.verb, "requestURI": uri, "user": fields{"username": user, "extra": extra},
		"objectRef": ref, "responseStatus": fields{"code": r.code}, "requestObject": fields{"metadata": fields{"resourceVersion": r.from}},
		"responseObject": r.object, "requestReceivedTimestamp": stamp(s.clock), "stageTimestamp": stamp(s.clock),
	}
	encoded, err := json.Marshal(line)
	if err != nil {
		s.t.Fatal(err)
	}
	s.lines.Write(append(encoded, '\n'))
}

func stamp(t time.Time) string { return t.Format("2006-01-02T15:04:05.000000Z") }

func (s *script) next() {
	s.version++
	s.clock = s.clock.Add(time.Second)
}

// put adds a stored write.
func (s *script) put(who, verb, resource, namespace, name string, object fields) {
	s.t.Helper()
	s.next()
	kind, _, _ := strings.Cut(resource, "/")
	id := key(kind, namespace, name)
	if s.uids[id] == "" {
		s.uids[id] = fmt.Sprint("uid-", s.version)
	}
	meta := fields{"name": name, "namespace": namespace, "uid": s.uids[id], "resourceVersion": fmt.Sprint(s.version)}
	if given, ok := object["metadata"].(fields); ok {
		maps.Copy(meta, given)
	}
	object = maps.Clone(object)
	object["metadata"] = meta
	s.log(request{verb: verb, resource: resource, namespace: namespace, name: name, who: who, object: object, code: 200, stage: stageComplete})
}

// remove adds a deletion, whose response has no version.
func (s *script) remove(who, resource, namespace, name string) {
	s.t.Helper()
	s.next()
	id := key(resource, namespace, name)
	s.log(request{verb: "delete", resource: resource, namespace: namespace, name: name, who: who, code: 200, stage: stageComplete,
		object: fields{"kind": "Status", "details": fields{"uid": s.uids[id]}}})
	delete(s.uids, id)
}

// lock adds a write of a Lease.
func (s *script) lock(who, election, holder, revision string, transitions int) {
	s.t.Helper()
	s.put(who, "update", "leases", home, election, fields{
		"metadata": fields{"annotations": fields{"leader.istio.io/holder-key": revision}},
		"spec":     fields{"holderIdentity": holder, "leaseTransitions": transitions},
	})
}

// unanswered adds a write of a Lease without a response.
func (s *script) unanswered(who, election string) {
	s.t.Helper()
	s.next()
	s.log(request{verb: "update", resource: "leases", namespace: home, name: election, who: who, stage: stageReceived})
}

func (s *script) flip(revision string) {
	s.t.Helper()
	s.put("admin", "update", "mutatingwebhookconfigurations", "", defaultTag, fields{"metadata": fields{"labels": fields{revisionLabel: revision}}})
}

// bundle adds a write that the election bundles guards.
func (s *script) bundle(who, namespace, content string) {
	s.t.Helper()
	s.put(who, "patch", "configmaps", namespace, "bundle", fields{"data": fields{"pem": content}})
}

func (s *script) space(name string) {
	s.t.Helper()
	s.put("admin", "create", "namespaces", "", name, fields{})
}

const bundles = "bundles"

func config() Config {
	return Config{
		Namespace: home,
		Revision: func(user string) string {
			_, revision, _ := strings.Cut(user, ":pilot-")
			return revision
		},
		Duties: []Duty{{Name: "bundles", Lock: bundles, Guards: func(w Write) bool { return w.Resource == "configmaps" && w.Name == "bundle" }}},
		Wanted: &Wanted{BundleName: "bundle", BundleKey: "pem", Bundle: "right", Excluded: []string{home}},
	}
}

// history reads and orders the log.
func (s *script) history() History {
	s.t.Helper()
	events, err := Read(&s.lines)
	if err != nil {
		s.t.Fatal(err)
	}
	h, err := Order(events)
	if err != nil {
		s.t.Fatal(err)
	}
	return h
}

func (s *script) judged(c Config) Verdict {
	s.t.Helper()
	return Judge(s.history(), c)
}

// handover adds the two writes of a handover.
func (s *script) handover(from, to string, transitions int) {
	s.t.Helper()
	revision, _, _ := strings.Cut(to, "-")
	s.lock(from, bundles, to, revision, transitions)
	s.lock(to, bundles, to, revision, transitions)
}
