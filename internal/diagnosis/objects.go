package diagnosis

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/errlist"
	"incumbent.dev/incumbent/internal/inspect"
	"incumbent.dev/incumbent/internal/tagging"
	"incumbent.dev/incumbent/pilot/leaderelection"
)

// Gateway is a Gateway that is not programmed.
type Gateway struct {
	Namespace, Name string
	// Label is its revision or tag, or "".
	Label string
	// Message is the message of its condition Programmed.
	Message string
}

// Deploys reports whether the leader of an election deploys Gateways.
func Deploys(e inspect.Election) bool {
	return strings.HasPrefix(e.Name, leaderelection.GatewayDeploymentController+"-")
}

// gateways reports Gateways that are not programmed, with the causes that their objects report.
func (in *Input) gateways() (found []Finding) {
	for _, g := range in.Gateways {
		f := Finding{
			Severity: Warning, Elections: in.deploying(g),
			Cause:   fmt.Sprintf("Gateway %s/%s is not programmed: %s", g.Namespace, g.Name, errlist.SingleLine(g.Message, maxGatewayMessage)),
			Command: fmt.Sprintf("kubectl -n %s describe gateways.gateway.networking.k8s.io %s", g.Namespace, g.Name),
		}
		found = append(found, f)
	}
	return orWell(found, in.Gateways != nil, "each Gateway is programmed")
}

// maxGatewayMessage is the maximum length of the message of a Gateway, which has several causes.
const maxGatewayMessage = 1000

// deploying returns the elections whose leaders deploy a Gateway. Without a label they are unknown, because the namespace can have one.
func (in *Input) deploying(g Gateway) (elections []string) {
	for _, e := range in.Elections {
		tags, _ := tagging.Resolve(e.Namespace, in.Claims[e.Namespace])
		revision := cmp.Or(tags[g.Label].Revision, g.Label)
		if Deploys(e) && (g.Label == "" || e.Name == leaderelection.GatewayDeploymentController+"-"+revision) {
			elections = append(elections, id(e))
		}
	}
	return elections
}

// mark is a label or an annotation of the objects of a GitOps tool's applications.
type mark struct {
	tool, key string
	annotates bool
}

var marks = []mark{
	{"Argo CD", "argocd.argoproj.io/tracking-id", true},
	{"Argo CD", "argocd.argoproj.io/instance", false},
	{"Argo CD", "app.kubernetes.io/instance", false},
	{"Flux", "kustomize.toolkit.fluxcd.io/name", false},
	{"Flux", "helm.toolkit.fluxcd.io/name", false},
}

// of reports whether the tool applies an object.
func (m mark) of(o metav1.PartialObjectMetadata) bool {
	if m.annotates {
		return o.Annotations[m.key] != ""
	}
	return o.Labels[m.key] != ""
}

// verb returns the command of kubectl that changes the mark.
func (m mark) verb() string {
	if m.annotates {
		return "annotate"
	}
	return "label"
}

// fluxKeeps is the annotation of objects that Flux creates and does not change.
const fluxKeeps = "kustomize.toolkit.fluxcd.io/ssa"

// written lists the fields that servers and operators write, by kind, as JSON pointers.
var written = map[string]string{
	tagWebhook: "/metadata/labels/istio.io~1rev", "Lease": "/spec and /metadata/annotations", "ConfigMap": "/metadata/annotations",
	"LeaseCandidate": "/spec", "Deployment": "/spec",
}

const tagWebhook = "MutatingWebhookConfiguration"

// gitops reports objects that a GitOps tool applies although servers or operators write them. The tool can revert the writes, and delete
// objects.
func (in *Input) gitops() (found []Finding) {
	for i, m := range marks {
		groups := map[[2]string][]string{} // by kind and namespace
		for _, o := range in.Written {
			if i == slices.IndexFunc(marks, func(m mark) bool { return m.of(o) }) && o.Annotations[fluxKeeps] == "" {
				groups[[2]string{o.Kind, o.Namespace}] = append(groups[[2]string{o.Kind, o.Namespace}], o.Name)
			}
		}
		for _, group := range slices.SortedFunc(maps.Keys(groups), func(a, b [2]string) int { return slices.Compare(a[:], b[:]) }) {
			found = append(found, in.applied(m, group[0], group[1], groups[group]))
		}
	}
	return orWell(found, in.Written != nil, "no GitOps tool applies objects that the servers write")
}

// applied returns the finding about objects of a kind in a namespace that have a mark.
func (in *Input) applied(m mark, kind, namespace string, names []string) Finding {
	f := Finding{Severity: Warning, Cause: fmt.Sprintf("%s applies %s %s (%s)", m.tool, kind, in.shorten(names), m.key)}
	if kind == tagWebhook {
		f.Cause += " and sets the default revision back after electionctl default set"
		f.Advice = fmt.Sprintf("Change the default revision in git, or ignore the field %s (docs/upgrade.md).", written[kind])
		return f
	}
	for _, e := range in.Elections {
		if e.Namespace == namespace && e.Lock == kind && slices.Contains(names, e.Name) {
			f.Elections = append(f.Elections, id(e))
		}
	}
	f.Cause += ", which the servers create and write, so it can delete it and revert writes"
	f.Advice = fmt.Sprintf("Remove it from the application, or ignore the fields %s. Then remove the mark:", written[kind])
	f.Command = fmt.Sprintf("kubectl -n %s %s %s %s %s-", namespace, m.verb(), strings.ToLower(kind), strings.Join(names, " "), m.key)
	return f
}
