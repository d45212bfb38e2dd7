package ctl

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"incumbent.dev/incumbent/internal/diagnosis"
	"incumbent.dev/incumbent/internal/inspect"
	"incumbent.dev/incumbent/internal/tagging"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/admin"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// order is an administrative command for one election.
type order struct {
	// describe returns the effect for the confirmation prompt. check returns an error if the command cannot be executed.
	describe func(e inspect.Election) string
	check    func(ctx context.Context, c *clients, e inspect.Election) error
	execute  func(ctx context.Context, o admin.Operator) error
	// anyHolder is true if the command needs no leader. Then it has no reason.
	anyHolder bool
	// flag is the name of a flag with a duration. It is validated before the first request.
	flag string

	yes     bool
	timeout time.Duration
	why     string
}

// order returns the command of an order.
func (p *Program) order(use, short, long string, o *order) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Long: long,
		Args:              exactly("election"),
		ValidArgsFunction: p.completeElections,
		RunE: func(cmd *cobra.Command, args []string) error {
			if length, err := cmd.Flags().GetDuration(o.flag); o.flag != "" && err == nil {
				if err := admin.ValidateDuration(length); err != nil {
					return withCode(misused, "--%s: %w", o.flag, err)
				}
			}
			if o.timeout <= 0 {
				return withCode(misused, "--timeout: duration %v: must be positive", o.timeout)
			}
			return p.give(cmd.Context(), args[0], o)
		},
	}
	cmd.Flags().BoolVarP(&o.yes, "yes", "y", false, "skip the confirmation prompt (required when stdin is not a terminal)")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 5*time.Minute, "how long to wait for completion; the request remains on the lock afterwards")
	if !o.anyHolder {
		cmd.Flags().StringVar(&o.why, "reason", "", "reason to record on the lock object")
	}
	return cmd
}

func (p *Program) transfer() *cobra.Command {
	var to, key, identity, revision string
	var hold time.Duration
	o := &order{flag: "hold"}
	o.describe = func(e inspect.Election) string {
		return fmt.Sprintf("%s will stop its work and hand the lock to %s; for %v no higher-ranked candidate can acquire it", e.Holder, to, hold)
	}
	o.check = func(ctx context.Context, c *clients, e inspect.Election) (err error) {
		key, err = c.destination(ctx, e, to, revision)
		identity = e.Identity(to)
		return err
	}
	o.execute = func(ctx context.Context, op admin.Operator) error {
		return op.Transfer(ctx, identity, key, o.why, hold)
	}
	cmd := p.order("transfer ELECTION --to POD", "Hand an election over to a candidate", "The leader stops its work and hands the lock to the candidate. The command returns when the candidate leads.", o)
	cmd.Flags().StringVar(&to, "to", "", "pod of the candidate")
	cmd.Flags().StringVar(&revision, "revision", "", "revision of a candidate without a pod and without a member Lease")
	cmd.Flags().DurationVar(&hold, "hold", 10*time.Minute, "how long no higher-ranked candidate can acquire the lock")
	_ = cmd.MarkFlagRequired("to")
	_ = cmd.RegisterFlagCompletionFunc("to", p.completeCandidates)
	return cmd
}

func (p *Program) stepDown() *cobra.Command {
	var coolDown time.Duration
	var force bool
	warning := ""
	o := &order{flag: "cool-down"}
	o.describe = func(e inspect.Election) string {
		return fmt.Sprintf("%s will stop its work and release the lock; it will not campaign again for %v%s", e.Holder, coolDown, warning)
	}
	o.check = func(_ context.Context, _ *clients, e inspect.Election) error {
		gap := min(coolDown, time.Duration(e.LeaseSeconds)*time.Second) // after a lease without a leader it campaigns again
		switch known := e.Known(); {
		case e.Replaceable():
		case known && !force:
			return withCode(Refused, "no other candidate of %s can lead for %v (candidates: %s); to step down nevertheless, use --force", e.Name, gap, diagnosis.Others(e, false))
		case known:
			warning = fmt.Sprintf("; no other candidate can lead for %v", gap)
		default:
			warning = fmt.Sprintf("; the other candidates are unknown: without another candidate, no candidate leads for %v", gap)
		}
		return nil
	}
	o.execute = func(ctx context.Context, op admin.Operator) error {
		return op.StepDown(ctx, o.why, coolDown)
	}
	cmd := p.order("step-down ELECTION", "Make the leader release the lock", "The leader stops its work and releases the lock. The command returns when its term has ended.", o)
	cmd.Flags().BoolVar(&force, "force", false, "step down even if no other candidate can lead")
	cmd.Flags().DurationVar(&coolDown, "cool-down", time.Minute, "how long the leader does not campaign again")
	return cmd
}

func (p *Program) pause() *cobra.Command {
	var length time.Duration
	o := &order{
		flag: "for",
		describe: func(e inspect.Election) string {
			return fmt.Sprintf("%s will keep the lock for %v even if the default revision changes; if it stops, another candidate leads", e.Holder, length)
		},
	}
	o.execute = func(ctx context.Context, op admin.Operator) error { return op.Pause(ctx, o.why, length) }
	cmd := p.order("pause ELECTION", "Keep the leader even if the default revision changes", "No candidate requests or takes the lock by rank. This ends after the given time, with resume, or with the term of the leader.", o)
	cmd.Flags().DurationVar(&length, "for", time.Hour, "duration of the hold")
	return cmd
}

func (p *Program) resume() *cobra.Command {
	o := &order{
		anyHolder: true,
		describe:  func(e inspect.Election) string { return "rank will be in effect again for " + e.Name },
		check: func(_ context.Context, _ *clients, e inspect.Election) error {
			if e.Hold == nil {
				return withCode(Refused, "election %s has no hold to remove", e.Name)
			}
			return nil
		},
		execute: func(ctx context.Context, op admin.Operator) error { return op.Resume(ctx) },
	}
	return p.order("resume ELECTION", "Remove the hold of pause or transfer", "Removes the hold that pause or transfer set. Rank is in effect again.", o)
}

// give confirms and executes an order, and prints what changed.
func (p *Program) give(ctx context.Context, name string, o *order) error {
	c, err := p.connect()
	if err != nil {
		return err
	}
	found, _, err := p.one(ctx, c, name, k8sleaderelection.DefaultRevision{})
	if err != nil {
		return err
	}
	if led := slices.DeleteFunc(slices.Clone(found), func(e inspect.Election) bool { return !e.Led() }); len(led) > 0 {
		found = led // a lock of another type is not used
	}
	e := found[0]
	if err := executable(found, o.anyHolder); err != nil {
		return err
	}
	if o.check != nil {
		if err := o.check(ctx, c, e); err != nil {
			return err
		}
	}
	if err := p.ask(ctx, fmt.Sprintf("%s/%s: %s.", e.Namespace, e.Name, o.describe(e)), o.yes); err != nil {
		return err
	}
	interrupted := ctx
	ctx, cancel := context.WithTimeoutCause(ctx, o.timeout, fmt.Errorf("not completed within %v", o.timeout))
	defer cancel()
	stop := p.progress("waiting for " + e.Holder)
	err = o.execute(ctx, admin.Operator{Lock: c.lock(e), Requester: c.requester(ctx)})
	stop()
	switch {
	case err == nil:
		if _, err := p.showChange(c, e, "done"); err != nil { // the command was executed nevertheless
			safe{p.Out}.line("%s/%s: done; failed to read the new state: %v", e.Namespace, e.Name, err)
		}
		return nil
	case interrupted.Err() != nil:
		return withCode(Interrupted, "interrupted; %s", p.pending(c, e))
	case ctx.Err() != nil:
		return fmt.Errorf("%w; %s", context.Cause(ctx), p.pending(c, e))
	}
	return refusal(err, e)
}

// pending prints what an order that was not completed has changed. It returns a sentence about its request.
func (p *Program) pending(c *clients, before inspect.Election) string {
	e, err := p.showChange(c, before, "no change")
	withdraw := "to withdraw it: " + command("cancel", before)
	switch {
	case err != nil:
		return fmt.Sprintf("the request may be on the lock (%v); %s", err, withdraw)
	case byOperator(e) && e.Request.Accepted:
		return fmt.Sprintf("%s has accepted the request and is draining; to follow it: %s", e.Holder, command("watch", e))
	case byOperator(e):
		return fmt.Sprintf("the request is still on the lock, and %s may execute it; %s", e.Holder, withdraw)
	}
	return "the lock has no request now; to check it again: " + command("explain", before)
}

// executable returns an error if the holder would not execute an order.
func executable(found []inspect.Election, anyHolder bool) error {
	e := found[0]
	switch {
	case len(found) > 1 && found[0].Holder != found[1].Holder: // one holder of both holds the Lease only while it holds the ConfigMap
		return withCode(Refused, "a ConfigMap and a Lease named %s each have a holder, so two leaders can be active: see %s", e.Name, command("explain", e))
	case anyHolder:
		return nil
	case e.State == inspect.Holds && e.Program != "" || e.State == inspect.Holds && e.Key == "":
		return withCode(Refused, "the holder %s is %s, which does not support this command: %s, or change the default revision", e.Holder, cmp.Or(e.Program, "another elector such as client-go"), stopping(e))
	case e.State == inspect.Holds || e.State == inspect.Nominated:
		return withCode(Refused, "the holder %s is not leading yet, or is another elector; try again in %d s", e.Holder, e.LeaseSeconds)
	case e.State != inspect.Leads:
		return withCode(Refused, "election %s has no leader (state: %s)", e.Name, e.StateText())
	case e.Request != nil && e.Request.Refused == "" && (e.Request.Accepted || byOperator(e)):
		return withCode(Refused, "a handover to %s is in progress, requested by %s; follow it: %s; withdraw it: %s",
			cmp.Or(e.Request.Identity, "any candidate"), cmp.Or(e.Request.Requester, "?"), command("watch", e), command("cancel", e))
	}
	return nil
}

// stopping returns advice to stop the process of the holder. The identities of client-go are <pod>_<UUID>.
func stopping(e inspect.Election) string {
	pod, _, _ := strings.Cut(e.Holder, "_")
	if len(validation.IsDNS1123Subdomain(pod)) > 0 {
		return "stop its process"
	}
	return fmt.Sprintf("delete its pod (kubectl -n %s delete pod %s)", e.Namespace, pod)
}

// refusal adds advice to the error of an order.
func refusal(err error, e inspect.Election) error {
	for _, refused := range []error{admin.ErrNoLeader, admin.ErrNoHold, admin.ErrNoRequest, admin.ErrHandoverUnderWay, admin.ErrNotExecuted} {
		if errors.Is(err, refused) {
			return withCode(Refused, "%w; see %s", err, command("explain", e))
		}
	}
	return err
}

// ask prints the effect of a command and asks for confirmation. An interrupt ends it immediately.
func (p *Program) ask(ctx context.Context, what string, yes bool) error {
	safe{p.ErrOut}.line("%s", what)
	if yes {
		return nil
	}
	if !p.Interactive {
		return withCode(misused, "no terminal for the confirmation prompt; nothing was changed: use --yes")
	}
	fmt.Fprint(p.ErrOut, "Continue? [y/N] ")
	answer := make(chan string, 1)
	go func() { // a read of a terminal cannot be interrupted, so it ends with the process
		line, _ := bufio.NewReader(p.In).ReadString('\n')
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case line := <-answer:
		if line == "y" || line == "yes" {
			return nil
		}
		return withCode(Refused, "nothing was changed")
	case <-ctx.Done():
		fmt.Fprintln(p.ErrOut)
		return withCode(Interrupted, "interrupted; nothing was changed")
	}
}

// showChange prints what changed, or otherwise if nothing did. It returns the present state.
func (p *Program) showChange(c *clients, before inspect.Election, otherwise string) (inspect.Election, error) {
	// The context of the command may have ended by an interrupt.
	ctx, cancel := context.WithTimeout(context.Background(), readLimit) //nolint:forbidigo // see above
	defer cancel()
	found, _, err := p.one(ctx, c, before.Name, k8sleaderelection.DefaultRevision{})
	if err != nil {
		return before, err
	}
	after := found[max(0, slices.IndexFunc(found, func(e inspect.Election) bool { return e.Lock == before.Lock }))]
	changes := inspect.Changes(&before, &after)
	if len(changes) == 0 {
		changes = []string{otherwise}
	}
	for _, change := range changes {
		safe{p.Out}.line("%s/%s: %s", before.Namespace, before.Name, change)
	}
	return after, nil
}

// lock returns the lock of an election.
func (c *clients) lock(e inspect.Election) k8sresourcelock.Lock {
	meta := metav1.ObjectMeta{Namespace: e.Namespace, Name: e.Name}
	return k8sresourcelock.NewLock(e.Kind(), meta, c.kube, k8sresourcelock.ResourceLockConfig{Identity: "electionctl"}, nil)
}

// requester returns the user name.
func (c *clients) requester(ctx context.Context) string {
	review, err := c.kube.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil || review.Status.UserInfo.Username == "" {
		return "electionctl"
	}
	return review.Status.UserInfo.Username
}

// destination returns the key of the candidate to, or an error if the candidate cannot lead.
func (c *clients) destination(ctx context.Context, e inspect.Election, to, revision string) (key string, _ error) {
	if to == e.Holder {
		return "", withCode(Refused, "%s leads already; to keep it, use pause", to)
	}
	var found *inspect.Candidate
	if i := slices.IndexFunc(e.Candidates, func(c inspect.Candidate) bool { return c.Identity == to }); i >= 0 {
		found = &e.Candidates[i]
	}
	there := identities(e.Candidates, func(c inspect.Candidate) bool { return c.Identity != to && c.Identity != e.Holder && !c.Late })
	others := cmp.Or(strings.Join(there, ", "), "none except the leader")
	switch {
	case found == nil && e.Known():
		return "", withCode(NotFound, "%s is no candidate of %s; candidates: %s", to, e.Name, others)
	case found != nil && !found.Warm:
		return "", withCode(Refused, "the caches of %s are not warm yet; candidates: %s", to, others)
	case found != nil && !found.Fit:
		return "", withCode(Refused, "%s is not fit to lead; candidates: %s", to, others)
	case found != nil && found.PodUID == "":
		return found.Key, nil // it runs outside a pod
	case found == nil && revision != "":
		return revision, nil
	}
	pod, err := c.alive(ctx, e.Namespace, to)
	switch {
	case found == nil && err != nil:
		return "", withCode(NotFound, "%w; for a candidate outside a pod, use --revision", err)
	case err != nil:
		return "", err
	case found != nil && pod != nil && string(pod.UID) != found.PodUID:
		return "", withCode(Refused, "pod %s was replaced, and the new pod is no candidate yet; candidates: %s", to, others)
	case found != nil:
		return found.Key, nil
	case pod == nil:
		return "", nil
	}
	return pod.Labels[tagging.Label], nil
}

// pod returns a pod.
func (c *clients) pod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	pod, err := c.kube.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		err = withCode(NotFound, "pod %s not found in namespace %s: kubectl -n %s get pods", name, namespace, namespace)
	}
	return pod, err
}

// alive returns the pod, or an error if it is ending. It returns nil if reading pods is forbidden.
func (c *clients) alive(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	pod, err := c.pod(ctx, namespace, name)
	switch {
	case apierrors.IsForbidden(err):
		return nil, nil
	case err != nil:
		return nil, err
	case pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded:
		return nil, withCode(Refused, "pod %s is terminating or has ended; use another: kubectl -n %s get pods", name, namespace)
	}
	return pod, nil
}
