package ctl

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/inspect"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/admin"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// order is what is asked of one election.
type order struct {
	// does says what will happen, check why it cannot; give gives the order.
	does  func(e inspect.Election) string
	check func(ctx context.Context, c *clients, e inspect.Election, s *seen) error
	give  func(ctx context.Context, o admin.Operator) error

	yes     bool
	timeout time.Duration
	why     string
}

// command makes the command of an order.
func (p *Program) order(use, short, long string, o *order) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Long: long,
		Args:              exactly("election"),
		ValidArgsFunction: p.completeElections,
		RunE:              func(cmd *cobra.Command, args []string) error { return p.give(cmd.Context(), args[0], o) },
	}
	cmd.Flags().BoolVarP(&o.yes, "yes", "y", false, "do not ask; needed without a terminal")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 5*time.Minute, "how long to wait until it is done; the order stands all the same")
	cmd.Flags().StringVar(&o.why, "reason", "", "a word for others on call; it stands on the lock")
	return cmd
}

func (p *Program) transfer() *cobra.Command {
	var to, key, identity string
	var hold time.Duration
	o := &order{}
	o.does = func(e inspect.Election) string {
		return fmt.Sprintf("%s ends its work and writes %s in; for %v rank does not take it away from there", e.Holder, to, hold)
	}
	o.check = func(ctx context.Context, c *clients, e inspect.Election, s *seen) (err error) {
		key, err = c.destination(ctx, e, s, to)
		identity = e.Identity(to)
		return err
	}
	o.give = func(ctx context.Context, op admin.Operator) error {
		return op.Transfer(ctx, identity, key, o.why, hold)
	}
	cmd := p.order("transfer ELECTION --to POD", "Have the leader hand over to a candidate", "The leader ends its work and writes the candidate in. The command returns once that one leads.", o)
	cmd.Flags().StringVar(&to, "to", "", "the candidate, by its pod's name")
	cmd.Flags().DurationVar(&hold, "hold", 10*time.Minute, "for how long rank does not take it away again")
	_ = cmd.MarkFlagRequired("to")
	_ = cmd.RegisterFlagCompletionFunc("to", p.completeCandidates)
	return cmd
}

func (p *Program) stepDown() *cobra.Command {
	var coolDown time.Duration
	o := &order{
		does: func(e inspect.Election) string {
			return fmt.Sprintf("%s ends its work and gives the lock up to whoever is there; it does not come back for %v", e.Holder, coolDown)
		},
	}
	o.give = func(ctx context.Context, op admin.Operator) error {
		return op.StepDown(ctx, o.why, coolDown)
	}
	cmd := p.order("step-down ELECTION", "Have the leader give the lock up", "The leader ends its work and gives the lock up. The command returns once its term has ended.", o)
	cmd.Flags().DurationVar(&coolDown, "cool-down", time.Minute, "for how long it does not campaign again")
	return cmd
}

func (p *Program) pause() *cobra.Command {
	var length time.Duration
	o := &order{
		does: func(e inspect.Election) string {
			return fmt.Sprintf("%s stays for %v, whatever the default revision; it is not kept alive", e.Holder, length)
		},
	}
	o.give = func(ctx context.Context, op admin.Operator) error { return op.Pause(ctx, o.why, length) }
	cmd := p.order("pause ELECTION", "Keep the leader where it is, whatever the default revision", "No candidate asks for the lock or takes it by rank, until the time is over, resume, or the end of the leader's term.", o)
	cmd.Flags().DurationVar(&length, "for", time.Hour, "for how long")
	return cmd
}

func (p *Program) resume() *cobra.Command {
	o := &order{
		does: func(e inspect.Election) string { return "rank counts again for " + e.Name },
		check: func(_ context.Context, _ *clients, e inspect.Election, _ *seen) error {
			if e.Hold == nil {
				return withCode(Refused, "%s is not paused, and no transfer holds it: there is nothing to resume from", e.Name)
			}
			return nil
		},
		give: func(ctx context.Context, op admin.Operator) error { return op.Resume(ctx) },
	}
	return p.order("resume ELECTION", "Let rank count again", "Ends what pause, or the hold of a transfer, has left.", o)
}

// give says what will happen, asks, does it, and says what has changed.
func (p *Program) give(ctx context.Context, name string, o *order) error {
	c, err := p.connect()
	if err != nil {
		return err
	}
	found, s, err := p.one(ctx, c, name, k8sleaderelection.DefaultRevision{})
	if err != nil {
		return err
	}
	e := found[0]
	if err := obeys(found); err != nil {
		return err
	}
	if o.check != nil {
		if err := o.check(ctx, c, e, s); err != nil {
			return err
		}
	}
	if err := p.confirm(e, o); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, o.timeout, fmt.Errorf("not done within %v", o.timeout))
	defer cancel()
	stop := p.progress("waiting for " + e.Holder)
	err = o.give(ctx, admin.Operator{Lock: c.lock(e), Requester: c.requester(ctx)})
	stop()
	if err != nil {
		return refusal(err, e)
	}
	return p.showChange(c, e)
}

// obeys reports why an order would not be heard.
func obeys(found []inspect.Election) error {
	e := found[0]
	switch {
	case len(found) > 1:
		return withCode(Refused, "there is a ConfigMap and a Lease named %s, and each has a holder: see %s explain %s", e.Name, name(), e.Name)
	case e.State == inspect.Holds && e.Program != "" || e.State == inspect.Holds && e.Key == "":
		return withCode(Refused, "the holder %s is %s, which does not know orders: delete its pod, or change the default revision (%s plan)", e.Holder, or(e.Program, "a peer such as client-go's"), name())
	case e.State == inspect.Holds || e.State == inspect.Nominated:
		return withCode(Refused, "the holder %s does not say that it leads: it is a peer, or does not act yet; look again in %d s", e.Holder, e.LeaseSeconds)
	case e.State == inspect.Kept:
		return withCode(Refused, "%s is kept for the elections that came in its place: give the order to those (docs/migration.md)", e.Name)
	case e.State != inspect.Leads:
		return withCode(Refused, "nobody leads %s, it is %s: there is nobody to obey", e.Name, e.State)
	case e.Request != nil && e.Request.Refused == "" && (e.Request.Accepted || e.Request.Reason == "operator"):
		return withCode(Refused, "a handover to %s is under way, asked for by %s: wait until it is done, %s watch %s",
			or(e.Request.To, "whoever comes"), or(e.Request.Requester, "?"), name(), e.Name)
	}
	return nil
}

// refusal adds the next step to what became of an order.
func refusal(err error, e inspect.Election) error {
	for _, refused := range []error{admin.ErrNoLeader, admin.ErrNoHold, admin.ErrHandoverUnderWay, admin.ErrNotExecuted} {
		if errors.Is(err, refused) {
			return withCode(Refused, "%w; see %s explain %s", err, name(), e.Name)
		}
	}
	return err
}

// confirm says what an order does, and asks whether it is meant.
func (p *Program) confirm(e inspect.Election, o *order) error {
	return p.ask(fmt.Sprintf("%s/%s: %s.", e.Namespace, e.Name, o.does(e)), o.yes)
}

func (p *Program) ask(what string, yes bool) error {
	safe{p.ErrOut}.line("%s", what)
	if yes {
		return nil
	}
	if !p.Interactive {
		return withCode(Misused, "there is no terminal to ask on, and nothing was done: say --yes")
	}
	fmt.Fprint(p.ErrOut, "Go on? [y/N] ")
	line, _ := bufio.NewReader(p.In).ReadString('\n')
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return nil
	}
	return withCode(Refused, "nothing was done")
}

// showChange says what has become of the election.
func (p *Program) showChange(c *clients, before inspect.Election) error {
	// What was done is shown after an interrupt, too, which ends the command's context.
	ctx, cancel := context.WithTimeout(context.Background(), completeWithin) //nolint:forbidigo // see above
	defer cancel()
	found, _, err := p.one(ctx, c, before.Name, k8sleaderelection.DefaultRevision{})
	if err != nil {
		return err
	}
	changes := inspect.Changes(&before, &found[0])
	if len(changes) == 0 {
		changes = []string{"done"}
	}
	for _, words := range changes {
		safe{p.Out}.line("%s/%s: %s", before.Namespace, before.Name, words)
	}
	return nil
}

// lock is the lock object, for the library's orders.
func (c *clients) lock(e inspect.Election) k8sresourcelock.Interface {
	meta := metav1.ObjectMeta{Namespace: e.Namespace, Name: e.Name}
	config := k8sresourcelock.ResourceLockConfig{Identity: "electionctl"}
	lease := &k8sresourcelock.LeaseLock{LeaseMeta: meta, Client: c.kube.CoordinationV1(), LockConfig: config}
	configMap := &k8sresourcelock.ConfigMapLock{ConfigMapMeta: meta, Client: c.kube.CoreV1(), LockConfig: config}
	switch e.Lock {
	case inspect.Lease:
		return lease
	case inspect.ConfigMap:
		return configMap
	}
	return &k8sresourcelock.MultiLock{Primary: configMap, Secondary: lease}
}

// requester is who the API server takes us for.
func (c *clients) requester(ctx context.Context) string {
	review, err := c.kube.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil || review.Status.UserInfo.Username == "" {
		return "electionctl"
	}
	return review.Status.UserInfo.Username
}

// destination is the key of the candidate that is to lead. It finds those that could not.
func (c *clients) destination(ctx context.Context, e inspect.Election, s *seen, to string) (key string, _ error) {
	if to == e.Holder {
		return "", withCode(Refused, "%s leads already; pause keeps it there", to)
	}
	var there []string
	var found *inspect.Candidate
	for i, candidate := range e.Candidates {
		switch {
		case candidate.Identity == to:
			found = &e.Candidates[i]
		case candidate.Identity != e.Holder && !candidate.Late:
			there = append(there, candidate.Identity)
		}
	}
	others := or(strings.Join(there, ", "), "none beside the leader")
	switch {
	case found == nil && s.knows(e):
		return "", withCode(NotFound, "%s is no candidate of %s; there are: %s", to, e.Name, others)
	case found != nil && !found.Warm:
		return "", withCode(Refused, "%s is not warm, and does not campaign yet; there are: %s", to, others)
	case found != nil && !found.Fit:
		return "", withCode(Refused, "%s says that it is not fit to lead; there are: %s", to, others)
	case found != nil && found.PodUID == "":
		return found.Key, nil // it runs in no pod that we could look at
	}
	pod, err := c.alive(ctx, e.Namespace, to)
	switch {
	case err != nil:
		return "", err
	case found != nil && pod != nil && string(pod.UID) != found.PodUID:
		return "", withCode(Refused, "%s is the member of a pod that is gone, and the new pod of that name takes no part yet; there are: %s", to, others)
	case found != nil:
		return found.Key, nil
	case pod == nil:
		return "", nil
	}
	return pod.Labels[revisionLabel], nil
}

// alive is the pod, unless it is ending; nil where it may not be read.
func (c *clients) alive(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	pod, err := c.kube.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, withCode(NotFound, "there is no pod %s in namespace %s: kubectl -n %s get pods", name, namespace, namespace)
	case apierrors.IsForbidden(err):
		return nil, nil
	case err != nil:
		return nil, err
	case pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded:
		return nil, withCode(Refused, "pod %s is ending or has ended; choose another: kubectl -n %s get pods", name, namespace)
	}
	return pod, nil
}

func (p *Program) completeCandidates(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return p.offer(cmd, func(e inspect.Election) (pods []string) {
		for _, c := range e.Candidates {
			if (len(args) == 0 || e.Name == args[0]) && c.Identity != e.Holder {
				pods = append(pods, c.Identity)
			}
		}
		return pods
	})
}
