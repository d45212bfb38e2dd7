package rollout

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/pilot/bootstrap"
	locks "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/tests/upgrade/verdict"
)

// look is how often a wait looks.
const look = 100 * time.Millisecond

// await looks until something holds. An API server that is away is asked again.
func (r *Rollout) await(ctx context.Context, what string, holds func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, r.options.Patience, fmt.Errorf("not within %v", r.options.Patience))
	defer cancel()
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		ok, err := holds(ctx)
		if ok && err == nil {
			return nil
		}
		if broken := r.broken(); broken != nil {
			return broken
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting until %s: %w (last: %w)", what, context.Cause(ctx), err)
		case <-tick.C:
		}
	}
}

// Step says which step it is now, to who listens and to the log.
func (r *Rollout) Step(ctx context.Context, name string) {
	r.say("%s", name)
	err := r.apply(ctx, &corev1.ConfigMap{
		TypeMeta: core("ConfigMap"), ObjectMeta: metav1.ObjectMeta{Namespace: Home, Name: verdict.StepName}, Data: map[string]string{verdict.StepKey: name},
	})
	if err != nil {
		r.say("the step is not noted in the log: %v", err) // the figures lack a word, no more
	}
}

// Pods are those of a revision.
func (r *Rollout) Pods(ctx context.Context, revision string) ([]corev1.Pod, error) {
	all, err := r.Kube.CoreV1().Pods(Home).List(ctx, metav1.ListOptions{LabelSelector: "app=pilot,istio.io/rev=" + revision})
	if err != nil {
		return nil, err
	}
	return all.Items, nil
}

// AwaitReady waits until a revision has so many pods, and all of them are ready.
func (r *Rollout) AwaitReady(ctx context.Context, revision string, n int) error {
	return r.await(ctx, fmt.Sprintf("%d pods of %s are ready", n, revision), func(ctx context.Context) (bool, error) {
		pods, err := r.Pods(ctx, revision)
		ready := 0
		for _, pod := range pods {
			for _, c := range pod.Status.Conditions {
				if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue && pod.DeletionTimestamp == nil {
					ready++
				}
			}
		}
		if ends := r.ends(revision); ends != nil && n > 0 {
			return false, ends
		}
		return ready == n && len(pods) == n, err
	})
}

// ends is what a server that ends again and again says last.
func (r *Rollout) ends(revision string) error {
	for _, p := range r.Node.Pods() {
		if p.Restarts >= 2 && !p.Ready && strings.HasPrefix(p.Name, "pilot-"+revision) {
			return fmt.Errorf("the process of pod %s has ended %d times", p.Name, p.Restarts)
		}
	}
	return nil
}

// AwaitOwn waits until a revision's own elections have leaders.
func (r *Rollout) AwaitOwn(ctx context.Context, revision string) error {
	_, perRevision := bootstrap.Elections(bootstrap.Config{})
	return r.await(ctx, revision+" leads its own elections", func(ctx context.Context) (bool, error) {
		for _, id := range perRevision {
			lease, err := r.Kube.CoordinationV1().Leases(Home).Get(ctx, id+"-"+revision, metav1.GetOptions{})
			if err != nil || lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
				return false, ignoreMissing(err)
			}
		}
		return true, nil
	})
}

func ignoreMissing(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// AwaitLeads waits until a revision leads all elections that revisions share.
func (r *Rollout) AwaitLeads(ctx context.Context, revision string) error {
	return r.await(ctx, revision+" leads the shared elections", func(ctx context.Context) (bool, error) {
		held, err := r.Holders(ctx)
		for _, record := range held {
			if record.HolderKey != revision {
				return false, err
			}
		}
		return err == nil && len(held) > 0, err
	})
}

// Holders are the records of the shared elections; one that is free or nominated has no key.
func (r *Rollout) Holders(ctx context.Context) (map[string]locks.LeaderElectionRecord, error) {
	shared, _ := bootstrap.Elections(bootstrap.Config{})
	held := map[string]locks.LeaderElectionRecord{}
	for _, id := range shared {
		lock, err := r.Kube.CoreV1().ConfigMaps(Home).Get(ctx, id, metav1.GetOptions{})
		if err != nil {
			held[id] = locks.LeaderElectionRecord{}
			if ignoreMissing(err) != nil {
				return held, err
			}
			continue
		}
		var record locks.LeaderElectionRecord
		if err := json.Unmarshal([]byte(lock.Annotations[locks.LeaderElectionRecordAnnotationKey]), &record); err != nil || lock.Annotations[locks.NominatedAnnotation] == record.HolderIdentity {
			record.HolderKey = ""
		}
		held[id] = record
	}
	return held, nil
}
