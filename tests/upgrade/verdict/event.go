package verdict

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Policy is the audit policy that Judge needs: the bodies of all writes of what upgrades are about. The stage at
// which a request came is kept, so that a write whose answer was never logged, because its server died, is known of.
// Nothing is left out by user: what people, Kubernetes' own controllers and pods write decides what is wanted.
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

// pod is that of the token, "" for what is no pod's.
func (e Event) pod() string {
	for _, name := range e.User.Extra[podExtra] {
		return name
	}
	return ""
}

func (e Event) dryRun() bool { return strings.Contains(e.RequestURI, "dryRun=") }

// Read reads an audit log. A last line that is not whole is a server's that was killed while it wrote: it is left
// out, and its request is one without an answer.
func Read(log io.Reader) ([]Event, error) {
	lines := bufio.NewReader(log)
	var events []Event
	for number := 1; ; number++ {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return events, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading an audit log: %w", err)
		}
		// The next process goes on where the killed one stopped.
		if begin := bytes.LastIndex(line, []byte(`{"kind":"Event"`)); begin > 0 && !json.Valid(line) {
			line = line[begin:]
		}
		var e Event
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("line %d of an audit log: %w", number, err)
		}
		events = append(events, e)
	}
}

// Write is a write that was stored.
type Write struct {
	// Version is the resourceVersion that it left. A deletion tells none: it has the last one that the object had.
	Version uint64
	Deleted bool
	Verb    string
	// Resource has the subresource with it: "gateways/status".
	Resource, Namespace, Name, UID string
	// Pod is the one that the writer's token is bound to, User its account.
	Pod, User string
	// Came and Answered are as the API server stamped them.
	Came, Answered time.Time
	// Object is what was left.
	Object map[string]any
}

func (w Write) String() string {
	name := w.Name
	if w.Namespace != "" {
		name = w.Namespace + "/" + w.Name
	}
	who := w.Pod
	if who == "" {
		who = w.User
	}
	return fmt.Sprintf("%s's %s of %s %s at %d", who, w.Verb, w.Resource, name, w.Version)
}

// Kind is the resource without a subresource.
func (w Write) Kind() string {
	kind, _, _ := strings.Cut(w.Resource, "/")
	return kind
}
