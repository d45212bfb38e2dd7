package audit

import (
	"bytes"
	"encoding/json"
	"net/url"
	"strings"
	"time"

	"incumbent.dev/incumbent/internal/fence"
)

// Event is one line of an audit log: a request at one stage.
type Event struct {
	Kind       string   `json:"kind"`
	Level      string   `json:"level"`
	AuditID    string   `json:"auditID"`
	Stage      string   `json:"stage"`
	Verb       string   `json:"verb"`
	RequestURI string   `json:"requestURI"`
	UserAgent  string   `json:"userAgent"`
	SourceIPs  []string `json:"sourceIPs"`
	User       struct {
		Username string              `json:"username"`
		Extra    map[string][]string `json:"extra"`
	} `json:"user"`
	ObjectRef struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
		UID         string `json:"uid"`
		APIGroup    string `json:"apiGroup"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"responseStatus"`
	Annotations              map[string]string `json:"annotations"`
	RequestObject            json.RawMessage   `json:"requestObject"`
	ResponseObject           json.RawMessage   `json:"responseObject"`
	RequestReceivedTimestamp time.Time         `json:"requestReceivedTimestamp"`
	StageTimestamp           time.Time         `json:"stageTimestamp"`

	// Cluster is the name of the cluster in the wrapping of a log service, or "".
	Cluster string `json:"-"`
}

const (
	stageReceived = "RequestReceived"
	stageComplete = "ResponseComplete"
	stagePanic    = "Panic"
)

// Pod returns the pod that the token is bound to, or "".
func (e Event) Pod() string {
	if pods := e.User.Extra[fence.PodClaim]; len(pods) == 1 {
		return pods[0]
	}
	return ""
}

// program returns the part of the user agent before the version.
func (e Event) program() string {
	program, _, _ := strings.Cut(e.UserAgent, "/")
	return program
}

// Resource returns the resource with its subresource.
func (e Event) Resource() string {
	if e.ObjectRef.Subresource != "" {
		return e.ObjectRef.Resource + "/" + e.ObjectRef.Subresource
	}
	return e.ObjectRef.Resource
}

// relevant reports whether the request may have changed an object. Kubelets and the API server are no candidates.
func (e Event) relevant() bool {
	switch e.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return e.ObjectRef.Resource != "" && !strings.HasPrefix(e.User.Username, "system:node:") && !e.dryRun()
	}
	return false
}

// dryRun reports whether the API server stored nothing for certain.
func (e Event) dryRun() bool {
	var options struct{ DryRun []string }
	if e.deletes() && present(e.RequestObject) && json.Unmarshal(e.RequestObject, &options) == nil {
		return len(options.DryRun) > 0 // the API server ignores the query then
	}
	return e.queriesDryRun() && !e.hidesOptions()
}

func (e Event) deletes() bool { return strings.HasPrefix(e.Verb, "delete") }

func (e Event) queriesDryRun() bool {
	uri, err := url.ParseRequestURI(e.RequestURI)
	return err == nil && uri.Query().Has("dryRun")
}

// hidesOptions reports whether the request may have a body with options of a deletion that the log does not show.
func (e Event) hidesOptions() bool { return e.deletes() && e.Level == "Metadata" }

// uncertain reports whether the log does not show if the write was stored. An API server that failed may have stored the object
// before, for example if the time of the request ended while etcd stored it (code 504).
func (e Event) uncertain() bool {
	return e.Stage == stagePanic || e.Stage == stageComplete && (e.ResponseStatus.Code >= 500 ||
		e.ResponseStatus.Code < 300 && e.hidesOptions() && e.queriesDryRun())
}

// object has the needed fields of a stored or sent object.
type object struct {
	Kind     string `json:"kind"`
	Metadata struct {
		Name            string            `json:"name"`
		UID             string            `json:"uid"`
		ResourceVersion string            `json:"resourceVersion"`
		Annotations     map[string]string `json:"annotations"`
		Labels          map[string]string `json:"labels"`
	} `json:"metadata"`
	// Details belong to a Status, which answers a deletion.
	Details struct {
		UID string `json:"uid"`
	} `json:"details"`
	Spec json.RawMessage `json:"spec"`
}

func present(raw json.RawMessage) bool { return len(raw) > 0 && raw[0] == '{' }

// The beginning of a line as API servers write it, and the verb in it. A string cannot contain them, because its quotes are
// escaped, and the verb comes before all objects.
var (
	lineStart = []byte(`{"kind":"Event"`)
	verbKey   = []byte(`"verb":"`)
)

// onlyReads reports whether a line is certainly a read, without decoding it.
func onlyReads(line []byte) bool {
	if !bytes.HasPrefix(line, lineStart) {
		return false
	}
	_, verb, found := bytes.Cut(line, verbKey)
	return found && (bytes.HasPrefix(verb, []byte(`get"`)) || bytes.HasPrefix(verb, []byte(`list"`)) || bytes.HasPrefix(verb, []byte(`watch"`))) &&
		line[len(line)-1] == '}'
}
