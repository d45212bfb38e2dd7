package verdict

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Policy is the audit policy that Judge needs: the bodies of all relevant writes. It keeps the stage RequestReceived,
// because a killed API server logs no response.
const Policy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitManagedFields: true
rules:
- level: None
  verbs: [get, list, watch]
- level: None
  resources: [{group: "", resources: [events, pods, pods/status, pods/binding, serviceaccounts/token]}]
- level: RequestResponse
  verbs: [create, update, patch, delete]
  resources:
  - {group: "", resources: [namespaces, configmaps, services, services/status, serviceaccounts]}
  - {group: coordination.k8s.io, resources: [leases]}
  - {group: networking.k8s.io, resources: [ingresses, ingresses/status]}
  - {group: gateway.networking.k8s.io}
  - {group: apps, resources: [deployments, deployments/status]}
  - {group: admissionregistration.k8s.io, resources: [mutatingwebhookconfigurations]}
- level: None
`

// Event is one line of an audit log: a request at one stage.
type Event struct {
	AuditID    string `json:"auditID"`
	Stage      string `json:"stage"`
	Verb       string `json:"verb"`
	RequestURI string `json:"requestURI"`
	User       struct {
		Username string              `json:"username"`
		Extra    map[string][]string `json:"extra"`
	} `json:"user"`
	ObjectRef struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
	RequestObject            json.RawMessage  `json:"requestObject"`
	ResponseObject           json.RawMessage  `json:"responseObject"`
	RequestReceivedTimestamp metav1.MicroTime `json:"requestReceivedTimestamp"`
	StageTimestamp           metav1.MicroTime `json:"stageTimestamp"`
}

const (
	stageReceived = "RequestReceived"
	stageComplete = "ResponseComplete"
	podExtra      = "authentication.kubernetes.io/pod-name"
)

// pod returns the Pod that the token is bound to, or "".
func (e Event) pod() string {
	for _, name := range e.User.Extra[podExtra] {
		return name
	}
	return ""
}

func (e Event) dryRun() bool { return strings.Contains(e.RequestURI, "dryRun=") }

// Read reads an audit log. It ignores an incomplete last line: the API server was killed while it wrote the line.
func Read(log io.Reader) ([]Event, error) {
	lines := bufio.NewReader(log)
	var events []Event
	for number := 1; ; number++ {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return events, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read audit log: %w", err)
		}
		// A restarted API server appends to the incomplete line of the killed one.
		if begin := bytes.LastIndex(line, []byte(`{"kind":"Event"`)); begin > 0 && !json.Valid(line) {
			line = line[begin:]
		}
		var e Event
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("read line %d of audit log: %w", number, err)
		}
		events = append(events, e)
	}
}
