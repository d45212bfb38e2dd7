package ctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"

	"incumbent.dev/incumbent/internal/fence"
	"incumbent.dev/incumbent/internal/inspect"
	"incumbent.dev/incumbent/internal/tagging"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

// verdict is the result of a check.
type verdict string

const (
	well    verdict = "ok"
	warning verdict = "warning"
	problem verdict = "problem"
	unknown verdict = "unknown"
)

// finding is a result of doctor.
type finding struct {
	Check   string  `json:"check"`
	Verdict verdict `json:"verdict"`
	Message string  `json:"message"`
	// Fix is advice.
	Fix string `json:"fix,omitempty"`
}

// examination is the input of the checks.
type examination struct {
	c         *clients
	elections []inspect.Election
	seen      *seen
	// found has the findings of the current check.
	found []finding
}

// add adds a finding. fix is optional advice.
func (x *examination) add(v verdict, fix, format string, args ...any) {
	x.found = append(x.found, finding{Verdict: v, Message: fmt.Sprintf(format, args...), Fix: fix})
}

// namespaces returns the namespaces of the elections.
func (x *examination) namespaces() []string {
	all := sets.New[string]()
	for _, e := range x.elections {
		all.Insert(e.Namespace)
	}
	return sets.List(all)
}

// check is one check of doctor. none is the finding if run adds none.
type check struct {
	name string
	run  func(ctx context.Context, x *examination) error
	none finding
}

var checks = []check{
	{"leaders", leaders, finding{Verdict: well, Message: "each election has a leader"}},
	{"default", tags, finding{}},
	{"tags", conflicts, finding{Verdict: well, Message: "each tag has one revision"}},
	{"permissions", permissions, finding{}},
	{"clock", clock, finding{}},
	{"locks", locks, finding{}},
	{"annotations", annotations, finding{Verdict: well, Message: "no annotation prevents a leader"}},
	{"installations", installations, finding{Verdict: well, Message: "no election is used by two installations"}},
	{"flow", flow, finding{Verdict: unknown, Message: "no leader is a pod, so the priority of renewals is unknown"}},
	{"fence", fences, finding{}},
	{"witness", witnessed, finding{Verdict: unknown, Message: "the candidates are unknown, because there are no member Leases"}},
}

func (p *Program) doctor() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check elections for problems and suggest fixes",
		Long: `Checks first whether each election has a leader and another candidate, whether a live process runs the default revision, and whether
several revisions claim a tag. Then checks permissions, clocks, locks, annotations that prevent a leader, elections that two installations share, priorities in the API
server, the fence, and whether a witness releases the lock after a crash. Read-only. The exit code is 5 if there is a problem.`,
		Example: "  " + name() + " doctor -n istio-system",
		Args:    exactly(),
	}
	out := printing(cmd)
	cmd.RunE = p.connected(out, func(ctx context.Context, c *clients, _ []string) error {
		findings, err := p.examine(ctx, c)
		if err != nil {
			return err
		}
		return p.report(out, findings)
	})
	p.namespaces(cmd)
	return cmd
}

func (p *Program) examine(ctx context.Context, c *clients) (all []finding, err error) {
	x := &examination{c: c}
	if x.elections, x.seen, err = p.elections(ctx, c, k8sleaderelection.DefaultRevision{}); err != nil {
		return nil, err
	}
	if len(x.elections)+len(x.seen.candidates) == 0 {
		return nil, p.nothing(ctx, c, x.seen)
	}
	for _, check := range checks {
		x.found = nil
		err := check.run(ctx, x)
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case apierrors.IsForbidden(err):
			x.add(unknown, "run this as a user with the missing permission", "%v", err)
		case err != nil:
			return nil, err
		case len(x.found) == 0:
			x.found = append(x.found, check.none)
		}
		for _, f := range x.found {
			f.Check = check.name
			all = append(all, f)
		}
	}
	return all, nil
}

// report prints the findings. It returns an error if there is a problem.
func (p *Program) report(out *output, findings []finding) error {
	problems := 0
	var rows [][]cell
	for _, f := range findings {
		mark := cell{text: string(f.Verdict), colour: map[verdict]string{well: green, warning: yellow, problem: red}[f.Verdict]}
		rows = append(rows, []cell{{text: f.Check}, mark, {text: f.Message}})
		if f.Fix != "" {
			rows = append(rows, []cell{{}, {}, {text: "→ " + f.Fix}})
		}
		if f.Verdict == problem {
			problems++
		}
	}
	if out.table() {
		p.writeTable(p.Out, []string{"CHECK", "VERDICT", "MESSAGE"}, rows)
	} else if err := printList(p.Out, out, findings, func(f finding) (*unstructured.Unstructured, error) { return object("Finding", "", f.Check, f) }); err != nil {
		return err
	}
	if problems > 0 {
		return withCode(unhealthy, "problems: %d", problems)
	}
	return nil
}

// locks reports the problems of the elections.
func locks(_ context.Context, x *examination) error {
	for _, e := range x.elections {
		for _, what := range e.Problems {
			x.add(problem, command("explain", e), "%s/%s: %s", e.Namespace, e.Name, what)
		}
	}
	if len(x.found)+len(x.seen.unread) == 0 {
		x.add(well, "", "elections: %d; each has one readable lock", len(x.elections))
	}
	return errors.Join(x.seen.unread...)
}

// annotations reports annotations that prevent a leader or a change of the leader.
func annotations(_ context.Context, x *examination) error {
	for _, e := range x.elections {
		for _, o := range e.Obstacles {
			x.add(warning, o.Remove, "%s/%s: %s: %s", e.Namespace, e.Name, o.Annotation, o.Effect)
		}
	}
	return nil
}

// installations reports elections for the same objects in two namespaces.
func installations(ctx context.Context, x *examination) error {
	all, err := x.c.look(ctx, "")
	if err != nil {
		return err
	}
	where := map[string][]string{}
	for _, l := range all.locks {
		if clusterWide[l.Name] && inspect.Of(l).Led() {
			where[l.Name] = append(where[l.Name], l.Namespace)
		}
	}
	for _, election := range slices.Sorted(maps.Keys(where)) {
		namespaces := slices.Compact(slices.Sorted(slices.Values(where[election])))
		if len(namespaces) > 1 {
			x.add(warning, "give each installation its own namespaces (discovery selectors), or remove an installation",
				"%s is held in namespaces %v: each installation has its own leader for the same objects", election, namespaces)
		}
	}
	return nil
}

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

func tags(ctx context.Context, x *examination) error {
	_, tag, err := x.c.tag(ctx)
	if err != nil {
		return err
	}
	validator, err := x.c.kube.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, tagging.DefaultValidator, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	runs := slices.ContainsFunc(x.seen.candidates, func(c inspect.Candidate) bool { return !c.Late && c.Revision() == tag })
	led := slices.ContainsFunc(x.elections, func(e inspect.Election) bool { return e.Led() && e.Revision == tag })
	switch {
	case err == nil && tagging.Named(validator.Labels) != tag:
		x.add(problem, "complete the change: istioctl tag set default --revision "+cmp.Or(tag, "REVISION")+" --overwrite",
			"%s has revision %s, but %s has %s", defaultTag, cmp.Or(tag, "none"), tagging.DefaultValidator, cmp.Or(tagging.Named(validator.Labels), "none"))
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

// conflicts reports tags that several revisions claim.
func conflicts(ctx context.Context, x *examination) error {
	options := metav1.ListOptions{LabelSelector: tagging.TagLabel}
	hooks, err := x.c.kube.AdmissionregistrationV1().MutatingWebhookConfigurations().List(ctx, options)
	if err != nil {
		return err
	}
	services, err := x.c.kube.CoreV1().Services(x.c.at).List(ctx, options)
	if err != nil {
		return err
	}
	for _, namespace := range x.namespaces() {
		var claims []tagging.Claim
		for _, s := range services.Items {
			if claim, ok := tagging.ServiceClaim(&s); ok && s.Namespace == namespace {
				claims = append(claims, claim)
			}
		}
		for _, h := range hooks.Items {
			if claim, ok := tagging.WebhookClaim(&h, namespace); ok {
				claims = append(claims, claim)
			}
		}
		_, conflicts := tagging.Resolve(namespace, claims)
		for _, c := range conflicts {
			for _, other := range c.Others {
				f := finding{Verdict: problem, Message: c.String(), Fix: other.DeleteCommand() + ", or change its label " + tagging.Label}
				if !slices.Contains(x.found, f) { // a webhook claims a tag in several namespaces
					x.found = append(x.found, f)
				}
			}
		}
	}
	return nil
}
