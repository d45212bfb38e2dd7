package server

import (
	"io"
	"os"
	"strings"
	"testing"
	"time"

	events "incumbent.dev/incumbent/internal/audit"
	"incumbent.dev/incumbent/internal/testutil/auditlog"
	"incumbent.dev/incumbent/internal/testutil/harness"
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

// The names of controllers in results.
const (
	namespaceRow  = "namespace"
	ingressRow    = "ingress"
	statusRow     = "gateway-status"
	deploymentRow = "gateway-deployment"
)

// locks are the prefixes of the lock names. All locks are Leases here.
var locks = map[string]string{
	namespaceRow: "istio-namespace-controller-election", ingressRow: "istio-leader",
	statusRow: "istio-gateway-status-leader", deploymentRow: "istio-gateway-deployment",
}

// rowOf returns the controller that writes such an object, and whether it is a lock. It is empty for other objects, for
// example Events.
func rowOf(e events.Event, home string) (row string, lock bool) {
	switch e.Resource() {
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
	case "gatewayclasses", "gatewayclasses/status", "gateways/status":
		return statusRow, false
	case "gateways", "serviceaccounts", "services", "deployments":
		return deploymentRow, false
	}
	return "", false
}

// audit has the events of an audit log.
type audit struct {
	tb  testing.TB
	log auditlog.Tail
	all []events.Event
}

func openAudit(tb testing.TB, path string) *audit {
	tb.Helper()
	file, err := os.Open(path)
	harness.Must(tb, err)
	tb.Cleanup(func() { _ = file.Close() })
	return &audit{tb: tb, log: auditlog.Tail{File: file}}
}

// work describes the accepted writes of a pod for a controller.
type work struct {
	elected     time.Time // response to its first write of the lock
	first, last time.Time // arrival of the first write of an object, response to the last
	objects     int       // different objects and subresources
}

// of returns the work of a pod by controller.
func (a *audit) of(pod, home string) map[string]work {
	a.tb.Helper()
	err := a.log.Read(func(name string, lines io.Reader) error {
		keep := func(e events.Event) error { a.all = append(a.all, e); return nil }
		return new(events.Reading).Read(name, lines, func([]byte) bool { return false }, keep)
	})
	harness.Must(a.tb, err)
	all, seen := map[string]work{}, map[string]bool{}
	for _, e := range a.all {
		row, lock := rowOf(e, home)
		if e.Pod() != pod || row == "" || e.ResponseStatus.Code >= 300 {
			continue
		}
		w := all[row]
		switch {
		case lock && w.elected.IsZero():
			w.elected = e.StageTimestamp
		case lock:
		default:
			if w.objects == 0 {
				w.first = e.RequestReceivedTimestamp
			}
			if name := e.Resource() + " " + e.ObjectRef.Namespace + "/" + e.ObjectRef.Name; !seen[name] {
				seen[name] = true
				w.objects++
			}
			w.last = e.StageTimestamp
		}
		all[row] = w
	}
	return all
}
