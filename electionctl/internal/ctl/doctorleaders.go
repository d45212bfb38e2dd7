package ctl

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"incumbent.dev/incumbent/internal/inspect"
	"incumbent.dev/incumbent/pilot/leaderelection"
)

// leaders reports elections without a live leader, and elections that would have none if their leader stopped.
func leaders(ctx context.Context, x *examination) (denied error) {
	for _, e := range x.elections {
		if e.Uncoordinated != "" {
			x.add(warning, "see docs/coordination.md, or start the servers without --election-strategy",
				"%s/%s is not coordinated, although its candidates request it: %s", e.Namespace, e.Name, e.Uncoordinated)
		}
		err := x.leader(ctx, e)
		if err != nil && !apierrors.IsForbidden(err) {
			return err
		}
		denied = cmp.Or(denied, err)
	}
	locked := map[string]bool{}
	for _, e := range x.elections {
		locked[e.Namespace+"/"+e.Name] = true
	}
	reported := map[string]bool{}
	for _, c := range x.seen.candidates {
		if where := c.Namespace + "/" + c.Election; !c.Late && !reported[where] && !locked[where] {
			reported[where] = true
			x.add(problem, "see the log of "+c.Identity, "%s has no lock, although %s is a candidate", where, c.Identity)
		}
	}
	unknowns := slices.ContainsFunc(x.elections, func(e inspect.Election) bool { return !x.seen.knows(e) })
	if len(x.found) == 0 && !unknowns {
		x.add(well, "", "each election has a leader and another candidate that can lead")
	}
	return denied
}

// ours reports whether the election is an election of Istio, or a process of this project takes part.
func ours(e inspect.Election) bool {
	return clusterWide[e.Name] || len(e.Candidates) > 0 || strings.HasPrefix(e.Name, leaderelection.GatewayDeploymentController+"-") ||
		strings.HasPrefix(e.Name, leaderelection.GatewayStatusController+"-")
}

// leader adds a finding if the election has no leader or no other candidate.
func (x *examination) leader(ctx context.Context, e inspect.Election) error {
	add := func(v verdict, fix, format string, args ...any) {
		x.add(v, fix, "%s/%s%s", e.Namespace, e.Name, fmt.Sprintf(format, args...))
	}
	where := command("explain", e)
	switch {
	case e.State == inspect.Doubtful:
		add(unknown, fmt.Sprintf("%s --observe %ds", where, e.LeaseSeconds+1), " may have no leader: %s", e.StateText())
		return nil
	case !e.Led() && x.holder(e) != "":
		add(warning, fmt.Sprintf("kubectl -n %s delete %s", e.Namespace, e.Object()),
			": the %s is not used, because the lock of another type has the leader %s", e.Lock, x.holder(e))
		return nil
	case !e.Led() && e.Name == leaderelection.GatewayStatusController && len(e.Candidates) == 0:
		return nil // the lock of old versions, which is released for good
	case !e.Led() && !ours(e):
		add(warning, wayOut(e), " has no leader: %s", e.StateText())
		return nil
	case !e.Led():
		add(problem, wayOut(e), " has no leader: %s; candidates: %s", e.StateText(), x.seen.readiness(e))
		return nil
	}
	why, err := x.c.gone(ctx, e)
	if why != "" {
		fix := fmt.Sprintf("a candidate acquires the lock when the lease of %d s expires; %s", e.LeaseSeconds, where)
		if x.holder(e) != "" {
			fix = where // which lock the candidates use is unknown
		}
		add(problem, fix, " has no live leader: %s; candidates: %s", why, x.seen.readiness(e))
		return nil
	}
	isHolder := func(c inspect.Candidate) bool { return c.Identity == e.Holder }
	switch {
	case e.State == inspect.Nominated, e.State == inspect.Holds && slices.ContainsFunc(e.Candidates, isHolder):
		add(warning, where, ": %s holds the lock and does not act yet", e.Holder)
	case slices.ContainsFunc(e.Candidates, func(c inspect.Candidate) bool { return isHolder(c) && c.BackingOff }):
		add(warning, where, ": %s holds the lock, but it stopped leading and does not campaign yet", e.Holder)
	case x.seen.knows(e) && !slices.ContainsFunc(e.Candidates, func(c inspect.Candidate) bool { return canReplace(c, e) }):
		fix := where
		if !slices.ContainsFunc(e.Candidates, func(c inspect.Candidate) bool { return !isHolder(c) && !c.Late }) {
			fix = "run at least two replicas"
		}
		add(warning, fix, ": no candidate can replace the leader %s; candidates: %s", e.Holder, x.seen.readiness(e))
	}
	return err
}

// holder returns the leader of the lock with the same name and another type, or "".
func (x *examination) holder(e inspect.Election) string {
	for _, o := range x.elections {
		if o.Namespace == e.Namespace && o.Name == e.Name && o.Lock != e.Lock && o.Led() {
			return o.Holder
		}
	}
	return ""
}

// wayOut returns advice for an election without a leader.
func wayOut(e inspect.Election) string {
	for _, readiness := range []inspect.Readiness{inspect.Ready, inspect.CoolingDown, inspect.Cold, inspect.Unfit} {
		i := slices.IndexFunc(e.Candidates, func(c inspect.Candidate) bool { return c.Readiness() == readiness })
		switch {
		case i < 0:
		case readiness == inspect.CoolingDown:
			return fmt.Sprintf("the candidate campaigns again after its cool-down: %s", command("watch", e))
		default:
			return fmt.Sprintf("if this persists, read the log of a candidate: kubectl -n %s logs %s", e.Namespace, e.Candidates[i].Identity)
		}
	}
	return fmt.Sprintf("start the pods of a candidate: kubectl -n %s get deployments; if the lock is not used any more: kubectl -n %s delete %s", e.Namespace, e.Namespace, e.Object())
}

// witnessed reports whether the candidates have a witness.
func witnessed(_ context.Context, x *examination) error {
	without := map[string]bool{}
	with := map[string]bool{}
	for _, c := range x.seen.candidates {
		switch {
		case c.Late:
		case c.Witness == inspect.NoWitness:
			without[c.Identity] = true
		default:
			with[c.Identity] = true
		}
	}
	switch {
	case len(without)+len(with) == 0:
	case len(with) == 0:
		x.add(warning, "start the servers with --witness=parent, the default",
			"no candidate has a witness; after a crash of the leader's process, followers wait for its lease")
	case len(without) > 0:
		x.add(well, "", "candidates without a witness: %s", strings.Join(slices.Sorted(maps.Keys(without)), ", "))
	default:
		x.add(well, "", "each candidate has a witness")
	}
	return nil
}

// canReplace reports whether a candidate other than the holder can lead.
func canReplace(c inspect.Candidate, e inspect.Election) bool {
	return c.Identity != e.Holder && c.Readiness() == inspect.Ready
}

// readiness lists the candidates of an election other than its holder.
func (s *seen) readiness(e inspect.Election) string {
	var all []string
	for _, c := range e.Candidates {
		if c.Identity != e.Holder {
			all = append(all, fmt.Sprintf("%s (%s)", c.Identity, c.Readiness()))
		}
	}
	if len(all) == 0 && !s.members[e.Namespace] {
		return "unknown"
	}
	return cmp.Or(strings.Join(all, ", "), "none")
}

// gone returns why the pod of the holder cannot act, or "". A holder outside a pod is not checked.
func (c *clients) gone(ctx context.Context, e inspect.Election) (string, error) {
	i := slices.IndexFunc(e.Candidates, func(o inspect.Candidate) bool { return o.Identity == e.Holder })
	inPods := slices.ContainsFunc(e.Candidates, func(o inspect.Candidate) bool { return o.PodUID != "" })
	if i >= 0 && e.Candidates[i].PodUID == "" || i < 0 && !inPods && !ours(e) {
		return "", nil
	}
	pod, err := c.existing(ctx, e.Namespace, e.Holder)
	switch {
	case err != nil:
		return "", err
	case pod == nil:
		return "pod " + e.Holder + " does not exist", nil
	case i >= 0 && e.Candidates[i].PodUID != string(pod.UID):
		return "pod " + e.Holder + " was replaced", nil
	case !slices.ContainsFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.State.Running != nil }):
		return fmt.Sprintf("pod %s does not run (%s)", e.Holder, pod.Status.Phase), nil
	}
	return "", nil
}

// existing returns a pod, or nil if it does not exist. It reads each pod once.
func (c *clients) existing(ctx context.Context, namespace, pod string) (*corev1.Pod, error) {
	if len(validation.IsDNS1123Subdomain(pod)) > 0 {
		return nil, nil
	}
	key := namespace + "/" + pod
	if found, read := c.pods[key]; read {
		return found, nil
	}
	found, err := c.kube.CoreV1().Pods(namespace).Get(ctx, pod, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		found, err = nil, nil
	}
	if err == nil {
		c.pods[key] = found
	}
	return found, err
}
