package tagging

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
)

const (
	// Label is the label with the revision of a webhook or of any other object.
	Label = "istio.io/rev"
	// TagLabel is the label with a tag of the revision of a webhook or of a Service.
	TagLabel = "istio.io/tag"
	// Unnamed is the revision of an empty name.
	Unnamed = "default"
	// UsualNamespace is the namespace whose default tag has no suffix.
	UsualNamespace = "istio-system"
	// DefaultValidator is the name of the ValidatingWebhookConfiguration for objects that belong to no other revision.
	DefaultValidator = "istiod-default-validator"
)

// Kinds of claims.
const (
	WebhookKind = "MutatingWebhookConfiguration"
	ServiceKind = "Service"
)

// Claim is an object whose labels give a tag to a revision.
type Claim struct {
	// Tag is given to Revision.
	Tag, Revision string
	// Kind is WebhookKind or ServiceKind. A webhook has no namespace.
	Kind, Namespace, Name string
	// UID and Created are from the metadata of the object.
	UID     types.UID
	Created time.Time

	// Elsewhere reports that it belongs to another control plane.
	Elsewhere bool
}

// EndCommand returns the command that ends the claim. It deletes no object, because a Helm release can own it.
func (c Claim) EndCommand() string {
	if c.Kind == ServiceKind {
		return fmt.Sprintf("kubectl --namespace %s label service %s %s-", c.Namespace, c.Name, TagLabel)
	}
	return fmt.Sprintf("kubectl label mutatingwebhookconfiguration %s %s-", c.Name, TagLabel)
}

// String returns the revision and the object, for messages.
func (c Claim) String() string {
	return fmt.Sprintf("%s (%s %s)", c.Revision, c.Kind, c.Name)
}

// Conflict is a tag that several revisions claim.
type Conflict struct {
	// Used is the claim that counts. Others are the claims of other revisions.
	Used   Claim
	Others []Claim
}

// String returns the tag and all claims, for messages.
func (c Conflict) String() string {
	var others []string
	for _, other := range c.Others {
		others = append(others, other.String())
	}
	return fmt.Sprintf("tag %s is claimed by several revisions: revision %s counts, %s does not", c.Used.Tag, c.Used, strings.Join(others, ", "))
}

// Resolve returns the claim that counts for each tag, and the tags that several revisions claim. The result depends on the objects
// only, so all replicas in a namespace agree. Of the claims of a tag, the first of these counts:
//
//  1. the Service
//  2. for the tag default, the webhook that elections read (DefaultTagWebhooks)
//  3. the oldest webhook, and of the same age the first by name
//
// If a webhook is named for the namespace, the webhook of the same tag without a namespace in its name belongs to other namespaces.
func Resolve(namespace string, claims []Claim) (used map[string]Claim, conflicts []Conflict) {
	own := sets.New[string]()
	for _, c := range claims {
		if c.Kind == WebhookKind && c.Name == TagWebhook(c.Tag, namespace) {
			own.Insert(c.Tag)
		}
	}
	claims = slices.DeleteFunc(slices.Clone(claims), func(c Claim) bool {
		return c.Kind == WebhookKind && own.Has(c.Tag) && c.Name == TagWebhook(c.Tag, "") && c.Name != TagWebhook(c.Tag, namespace)
	})
	slices.SortFunc(claims, func(a, b Claim) int {
		return cmp.Or(cmp.Compare(a.Tag, b.Tag), cmp.Compare(a.rank(namespace), b.rank(namespace)),
			a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name))
	})
	used = map[string]Claim{}
	for _, c := range claims {
		first, found := used[c.Tag]
		switch last := len(conflicts) - 1; {
		case !found:
			used[c.Tag] = c
		case c.Revision == first.Revision:
		case last >= 0 && conflicts[last].Used.Tag == c.Tag:
			conflicts[last].Others = append(conflicts[last].Others, c)
		default:
			conflicts = append(conflicts, Conflict{Used: first, Others: []Claim{c}})
		}
	}
	return used, conflicts
}

// rank returns the order of a claim before its age.
func (c Claim) rank(namespace string) int {
	switch {
	case c.Kind == WebhookKind && c.Tag == Unnamed && slices.Contains(DefaultTagWebhooks(namespace), c.Name):
		return 0 // elections read it
	case c.Kind == ServiceKind:
		return 1
	}
	return 2
}

// ServiceClaim returns the claim of a Service. ok is false if its labels give no tag to a revision.
func ServiceClaim(service *corev1.Service) (claim Claim, ok bool) {
	return claimOf(ServiceKind, service.ObjectMeta)
}

// WebhookClaim returns the claim of a webhook on a control plane in a namespace. ok is false if its labels give no tag to a
// revision, or if it belongs to another control plane: it calls only Services of other namespaces, or it calls none and is named
// for another namespace.
func WebhookClaim(hook *admissionv1.MutatingWebhookConfiguration, namespace string) (claim Claim, ok bool) {
	claim, ok = claimOf(WebhookKind, hook.ObjectMeta)
	return claim, ok && concerns(hook, claim.Tag, namespace)
}

func claimOf(kind string, meta metav1.ObjectMeta) (claim Claim, ok bool) {
	claim = Claim{
		Tag: meta.Labels[TagLabel], Revision: Named(meta.Labels),
		Kind: kind, Namespace: meta.Namespace, Name: meta.Name, UID: meta.UID, Created: meta.CreationTimestamp.Time,
	}
	return claim, claim.Tag != "" && claim.Revision != ""
}

// DefaultRevision returns the default revision for elections of a control plane in a namespace, or "". hooks are the existing
// DefaultTagWebhooks in their order. The first counts that has a revision and does not belong to another control plane.
func DefaultRevision(namespace string, hooks ...*admissionv1.MutatingWebhookConfiguration) string {
	for _, hook := range hooks {
		if revision := Named(hook.Labels); revision != "" && concerns(hook, Unnamed, cmp.Or(namespace, UsualNamespace)) {
			return revision
		}
	}
	return ""
}

// Named returns the revision in the labels. An empty label is the revision without a name. Without the label it returns "".
func Named(labels map[string]string) string {
	revision, labelled := labels[Label]
	if labelled && revision == "" {
		return Unnamed
	}
	return revision
}

// concerns reports whether a webhook of a tag belongs to the control plane in a namespace.
func concerns(hook *admissionv1.MutatingWebhookConfiguration, tag, namespace string) bool {
	if len(hook.Webhooks) == 0 {
		return !strings.HasPrefix(hook.Name, TagWebhook(tag, "")+"-") || hook.Name == TagWebhook(tag, namespace)
	}
	return slices.ContainsFunc(hook.Webhooks, func(h admissionv1.MutatingWebhook) bool {
		return h.ClientConfig.Service == nil || h.ClientConfig.Service.Namespace == namespace
	})
}

// TagWebhook returns the name of the webhook of a tag, as charts create it for a control plane in a namespace: with the suffix
// -<namespace> outside istio-system. An empty namespace is istio-system.
func TagWebhook(tag, namespace string) string {
	name := "istio-revision-tag-" + tag
	if namespace == "" || namespace == UsualNamespace {
		return name
	}
	return name + "-" + namespace
}

// DefaultTagWebhook returns the name of the webhook of the tag default.
func DefaultTagWebhook(namespace string) string { return TagWebhook(Unnamed, namespace) }

// DefaultTagWebhooks returns the names of the webhooks that can contain the default revision of a control plane in a namespace. The
// first that exists counts.
func DefaultTagWebhooks(namespace string) []string {
	return slices.Compact([]string{DefaultTagWebhook(namespace), DefaultTagWebhook("")})
}
