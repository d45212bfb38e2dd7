package verdict

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
		"responseObject": r.object, "requestReceivedTimestamp": metav1.NewMicroTime(s.clock), "stageTimestamp": metav1.NewMicroTime(s.clock),
	}
	encoded, err := json.Marshal(line)
	if err != nil {
		s.t.Fatal(err)
	}
	s.lines.Write(append(encoded, '\n'))
}

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

// play adds the writes of a text, such as "flip canary; lock stable-1 canary-1 2". Each has a verb and words:
//
//	flip REVISION                   the default revision changes
//	lock WHO HOLDER TRANSITIONS     WHO writes the Lease; the holder - is empty
//	name POD                        a coordinator in a Pod names that Pod
//	unanswered WHO LOCK             WHO writes a Lease and gets no response
//	bundle WHO NAMESPACE CONTENT    WHO makes a write that the election guards
//	space NAMESPACE, terminate NAMESPACE, remove RESOURCE NAMESPACE NAME
//	put RESOURCE NAMESPACE NAME JSON
//	wait SECONDS                    the clock advances
func (s *script) play(text string) {
	s.t.Helper()
	for line := range strings.SplitSeq(text, ";") {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		switch args := words[1:]; words[0] {
		case "flip":
			s.put("admin", "update", "mutatingwebhookconfigurations", "", defaultTag, fields{"metadata": fields{"labels": fields{revisionLabel: args[0]}}})
		case "lock":
			s.lock(args[0], strings.Trim(args[1], "-"), s.number(args[2]))
		case "name":
			s.put(args[0], "update", "leases", home, bundles, fields{
				"metadata": fields{"annotations": fields{"leader.istio.io/holder-key": "stable", "incumbent.dev/strategy": "x"}},
				"spec":     fields{"holderIdentity": args[0] + "." + bundles, "leaseTransitions": 1, "leaseDurationSeconds": nominationSeconds},
			})
		case "unanswered":
			s.next()
			s.log(request{verb: "update", resource: "leases", namespace: home, name: args[1], who: args[0], stage: stageReceived})
		case "bundle":
			s.put(args[0], "patch", "configmaps", args[1], "bundle", fields{"data": fields{"pem": args[2]}})
		case "space":
			s.put("admin", "create", "namespaces", "", args[0], fields{})
		case "terminate":
			s.put("admin", "delete", "namespaces", "", args[0], fields{"metadata": fields{"deletionTimestamp": "now"}})
		case "remove":
			s.remove(args[0], strings.Trim(args[1], "-"), args[2])
		case "put":
			var object fields
			if err := json.Unmarshal([]byte(args[3]), &object); err != nil {
				s.t.Fatal(err)
			}
			s.put("admin", "update", args[0], args[1], args[2], object)
		case "wait":
			s.clock = s.clock.Add(time.Duration(s.number(args[0])) * time.Second)
		default:
			s.t.Fatalf("unknown verb %q", words[0])
		}
	}
}

func (s *script) number(text string) int {
	s.t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

// lock adds a write of a Lease.
func (s *script) lock(who, holder string, transitions int) {
	s.t.Helper()
	revision, _, _ := strings.Cut(holder, "-")
	s.put(who, "update", "leases", home, bundles, fields{
		"metadata": fields{"annotations": fields{"leader.istio.io/holder-key": revision}},
		"spec":     fields{"holderIdentity": holder, "leaseTransitions": transitions},
	})
}

// remove adds a deletion, whose response has no version.
func (s *script) remove(resource, namespace, name string) {
	s.t.Helper()
	s.next()
	id := key(resource, namespace, name)
	s.log(request{verb: "delete", resource: resource, namespace: namespace, name: name, who: "admin", code: 200, stage: stageComplete,
		object: fields{"kind": "Status", "details": fields{"uid": s.uids[id]}}})
	delete(s.uids, id)
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
