package ctl

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/fence"
	"incumbent.dev/incumbent/internal/inspect"
	"incumbent.dev/incumbent/pilot/leaderelection"
)

// clusterWide contains the elections whose leader writes in all namespaces.
var clusterWide = map[string]bool{
	leaderelection.NamespaceController: true, leaderelection.ServiceExportController: true, leaderelection.IngressController: true,
	leaderelection.GatewayStatusController: true, leaderelection.StatusController: true, leaderelection.AnalyzeController: true,
	leaderelection.NodeUntaintController: true, leaderelection.ClusterTrustBundleController: true, leaderelection.InferencePoolController: true,
	leaderelection.IPAutoallocateController: true,
}

// permission is a permission that a command needs.
type permission struct {
	attributes authorizationv1.ResourceAttributes
	purpose    string
}

// lockPermissions returns the permissions to change leaders. Roles of operators list the locks by name, so one lock of each kind is checked.
func lockPermissions(x *examination) (needed []permission) {
	for _, kind := range []string{inspect.Lease, inspect.ConfigMap} {
		lock := authorizationv1.ResourceAttributes{Group: "coordination.k8s.io", Resource: "leases"}
		if kind == inspect.ConfigMap {
			lock = authorizationv1.ResourceAttributes{Resource: "configmaps"}
		}
		if i := slices.IndexFunc(x.elections, func(e inspect.Election) bool { return e.Lock == kind && e.Namespace == x.c.at }); i >= 0 {
			lock.Name = x.elections[i].Name
		}
		for _, verb := range []string{"update", fence.OperateVerb} {
			lock.Verb = verb
			needed = append(needed, permission{lock, verb + " " + kind + " locks"})
		}
	}
	return needed
}

func permissions(ctx context.Context, x *examination) error {
	const coordination, admission = "coordination.k8s.io", "admissionregistration.k8s.io"
	needed := []permission{
		{authorizationv1.ResourceAttributes{Verb: "list", Group: coordination, Resource: "leases"}, "read Lease locks"},
		{authorizationv1.ResourceAttributes{Verb: "list", Resource: "configmaps"}, "read ConfigMap locks"},
		{authorizationv1.ResourceAttributes{Verb: "list", Resource: "events"}, "history"},
		{authorizationv1.ResourceAttributes{Verb: "get", Group: admission, Resource: "mutatingwebhookconfigurations", Name: defaultTag}, "read the default revision"},
		{authorizationv1.ResourceAttributes{Verb: "create", Resource: "pods", Subresource: "portforward"}, "page"},
	}
	needed = append(needed, lockPermissions(x)...)
	var allowed []string
	for _, r := range needed {
		r.attributes.Namespace = x.c.at
		review, err := x.c.kube.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &r.attributes},
		}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		if review.Status.Allowed {
			allowed = append(allowed, r.purpose)
			continue
		}
		a := r.attributes
		x.add(warning, "if needed, use a role with this permission",
			"no permission to %s %s (%s)", a.Verb, strings.TrimSuffix(a.Resource+"/"+a.Subresource, "/"), r.purpose)
	}
	if len(allowed) > 0 {
		x.add(well, "", "allowed: %s", strings.Join(allowed, ", "))
	}
	return nil
}

// maxClockSkew is the clock difference above which a warning is reported.
const maxClockSkew = 3 * time.Second

func clock(ctx context.Context, x *examination) error {
	before := time.Now() //nolint:forbidigo // checks this machine's clock
	server, err := x.c.serverTime(ctx)
	if err != nil {
		return err
	}
	half := time.Since(before) / 2 //nolint:forbidigo // the same
	x.ownClock(before.Add(half).Sub(server), half)
	ahead := maps.Clone(x.seen.ahead)
	for _, e := range x.elections {
		// Only istiod and client-go write their own time. An incumbent never writes a lower time than the recorded one.
		if _, member := ahead[e.Holder]; !member && e.Led() && (e.Program == "istiod" || e.Key == "" && e.State == inspect.Holds) {
			ahead[e.Holder] = e.Ahead
		}
	}
	for _, process := range slices.Sorted(maps.Keys(ahead)) {
		if by := ahead[process]; by.Abs() > maxClockSkew {
			direction := "ahead of"
			if by < 0 {
				direction = "behind"
			}
			x.add(warning, "correct the clock of its node (NTP); elections do not depend on it, but logs and certificates do",
				"the clock of %s is %v %s the API server", process, by.Abs().Round(time.Second), direction)
		}
	}
	return nil
}

// ownClock adds the finding about this machine's clock. The offset has a possible error, because the request took time.
func (x *examination) ownClock(offset, possibleError time.Duration) {
	if offset.Abs() <= maxClockSkew+possibleError {
		x.add(well, "", "the clocks of this machine and the API server agree within a few seconds")
		return
	}
	x.add(warning, "correct it (NTP); times that this program prints are wrong by that much",
		"the clock of this machine differs from the API server by %v", offset.Round(time.Second))
}

// defaultValidator is Istio's webhook that validates configuration. It belongs to the default revision.
const defaultValidator = "istiod-default-validator"

func tags(ctx context.Context, x *examination) error {
	hook, err := x.c.tag(ctx)
	if err != nil {
		return err
	}
	tag := hook.Labels[revisionLabel]
	validator, err := x.c.kube.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, defaultValidator, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	runs := slices.ContainsFunc(x.seen.candidates, func(c inspect.Candidate) bool { return !c.Late && c.Revision() == tag })
	led := slices.ContainsFunc(x.elections, func(e inspect.Election) bool { return e.Led() && e.Revision == tag })
	switch {
	case err == nil && validator.Labels[revisionLabel] != tag:
		x.add(problem, "complete the change: istioctl tag set default --revision "+cmp.Or(tag, "REVISION")+" --overwrite",
			"%s has revision %s, but %s has %s", defaultTag, cmp.Or(tag, "none"), defaultValidator, cmp.Or(validator.Labels[revisionLabel], "none"))
	case tag == "":
		x.add(warning, "install the chart tags, or istioctl tag set default --revision REVISION",
			"no default revision: the first candidate leads, regardless of its revision")
	case led:
		x.add(well, "", "the default revision is %s", tag)
	case !runs && len(x.seen.members) > 0:
		x.add(problem, "start its pods, or make the revision of the leaders the default: "+name()+" default set"+x.in()+" "+x.ledBy(),
			"the default revision is %s, but no live process runs it", tag)
	default:
		x.add(warning, name()+" plan"+x.in()+" --default-revision "+tag, "the default revision is %s, but no leader has it", tag)
	}
	return nil
}

// in returns the namespace flag for a command, or "" with all namespaces.
func (x *examination) in() string {
	if x.c.at == "" {
		return ""
	}
	return " -n " + x.c.at
}

// ledBy returns the revision that leads an election of several revisions, or a placeholder.
func (x *examination) ledBy() string {
	i := slices.IndexFunc(x.elections, func(e inspect.Election) bool { return e.Led() && e.Ranked })
	if i < 0 {
		return "REVISION"
	}
	return x.elections[i].Revision
}
