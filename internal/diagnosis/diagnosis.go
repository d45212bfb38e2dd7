package diagnosis

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"incumbent.dev/incumbent/internal/inspect"
	"incumbent.dev/incumbent/internal/tagging"
)

// Severity is the severity of a finding.
type Severity string

const (
	// Well means that a check succeeded.
	Well    Severity = "ok"
	Warning Severity = "warning"
	Problem Severity = "problem"
	// Unknown means that a check was not possible.
	Unknown Severity = "unknown"
)

// Finding is a result of the diagnosis.
type Finding struct {
	Check    string   `json:"check"`
	Severity Severity `json:"verdict"`
	// Elections are the affected elections as namespace/name. Effect is the effect on them, for example "has no leader".
	Elections []string `json:"elections,omitempty"`
	Effect    string   `json:"effect,omitempty"`
	Cause     string   `json:"cause"`
	// Rejected is true if the API server rejects a candidate as holder.
	Rejected bool `json:"rejected,omitempty"`
	// Advice is a sentence. Command is a command line that can be pasted: it fixes the problem, or it shows its details.
	Advice  string `json:"advice,omitempty"`
	Command string `json:"command,omitempty"`
}

// String returns the elections, the effect and the cause.
func (f Finding) String() string {
	subject := ""
	effect := f.Effect
	switch more := len(f.Elections) - 1; {
	case more == 0:
		subject = f.Elections[0]
	case more == 1:
		subject = f.Elections[0] + " and " + f.Elections[1]
	case more > 1:
		subject = fmt.Sprintf("%s and %d other elections", f.Elections[0], more)
	}
	for singular, plural := range map[string]string{"has ": "have ", "is ": "are ", "does ": "do ", "loses ": "lose "} {
		if rest, found := strings.CutPrefix(effect, singular); found && len(f.Elections) > 1 {
			effect = plural + rest
			break
		}
	}
	switch {
	case subject == "":
		return f.Cause
	case effect == "":
		return subject + ": " + f.Cause
	}
	return subject + " " + effect + ": " + f.Cause
}

// Line returns the severity and the text, as the first line of each tool.
func (f Finding) Line() string {
	return strings.ToUpper(string(f.Severity[:1])) + string(f.Severity[1:]) + ": " + f.String()
}

// Problems returns the number of problems. The exit code of doctor is not 0 if there is one.
func Problems(findings []Finding) (n int) {
	for _, f := range findings {
		if f.Severity == Problem {
			n++
		}
	}
	return n
}

// Of returns the findings about an election, for this election only.
func Of(e inspect.Election, findings []Finding) (of []Finding) {
	for _, f := range findings {
		if slices.Contains(f.Elections, id(e)) {
			f.Elections = []string{id(e)}
			of = append(of, f)
		}
	}
	return of
}

// id returns namespace and name of an election.
func id(e inspect.Election) string { return e.Namespace + "/" + e.Name }

// Input contains the observations. A nil field was not read.
type Input struct {
	// Tool is the name of the command-line tool. The default is electionctl.
	Tool string
	// Namespace is the selected namespace, or "" for all.
	Namespace string
	// Wide lists candidates by name.
	Wide bool
	// Now is the time of the API server.
	Now time.Time
	// Elections have their candidates. Candidates also contains the candidates of elections without a lock.
	Elections  []inspect.Election
	Candidates []inspect.Candidate
	// Pods has the pods of the namespaces that were read.
	Pods map[string][]corev1.Pod
	// Deployments are the Deployments of the namespaces. They are read if an election has no leader.
	Deployments []appsv1.Deployment
	// Spaces are the namespaces of the elections.
	Spaces []corev1.Namespace
	// Deletions are the deletions of the lock of an election (namespace/name).
	Deletions map[string]Deletions
	// Locks are the locks of the selected namespace, and the locks of shared elections in all namespaces.
	Locks []inspect.Lock
	// Tags are the revisions of the default tag. Claims are the claims of tags by namespace.
	Tags   *Tags
	Claims map[string][]tagging.Claim
	// User is the name of the user of the tool, and Permissions are the user's.
	User        string
	Permissions []Permission
	// Clock is the clock of the machine. Ahead has the differences between the clocks of processes and of the API server.
	Clock *Clock
	Ahead map[string]time.Duration
	// Releases have the command that installs the Helm release of a service account (namespace/name) again.
	Releases map[string]string
	// Lacking are the rights on locks that service accounts of the control plane lack, Granted the rights that they have.
	Lacking, Granted []Right
	// Webhooks are the webhooks of the API server.
	Webhooks []Webhook
	// Schemas and Levels are the FlowSchemas and the priority levels of the API server.
	Schemas []flowcontrolv1.FlowSchema
	Levels  []flowcontrolv1.PriorityLevelConfiguration
	Fence   *Fence
	// Gateways are the Gateways of this project that are not programmed.
	Gateways []Gateway
	// Written has the metadata of objects that servers and operators write.
	Written []metav1.PartialObjectMetadata
	// Unread are the errors of reads by the name of the check that needs them.
	Unread map[string]error
}

// Tags has the default revision, and the validator, which is nil if it does not exist.
type Tags struct {
	Default   string
	Validator *admissionv1.ValidatingWebhookConfiguration
}

// Namespaces returns the namespaces of the elections.
func (in *Input) Namespaces() []string {
	all := sets.New[string]()
	for _, e := range in.Elections {
		all.Insert(e.Namespace)
	}
	return sets.List(all)
}

// Leaderless returns the namespaces with an election without a leader.
func (in *Input) Leaderless() []string {
	all := sets.New[string]()
	for _, e := range in.Elections {
		if Ours(e) && !e.Led() {
			all.Insert(e.Namespace)
		}
	}
	return sets.List(all)
}

// Shared returns the names of the elections whose leader writes in all namespaces.
func (in *Input) Shared() []string {
	names := sets.New[string]()
	for _, e := range in.Elections {
		if clusterWide[e.Name] {
			names.Insert(e.Name)
		}
	}
	return sets.List(names)
}

// Permission is a permission of the user that a command needs.
type Permission struct {
	authorizationv1.ResourceAttributes
	Purpose string
	Allowed bool
}

// Clock is the difference between the clocks of the machine and of the API server, with the possible error of the measurement.
type Clock struct{ Offset, PossibleError time.Duration }

// Leaders is the check of leaders and candidates.
const Leaders = "leaders"

// check is a group of rules.
type check struct {
	name string
	run  func(in *Input) []Finding
}

var checks = []check{
	{Leaders, (*Input).leaders},
	{"default", (*Input).defaultRevision},
	{"tags", (*Input).conflicts},
	{"permissions", (*Input).permissions},
	{"clock", (*Input).clocks},
	{"locks", (*Input).locks},
	{"annotations", (*Input).annotations},
	{"installations", (*Input).installations},
	{"flow", (*Input).flow},
	{"fence", (*Input).fences},
	{"witness", (*Input).witnesses},
	{"gateways", (*Input).gateways},
	{"gitops", (*Input).gitops},
}

// order is the order of severities.
var order = []Severity{Problem, Warning, Unknown, Well}

// Findings returns the findings, the worst ones first.
func Findings(in Input) (all []Finding) {
	in.Tool = cmp.Or(in.Tool, "electionctl")
	in.Elections = slices.Clone(in.Elections)
	for i, e := range in.Elections {
		in.Elections[i] = addProcess(e)
	}
	for _, check := range checks {
		found := check.run(&in)
		if err := in.Unread[check.name]; err != nil {
			found = append(found, Finding{Severity: Unknown, Cause: err.Error(), Advice: "Run this as a user with the missing permission."})
		}
		for _, f := range found {
			f.Check = check.name
			all = add(all, f)
		}
	}
	slices.SortStableFunc(all, func(a, b Finding) int {
		return cmp.Compare(slices.Index(order, a.Severity), slices.Index(order, b.Severity))
	})
	return all
}

// add adds a finding. Elections with the same cause have one finding.
func add(all []Finding, f Finding) []Finding {
	for i, other := range all {
		if other.Severity == f.Severity && other.Effect == f.Effect && other.Cause == f.Cause && other.Command == f.Command {
			for _, e := range f.Elections {
				if !slices.Contains(other.Elections, e) {
					all[i].Elections = append(all[i].Elections, e)
				}
			}
			return all
		}
	}
	return append(all, f)
}

// command returns a command about an election.
func (in *Input) command(verb string, e inspect.Election) string {
	return fmt.Sprintf("%s %s -n %s %s", in.Tool, verb, e.Namespace, e.Name)
}

// at returns the namespace flag for a command, or "" with all namespaces.
func (in *Input) at() string {
	if in.Namespace == "" {
		return ""
	}
	return " -n " + in.Namespace
}

// well returns a finding about a check that succeeded.
func well(format string, args ...any) Finding {
	return Finding{Severity: Well, Cause: fmt.Sprintf(format, args...)}
}

// orWell returns the findings of a check. Without findings, the check succeeded if it has read what it needs.
func orWell(found []Finding, read bool, format string, args ...any) []Finding {
	if len(found) == 0 && read {
		found = append(found, well(format, args...))
	}
	return found
}
