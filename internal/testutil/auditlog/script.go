package auditlog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/testutil/harness"
)

// Script builds an audit log. Each write gets the next version, and its response comes a second after the previous one.
type Script struct {
	// Lines is the log.
	Lines bytes.Buffer
	// Clock is the time of the last response.
	Clock time.Time
	// UIDs are the UIDs of the objects, by Key.
	UIDs map[string]string
	// Bare leaves out the bodies of requests and responses, except for locks. Blind leaves out the bodies of locks too.
	Bare, Blind bool
	// Lock is the resource of the lock. Default: leases. Lease is its lease duration in seconds.
	Lock  string
	Lease int

	// Version is the version of the last write.
	Version int

	t testing.TB
}

// New returns an empty script.
func New(t testing.TB) *Script {
	return &Script{t: t, Clock: time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC), UIDs: map[string]string{}, Lock: "leases"}
}

const (
	// Home is the namespace of the lock Bundles.
	Home    = "istio-system"
	Bundles = "bundles"
	// Complete and Received are stages of a request.
	Complete = "ResponseComplete"
	Received = "RequestReceived"
)

// Fields is a JSON object.
type Fields = map[string]any

// Request is one line of the log.
type Request struct {
	Verb, Resource, Namespace, Name string
	// Who is a Pod such as stable-1, or a user.
	Who    string
	Object Fields
	Code   int
	// From is the version in the request.
	From  string
	Query string
	// Sent is the body of the request, if it has another one than an empty object with From.
	Sent  Fields
	Level string
	Stage string
}

// Key returns the key of an object. kind has no subresource.
func Key(kind, namespace, name string) string { return kind + " " + namespace + "/" + name }

// Log adds a line.
func (s *Script) Log(r Request) {
	s.t.Helper()
	user, extra := r.Who, map[string][]string{}
	if revision, _, isPod := strings.Cut(r.Who, "-"); isPod && (revision == "stable" || revision == "canary") {
		user = "system:serviceaccount:istio-system:pilot-" + revision
		extra["authentication.kubernetes.io/pod-name"] = []string{r.Who}
	}
	resource, subresource, _ := strings.Cut(r.Resource, "/")
	if resource == "namespaces" && r.Verb != "create" {
		r.Namespace = r.Name // as the API server logs it
	}
	ref := Fields{"resource": resource, "subresource": subresource, "namespace": r.Namespace, "name": r.Name}
	uri := "/apis"
	if r.Query != "" {
		uri += "?" + r.Query
	}
	var sent Fields
	if bare := s.Bare && resource != s.Lock || s.Blind; bare {
		r.Object = nil
	} else {
		sent = Fields{"metadata": Fields{"resourceVersion": r.From}}
	}
	if r.Sent != nil || r.Verb == "delete" {
		sent = r.Sent
	}
	line := Fields{
		"kind": "Event", "level": r.Level, "auditID": fmt.Sprint(s.Version, r), "stage": r.Stage, "verb": r.Verb, "requestURI": uri, "user": Fields{"username": user, "extra": extra},
		"objectRef": ref, "responseStatus": Fields{"code": r.Code}, "requestObject": sent,
		"responseObject": r.Object, "requestReceivedTimestamp": metav1.NewMicroTime(s.Clock), "stageTimestamp": metav1.NewMicroTime(s.Clock),
	}
	encoded, err := json.Marshal(line)
	harness.Must(s.t, err)
	s.Lines.Write(append(encoded, '\n'))
}

// Next advances the clock by a second and the version by 1.
func (s *Script) Next() {
	s.Version++
	s.Clock = s.Clock.Add(time.Second)
}

// Put adds a stored write.
func (s *Script) Put(who, verb, resource, namespace, name string, object Fields) {
	s.t.Helper()
	s.Next()
	kind, _, _ := strings.Cut(resource, "/")
	id := Key(kind, namespace, name)
	if s.UIDs[id] == "" {
		if verb == "update" {
			verb = "create"
		}
		s.UIDs[id] = fmt.Sprint("uid-", s.Version)
	}
	meta := Fields{"name": name, "namespace": namespace, "uid": s.UIDs[id], "resourceVersion": fmt.Sprint(s.Version)}
	if given, ok := object["metadata"].(Fields); ok {
		maps.Copy(meta, given)
	}
	object = maps.Clone(object)
	object["metadata"] = meta
	s.Log(Request{Verb: verb, Resource: resource, Namespace: namespace, Name: name, Who: who, Object: object, Code: 200, Stage: Complete})
}

// Play adds the writes of a text, such as "flip canary; lock stable-1 canary-1 2". Each has a verb and words:
//
//	flip REVISION                   the default revision changes
//	lock WHO HOLDER TRANSITIONS     WHO writes the Lease; the holder - is empty
//	name POD                        a coordinator in a Pod names that Pod
//	unanswered WHO LOCK             WHO writes a Lease and gets no response
//	failed WHO LOCK CODE STAGE      WHO writes a Lease and gets an error
//	bundle WHO NAMESPACE CONTENT    WHO makes a write that the election guards
//	hold LOCK WHO HOLDER TRANSITIONS WHO writes another Lease
//	write RESOURCE WHO NAME         WHO writes an object
//	space NAMESPACE, remove RESOURCE NAMESPACE NAME
//	put RESOURCE NAMESPACE NAME JSON
//	wait SECONDS                    the clock advances
func (s *Script) Play(text string) {
	s.t.Helper()
	for line := range strings.SplitSeq(text, ";") {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		switch args := words[1:]; words[0] {
		case "flip":
			s.Put("admin", "update", "mutatingwebhookconfigurations", "", "istio-revision-tag-default", Fields{"metadata": Fields{"labels": Fields{"istio.io/rev": args[0]}}})
		case "lock":
			s.lock(Bundles, args[0], strings.Trim(args[1], "-"), s.number(args[2]))
		case "hold":
			s.lock(args[0], args[1], strings.Trim(args[2], "-"), s.number(args[3]))
		case "write":
			s.Put(args[1], "patch", args[0], "shop", args[2], Fields{})
		case "name":
			s.Put(args[0], "update", "leases", Home, Bundles, Fields{
				"metadata": Fields{"annotations": Fields{"leader.istio.io/holder-key": "stable", "incumbent.dev/strategy": "x"}},
				"spec":     Fields{"holderIdentity": args[0] + "." + Bundles, "leaseTransitions": 1, "leaseDurationSeconds": 5},
			})
		case "unanswered":
			s.Next()
			s.Log(Request{Verb: "update", Resource: "leases", Namespace: Home, Name: args[1], Who: args[0], Stage: Received})
		case "failed":
			s.Next()
			s.Log(Request{Verb: "update", Resource: "leases", Namespace: Home, Name: args[1], Who: args[0], Code: s.number(args[2]), Stage: args[3]})
		case "bundle":
			s.Put(args[0], "patch", "configmaps", args[1], "bundle", Fields{"data": Fields{"pem": args[2]}})
		case "space":
			s.Put("admin", "create", "namespaces", "", args[0], Fields{})
		case "remove":
			s.remove(args[0], strings.Trim(args[1], "-"), args[2])
		case "put":
			var object Fields
			harness.Must(s.t, json.Unmarshal([]byte(args[3]), &object))
			s.Put("admin", "update", args[0], args[1], args[2], object)
		case "wait":
			s.Clock = s.Clock.Add(time.Duration(s.number(args[0])) * time.Second)
		default:
			s.t.Fatalf("unknown verb %q", words[0])
		}
	}
}

func (s *Script) number(text string) int {
	s.t.Helper()
	n, err := strconv.Atoi(text)
	harness.Must(s.t, err)
	return n
}

// lock adds a write of the lock.
func (s *Script) lock(name, who, holder string, transitions int) {
	s.t.Helper()
	revision, _, _ := strings.Cut(holder, "-")
	if s.Lock != "leases" {
		record := fmt.Sprintf(`{"holderIdentity":%q,"holderKey":%q,"leaseDurationSeconds":%d,"leaderTransitions":%d}`, holder, revision, s.Lease, transitions)
		s.Put(who, "update", s.Lock, Home, name, Fields{"metadata": Fields{"annotations": Fields{"control-plane.alpha.kubernetes.io/leader": record}}})
		return
	}
	s.Put(who, "update", "leases", Home, name, Fields{
		"metadata": Fields{"annotations": Fields{"leader.istio.io/holder-key": revision}},
		"spec":     Fields{"holderIdentity": holder, "leaseTransitions": transitions, "leaseDurationSeconds": s.Lease},
	})
}

// remove adds a deletion, whose response has no version.
func (s *Script) remove(resource, namespace, name string) {
	s.t.Helper()
	s.Next()
	id := Key(resource, namespace, name)
	s.Log(Request{Verb: "delete", Resource: resource, Namespace: namespace, Name: name, Who: "admin", Code: 200, Stage: Complete,
		Object: Fields{"kind": "Status", "details": Fields{"uid": s.UIDs[id]}}})
	delete(s.UIDs, id)
}
