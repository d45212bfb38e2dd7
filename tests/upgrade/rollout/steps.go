package rollout

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"incumbent.dev/incumbent/internal/tagging"
	"incumbent.dev/incumbent/pilot/bootstrap"
	"incumbent.dev/incumbent/tests/upgrade/verdict"
)

const (
	// checkInterval is the interval of the checks of a wait.
	checkInterval = 100 * time.Millisecond
	// waitLimit bounds each wait.
	waitLimit = 3 * time.Minute
)

// Await waits until a condition holds. It ignores errors of the API server until the limit.
func (r *Rollout) Await(ctx context.Context, what string, holds func(context.Context) (bool, error)) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, checkInterval, waitLimit, true, func(ctx context.Context) (ok bool, _ error) {
		if ok, last = holds(ctx); ok && last == nil {
			return true, nil
		}
		return false, r.broken()
	})
	if broken := r.broken(); err != nil && broken != nil {
		return broken
	}
	if err != nil {
		return fmt.Errorf("wait until %s, at most %v: %w", what, waitLimit, errors.Join(err, last))
	}
	return nil
}

// Step logs a step.
func (r *Rollout) Step(name string) { r.options.Log(name) }

// Pods returns the Pods of a revision.
func (r *Rollout) Pods(ctx context.Context, revision string) ([]corev1.Pod, error) {
	all, err := r.Kube.CoreV1().Pods(Namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=pilot," + tagging.Label + "=" + revision})
	if err != nil {
		return nil, err
	}
	return all.Items, nil
}

// AwaitReady waits until a revision has n Pods and all of them are ready.
func (r *Rollout) AwaitReady(ctx context.Context, revision string, n int) error {
	return r.Await(ctx, fmt.Sprintf("%d Pods of %s are ready", n, revision), func(ctx context.Context) (bool, error) {
		pods, err := r.Pods(ctx, revision)
		ready := 0
		for _, pod := range pods {
			for _, c := range pod.Status.Conditions {
				if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue && pod.DeletionTimestamp == nil {
					ready++
				}
			}
		}
		if crash := r.crashed(revision); crash != nil && n > 0 {
			return false, crash
		}
		return ready == n && len(pods) == n, err
	})
}

// crashed returns an error with the end of the log if a process of the revision ended repeatedly.
func (r *Rollout) crashed(revision string) error {
	for _, p := range r.Node.Pods() {
		if p.Restarts >= 2 && !p.Ready && strings.HasPrefix(p.Name, "pilot-"+revision) {
			text, _ := os.ReadFile(p.Log)
			return fmt.Errorf("the process of Pod %s ended %d times; end of its log:\n%s", p.Name, p.Restarts, text[max(0, len(text)-1000):])
		}
	}
	return nil
}

// AwaitOwnElections waits until the elections per revision have holders.
func (r *Rollout) AwaitOwnElections(ctx context.Context, revision string) error {
	_, perRevision := bootstrap.Elections(bootstrap.Config{})
	return r.Await(ctx, "the elections of "+revision+" have holders", func(ctx context.Context) (bool, error) {
		for _, id := range perRevision {
			lease, err := r.Kube.CoordinationV1().Leases(Namespace).Get(ctx, id+"-"+revision, metav1.GetOptions{})
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

// AwaitLeads waits until a revision leads all shared elections.
func (r *Rollout) AwaitLeads(ctx context.Context, revision string) error {
	shared, _ := bootstrap.Elections(bootstrap.Config{})
	return r.Await(ctx, revision+" leads the shared elections", func(context.Context) (bool, error) {
		h, err := r.History()
		if err != nil {
			return false, err
		}
		courses := h.Courses()
		for _, id := range shared {
			terms := verdict.Terms(courses, Namespace, id)
			if len(terms) == 0 || terms[len(terms)-1].Ended != "" || terms[len(terms)-1].Key != revision {
				return false, nil
			}
		}
		return true, err
	})
}
