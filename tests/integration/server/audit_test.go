package server

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// auditPolicy logs each write of a pod when its response is sent.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  users: [admin, system:apiserver]
- level: Metadata
  userGroups: ["system:serviceaccounts"]
  verbs: [create, update, patch, delete, deletecollection]
- level: None
`

// entry is a line of the audit log: a completed write.
type entry struct {
	Verb string
	User struct {
		Extra map[string][]string
	}
	ObjectRef struct {
		Resource, Subresource, Namespace, Name string
	}
	ResponseStatus           struct{ Code int }
	RequestReceivedTimestamp metav1.MicroTime // arrival
	StageTimestamp           metav1.MicroTime // response
}

func (e entry) pod() string {
	for _, name := range e.User.Extra["authentication.kubernetes.io/pod-name"] {
		return name
	}
	return ""
}

func (e entry) resource() string {
	return strings.TrimSuffix(e.ObjectRef.Resource+"/"+e.ObjectRef.Subresource, "/")
}

func (e entry) accepted() bool { return e.ResponseStatus.Code < 300 }

// locks are the prefixes of the lock names. All locks are Leases here.
var locks = map[string]string{
	namespaceRow: "istio-namespace-controller-election", ingressRow: "istio-leader",
	statusRow: "istio-gateway-status-leader", deploymentRow: "istio-gateway-deployment",
}

// The names of controllers in results.
const (
	namespaceRow  = "namespace"
	ingressRow    = "ingress"
	statusRow     = "gateway-status"
	deploymentRow = "gateway-deployment"
)

// row returns the controller that writes such an object, and whether it is a lock. It is empty for other objects, for
// example Events.
func (e entry) row(home string) (row string, lock bool) {
	switch e.resource() {
	case "leases":
		for row, prefix := range locks {
			if strings.HasPrefix(e.ObjectRef.Name, prefix) {
				return row, true
			}
		}
	case "configmaps":
		if e.ObjectRef.Namespace != home || e.ObjectRef.Name == bundleName {
			return namespaceRow, false
		}
	case "ingresses/status":
		return ingressRow, false
	case "gatewayclasses", "gatewayclasses/status", "gateways/status", "httproutes/status":
		return statusRow, false
	case "gateways", "serviceaccounts", "services", "deployments":
		return deploymentRow, false
	}
	return "", false
}

// audit reads an audit log incrementally.
type audit struct {
	tb   testing.TB
	file *os.File
	rest []byte // an incomplete line
	all  []entry
}

func openAudit(tb testing.TB, path string) *audit {
	tb.Helper()
	file, err := os.Open(path)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = file.Close() })
	return &audit{tb: tb, file: file}
}

// read returns all entries so far.
func (a *audit) read() []entry {
	a.tb.Helper()
	more, err := io.ReadAll(a.file)
	if err != nil {
		a.tb.Fatal(err)
	}
	lines := bufio.NewReader(bytes.NewReader(append(a.rest, more...)))
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			a.rest = line
			return a.all
		}
		var e entry
		if err := json.Unmarshal(line, &e); err != nil {
			a.tb.Fatal(err)
		}
		a.all = append(a.all, e)
	}
}

// work counts the writes of a pod for a controller.
type work struct {
	elected time.Time // response to its first write of the lock
	// writes and refused count accepted and rejected writes, objects the different written objects or subresources.
	writes, refused, objects int
	first, last              time.Time // arrival of the first, response to the last
}

// of returns the writes of a pod by controller.
func (a *audit) of(pod, home string) map[string]work {
	a.tb.Helper()
	all, seen := map[string]work{}, map[string]bool{}
	for _, e := range a.read() {
		row, lock := e.row(home)
		if e.pod() != pod || row == "" {
			continue
		}
		w := all[row]
		switch {
		case !e.accepted():
			w.refused++
		case lock && w.elected.IsZero():
			w.elected = e.StageTimestamp.Time
		case lock:
		default:
			if w.writes == 0 {
				w.first = e.RequestReceivedTimestamp.Time
			}
			if name := e.resource() + " " + e.ObjectRef.Namespace + "/" + e.ObjectRef.Name; !seen[name] {
				seen[name] = true
				w.objects++
			}
			w.writes++
			w.last = e.StageTimestamp.Time
		}
		all[row] = w
	}
	return all
}
