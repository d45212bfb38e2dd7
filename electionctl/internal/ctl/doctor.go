package ctl

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"incumbent.dev/incumbent/internal/diagnosis"
	"incumbent.dev/incumbent/internal/fence"
	"incumbent.dev/incumbent/internal/fence/install"
	"incumbent.dev/incumbent/internal/inspect"
	"incumbent.dev/incumbent/internal/tagging"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

func (p *Program) doctor() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check elections for problems and suggest fixes",
		Long: `Reports the cause of the worst problem first. Checks whether each election has a leader and another candidate, whether a live process
runs the default revision, and whether several revisions claim a tag. Checks permissions, clocks, locks, annotations that prevent a leader,
elections that two installations share, priorities in the API server, the fence, and whether a witness releases the lock after a crash.
Reports Gateways that are not programmed, and objects that the servers write and a GitOps tool applies.
Read-only. The exit code is 5 if there is a problem.`,
		Example: "  " + name() + " doctor -n istio-system",
		Args:    exactly(),
	}
	out := printing(cmd)
	cmd.RunE = p.connected(out, func(ctx context.Context, c *clients, _ []string) error {
		findings, err := p.examine(ctx, c, out.wide())
		if err != nil {
			return err
		}
		return p.report(out, findings)
	})
	p.namespaces(cmd)
	return cmd
}

// examine reads what the checks need. A forbidden read makes its check unknown.
func (p *Program) examine(ctx context.Context, c *clients, wide bool) ([]diagnosis.Finding, error) {
	elections, s, err := p.elections(ctx, c, k8sleaderelection.DefaultRevision{})
	if err != nil {
		return nil, err
	}
	if len(elections)+len(s.candidates) == 0 {
		return nil, p.nothing(ctx, c, s)
	}
	in, err := c.observe(ctx, elections, s, wide)
	if err != nil {
		return nil, err
	}
	err = c.read(ctx, in, reads{
		{"permissions", c.readPermissions}, {"installations", c.readLocks},
		{"gateways", c.readGateways}, {"gitops", c.readWritten},
	})
	return diagnosis.Findings(*in), err
}

// reads are reads of objects by the check that needs them.
type reads []struct {
	check string
	read  func(ctx context.Context, in *diagnosis.Input) error
}

// read reads objects. A forbidden read makes its check unknown.
func (c *clients) read(ctx context.Context, in *diagnosis.Input, all reads) error {
	for _, r := range all {
		switch err := r.read(ctx, in); {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case apierrors.IsForbidden(err):
			in.Unread[r.check] = errors.Join(in.Unread[r.check], err)
		case err != nil:
			return err
		}
	}
	return nil
}

// observe returns the input of the diagnosis, without what can only be a warning.
func (c *clients) observe(ctx context.Context, elections []inspect.Election, s *seen, wide bool) (*diagnosis.Input, error) {
	in := &diagnosis.Input{
		Tool: name(), Namespace: c.at, Wide: wide, Now: c.clock.Now(), Elections: elections, Candidates: s.candidates, Ahead: s.ahead,
		Pods: map[string][]corev1.Pod{}, Unread: map[string]error{},
	}
	if len(s.unread) > 0 {
		in.Unread["locks"] = errors.Join(s.unread...)
	} else {
		in.Locks = append([]inspect.Lock{}, s.locks...)
	}
	err := c.read(ctx, in, reads{
		{"leaders", c.readPods}, {"leaders", c.readNamespaces}, {"leaders", c.readDeletions}, {"leaders", c.readDeployments}, {"clock", c.readClock}, {"default", c.readTags}, {"tags", c.readClaims}, {"flow", c.readFlow}, {"fence", c.readFence},
		{"leaders", c.readRights}, {"leaders", c.readWebhooks}, {"leaders", c.readReleases},
	})
	in.MarkPods()
	return in, err
}

func (c *clients) readPods(ctx context.Context, in *diagnosis.Input) error {
	for _, namespace := range in.Namespaces() {
		pods, err := c.kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{ResourceVersion: "0"}) // from the cache of the API server
		if err != nil {
			return err
		}
		in.Pods[namespace] = append([]corev1.Pod{}, pods.Items...)
	}
	return nil
}

func (c *clients) readNamespaces(ctx context.Context, in *diagnosis.Input) error {
	for _, name := range in.Namespaces() {
		namespace, err := c.kube.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		in.Spaces = append(in.Spaces, *namespace)
	}
	return nil
}

// readDeployments reads the Deployments of the namespaces if an election has no leader.
func (c *clients) readDeployments(ctx context.Context, in *diagnosis.Input) error {
	for _, name := range in.Leaderless() {
		list, err := c.kube.AppsV1().Deployments(name).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		in.Deployments = append(in.Deployments, list.Items...)
	}
	return nil
}

// recent is the period in which deletions of locks are counted.
const recent = 10 * time.Minute

// readDeletions counts the Events about leaders whose lock was deleted.
func (c *clients) readDeletions(ctx context.Context, in *diagnosis.Input) error {
	in.Deletions = map[string]diagnosis.Deletions{}
	for _, namespace := range in.Namespaces() {
		list, err := c.kube.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "reason=LeaderElection"})
		if err != nil {
			return err
		}
		for _, e := range list.Items {
			first, last := cmp.Or(e.FirstTimestamp.Time, e.EventTime.Time), cmp.Or(e.LastTimestamp.Time, e.EventTime.Time)
			if since := in.Now.Sub(last); since < recent && strings.Contains(e.Message, lockDeleted) {
				// Events with the same message are one object. Its count is spread evenly.
				of := min(1, float64(recent-since)/float64(max(last.Sub(first), 1)))
				lock := namespace + "/" + e.InvolvedObject.Name
				d := in.Deletions[lock]
				d.Count += max(1, int(of*float64(e.Count)))
				if d.Since.IsZero() || first.Before(d.Since) {
					d.Since = first
				}
				in.Deletions[lock] = d
			}
		}
	}
	return nil
}

// lockDeleted is the reason of a leader whose lock was deleted (core.LockDeleted).
const lockDeleted = "stopped leading (lock-deleted)"

// maxReviews is the maximum number of locks whose rights are checked, because each check is a request.
const maxReviews = 10

// readRights reads which rights the service accounts of the control plane lack.
func (c *clients) readRights(ctx context.Context, in *diagnosis.Input) error {
	reviews := 0
	for _, e := range in.Elections {
		for _, account := range in.Doubtful(e) {
			if reviews++; reviews > maxReviews {
				return nil
			}
			user, groups := fence.UserOf(account)
			group, resource := e.Kind().Resource()
			review, err := c.kube.AuthorizationV1().LocalSubjectAccessReviews(e.Namespace).Create(ctx, &authorizationv1.LocalSubjectAccessReview{ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace}, Spec: authorizationv1.SubjectAccessReviewSpec{
				User: user, Groups: groups,
				ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "update", Group: group, Resource: resource, Namespace: e.Namespace, Name: e.Name},
			}}, metav1.CreateOptions{})
			if err != nil {
				return err
			}
			right := diagnosis.Right{Account: account, Lock: e.Namespace + "/" + e.Name}
			if review.Status.Allowed {
				in.Granted = append(in.Granted, right)
			} else {
				in.Lacking = append(in.Lacking, right)
			}
		}
	}
	return nil
}

// readWebhooks reads the webhooks if one of them rejected a candidate, or if an election has no leader.
func (c *clients) readWebhooks(ctx context.Context, in *diagnosis.Input) error {
	if len(in.Leaderless()) == 0 && !slices.ContainsFunc(in.Candidates, diagnosis.ByWebhook) {
		return nil
	}
	in.Webhooks = []diagnosis.Webhook{}
	admission := c.kube.AdmissionregistrationV1()
	validating, err := admission.ValidatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, configuration := range validating.Items {
		for i, w := range configuration.Webhooks {
			in.Webhooks = append(in.Webhooks, diagnosis.Webhook{Kind: "ValidatingWebhookConfiguration", Configuration: configuration.Name, Index: i, ValidatingWebhook: w})
		}
	}
	mutating, err := admission.MutatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, configuration := range mutating.Items {
		for i, w := range configuration.Webhooks {
			in.Webhooks = append(in.Webhooks, diagnosis.Webhook{Kind: "MutatingWebhookConfiguration", Configuration: configuration.Name, Index: i, ValidatingWebhook: admissionv1.ValidatingWebhook{
				Name: w.Name, MatchConditions: w.MatchConditions, Rules: w.Rules, NamespaceSelector: w.NamespaceSelector, FailurePolicy: w.FailurePolicy,
			}})
		}
	}
	return nil
}

// readReleases reads the Helm releases of the service accounts.
func (c *clients) readReleases(ctx context.Context, in *diagnosis.Input) error {
	in.Releases = map[string]string{}
	for _, account := range in.Accounts() {
		namespace, name, _ := strings.Cut(account, "/")
		object, err := c.kube.CoreV1().ServiceAccounts(namespace).Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return err
		default:
			in.Releases[account] = install.Upgrade(object.Annotations)
		}
	}
	return nil
}

// report prints the findings. It returns an error if there is a problem.
func (p *Program) report(out *output, findings []diagnosis.Finding) error {
	var rows [][]cell
	for _, f := range findings {
		mark := cell{text: string(f.Severity), colour: map[diagnosis.Severity]string{diagnosis.Well: green, diagnosis.Warning: yellow, diagnosis.Problem: red}[f.Severity]}
		rows = append(rows, []cell{{text: f.Check}, mark, {text: f.String()}})
		for _, line := range details(f) {
			rows = append(rows, []cell{{}, {}, {text: line}})
		}
	}
	if out.table() {
		p.writeTable(p.Out, []string{"CHECK", "VERDICT", "MESSAGE"}, rows)
	} else if err := printList(p.Out, out, findings, func(f diagnosis.Finding) (*unstructured.Unstructured, error) {
		return object("Finding", "", f.Check, f)
	}); err != nil {
		return err
	}
	if problems := diagnosis.Problems(findings); problems > 0 {
		return withCode(unhealthy, "problems: %d", problems)
	}
	return nil
}

// details returns the lines after the message of a finding.
func details(f diagnosis.Finding) (lines []string) {
	if len(f.Elections) > 2 {
		lines = append(lines, "elections: "+strings.Join(f.Elections, ", "))
	}
	if f.Advice != "" {
		lines = append(lines, f.Advice)
	}
	if f.Command != "" {
		lines = append(lines, "→ "+f.Command)
	}
	return lines
}

// needed returns a permission that a command needs.
func needed(verb, group, resource, name, purpose string) diagnosis.Permission {
	return diagnosis.Permission{ResourceAttributes: authorizationv1.ResourceAttributes{Verb: verb, Group: group, Resource: resource, Name: name}, Purpose: purpose}
}

// lockPermissions returns the permissions to change leaders. Roles of operators list the locks by name, so one lock of each kind is checked.
func lockPermissions(in *diagnosis.Input) (all []diagnosis.Permission) {
	for _, kind := range []leaderelection.LockType{leaderelection.LockTypeLease, leaderelection.LockTypeConfigMap} {
		name := ""
		if i := slices.IndexFunc(in.Elections, func(e inspect.Election) bool { return e.Kind() == kind && e.Namespace == in.Namespace }); i >= 0 {
			name = in.Elections[i].Name
		}
		group, resource := kind.Resource()
		_, object := kind.Object()
		for _, verb := range []string{"update", fence.OperateVerb} {
			all = append(all, needed(verb, group, resource, name, verb+" "+object+" locks"))
		}
	}
	return all
}

func (c *clients) readPermissions(ctx context.Context, in *diagnosis.Input) error {
	in.Permissions = append([]diagnosis.Permission{
		needed("list", "coordination.k8s.io", "leases", "", "read Lease locks"),
		needed("list", "", "configmaps", "", "read ConfigMap locks"),
		needed("list", "", "events", "", "history"),
		needed("get", admissionv1.GroupName, "mutatingwebhookconfigurations", defaultTag, "read the default revision"),
		needed("create", "", "pods/portforward", "", "page"),
	}, lockPermissions(in)...)
	in.User = c.requester(ctx)
	for i := range in.Permissions {
		p := &in.Permissions[i]
		p.Namespace = c.at
		p.Resource, p.Subresource, _ = strings.Cut(p.Resource, "/")
		review, err := c.kube.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &p.ResourceAttributes},
		}, metav1.CreateOptions{})
		if err != nil {
			in.Permissions = nil
			return err
		}
		p.Allowed = review.Status.Allowed
	}
	return nil
}

func (c *clients) readClock(ctx context.Context, in *diagnosis.Input) error {
	before := time.Now() //nolint:forbidigo // checks this machine's clock
	server, err := c.serverTime(ctx)
	if err != nil {
		return err
	}
	half := time.Since(before) / 2 //nolint:forbidigo // the same
	in.Clock = &diagnosis.Clock{Offset: before.Add(half).Sub(server), PossibleError: half}
	return nil
}

// readLocks adds the locks in other namespaces that have the name of an election. The role of operators allows only these names.
func (c *clients) readLocks(ctx context.Context, in *diagnosis.Input) error {
	if in.Locks == nil || c.at == metav1.NamespaceAll {
		return nil
	}
	for _, name := range in.Shared() {
		others, err := c.look(ctx, metav1.NamespaceAll, name)
		if err == nil {
			err = errors.Join(others.unread...)
		}
		if err != nil {
			return err
		}
		for _, lock := range others.locks {
			if lock.Namespace != c.at {
				in.Locks = append(in.Locks, lock)
			}
		}
	}
	return nil
}

func (c *clients) readTags(ctx context.Context, in *diagnosis.Input) error {
	_, tag, err := c.tag(ctx)
	if err != nil {
		return err
	}
	validator, err := c.kube.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, tagging.DefaultValidator, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		validator = nil
	case err != nil:
		return err
	}
	in.Tags = &diagnosis.Tags{Default: tag, Validator: validator}
	return nil
}

// readClaims reads the webhooks and Services that claim a tag in a namespace of the elections.
func (c *clients) readClaims(ctx context.Context, in *diagnosis.Input) error {
	options := metav1.ListOptions{LabelSelector: tagging.TagLabel}
	hooks, err := c.kube.AdmissionregistrationV1().MutatingWebhookConfigurations().List(ctx, options)
	if err != nil {
		return err
	}
	services, err := c.kube.CoreV1().Services(c.at).List(ctx, options)
	if err != nil {
		return err
	}
	in.Claims = map[string][]tagging.Claim{}
	for _, namespace := range in.Namespaces() {
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
		in.Claims[namespace] = claims
	}
	return nil
}

func (c *clients) readFlow(ctx context.Context, in *diagnosis.Input) error {
	list, err := c.kube.FlowcontrolV1().FlowSchemas().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	levels, err := c.kube.FlowcontrolV1().PriorityLevelConfigurations().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	in.Schemas, in.Levels = list.Items, levels.Items
	return nil
}

// readFence reads the policies of this project, and compares them with their declarations.
func (c *clients) readFence(ctx context.Context, in *diagnosis.Input) error {
	own := metav1.ListOptions{LabelSelector: "app.kubernetes.io/part-of=incumbent"}
	policies, err := c.kube.AdmissionregistrationV1().ValidatingAdmissionPolicies().List(ctx, own)
	if err != nil {
		return err
	}
	bindings, err := c.kube.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().List(ctx, own)
	if err != nil {
		return err
	}
	f := &diagnosis.Fence{Policies: policies.Items, Bindings: map[string]admissionv1.ValidatingAdmissionPolicyBinding{}}
	for _, b := range bindings.Items {
		f.Bindings[b.Spec.PolicyName] = b
	}
	there := install.BySet(policies.Items)
	for _, namespace := range in.Namespaces() {
		f.Sets = append(f.Sets, install.Discover(namespace, there)...)
	}
	in.Fence = f
	return nil
}
