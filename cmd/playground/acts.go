package main

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	locks "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/tests/cluster/node"
)

func (d *demo) script() []act {
	return []act{
		{
			title: "elect: two replicas of stable start, then two of canary", revision: "stable",
			course:  electedFirst,
			expect:  "one of stable leads, which is the default revision",
			disturb: func(context.Context) (time.Time, error) { return d.installed, nil },
		},
		{
			title: "flip the default revision to canary", revision: "canary", disturb: d.flip,
			course: handedOver,
			expect: "canary asks for the lock; stable ends its work and writes canary in",
		},
		{
			title: "kill the leader's process (SIGKILL)", revision: "canary", disturb: d.kill,
			course: reclaimed,
			expect: "its pod starts another under the same name, which may reclaim the lock at once",
		},
		{
			title: "lose the leader for good (SIGKILL, and its pod deleted by force)", revision: "canary", disturb: d.lose,
			course: waitedFor,
			expect: "the others wait until its lease has run out",
		},
		{
			title: "stop the leader gracefully (kubectl delete pod)", revision: "canary", disturb: d.deletePod,
			course: released,
			expect: "it ends its work, releases the lock, and another follows at once",
		},
		{
			title: "delete the lock", revision: "canary", disturb: d.deleteLock,
			course: madeAgain,
			expect: "the leader ends its work, makes the lock again, and leads in a new term",
		},
		{
			title: "corrupt the record", revision: "canary", disturb: d.corrupt,
			course: outwaited,
			expect: "the leader ends its work at once; the lock counts as held for a whole lease, then it is replaced",
		},
		{
			title: "zombie: stop the leader (SIGSTOP), let another take over, and let it go on (SIGCONT)", revision: "canary",
			disturb: d.freeze, then: d.revive,
			course: waitedFor,
			expect: "whatever it believes: its gate refuses its writes, and the API server those that pass no gate",
		},
	}
}

// leader is the pod that works now.
func (d *demo) leader() (string, error) {
	now := working(d.journal.all(), witnessed)
	if len(now) != 1 {
		return "", fmt.Errorf("%d replicas work on %s", len(now), witnessed)
	}
	return now[0].pod, nil
}

func (d *demo) flip(ctx context.Context) (time.Time, error) {
	at := time.Now()
	return at, d.makeDefault(ctx, "canary")
}

func (d *demo) kill(ctx context.Context) (time.Time, error) {
	leader, err := d.leader()
	if err != nil {
		return time.Time{}, err
	}
	pod, err := d.node.Pod(systemNamespace, leader)
	if err != nil {
		return time.Time{}, err
	}
	at := time.Now()
	return at, d.killProcess(ctx, pod, at)
}

// lose ends a pod and its process so that nobody comes back under its name. The
// process is stopped first, so that it cannot do anything about it.
func (d *demo) lose(ctx context.Context) (time.Time, error) {
	leader, err := d.leader()
	if err != nil {
		return time.Time{}, err
	}
	return d.losePod(ctx, leader)
}

func (d *demo) losePod(ctx context.Context, name string) (time.Time, error) {
	pod, err := d.node.Pod(systemNamespace, name)
	if err != nil {
		return time.Time{}, err
	}
	if err := d.node.Signal(systemNamespace, name, syscall.SIGSTOP); err != nil {
		return time.Time{}, fmt.Errorf("stopping pod %s: %w", name, err)
	}
	at := time.Now()
	if err := d.deleteNow(ctx, name); err != nil {
		return time.Time{}, err
	}
	return at, d.killProcess(ctx, pod, at)
}

func (d *demo) deletePod(ctx context.Context) (time.Time, error) {
	leader, err := d.leader()
	if err != nil {
		return time.Time{}, err
	}
	at := time.Now()
	return at, d.kube.CoreV1().Pods(systemNamespace).Delete(ctx, leader, metav1.DeleteOptions{})
}

// deleteNow is kubectl delete pod --force.
func (d *demo) deleteNow(ctx context.Context, pod string) error {
	none := int64(0)
	return d.kube.CoreV1().Pods(systemNamespace).Delete(ctx, pod, metav1.DeleteOptions{GracePeriodSeconds: &none})
}

// deleteLock deletes the lock once all replicas know of it: one that starts at that moment, in the
// place of another act's Pod, finds none, and may make it as well as the leader whose it was.
func (d *demo) deleteLock(ctx context.Context) (time.Time, error) {
	if err := d.awaitAll(ctx); err != nil {
		return time.Time{}, err
	}
	at := time.Now()
	return at, d.kube.CoreV1().ConfigMaps(systemNamespace).Delete(ctx, witnessed, metav1.DeleteOptions{})
}

// awaitAll waits until each replica is there.
func (d *demo) awaitAll(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, d.limit, fmt.Errorf("not all replicas are ready after %v", d.limit))
	defer cancel()
	return d.watched.await(ctx, recheck, func(v view) (bool, string) {
		n := 0
		for _, p := range v.pods {
			if p.ready {
				n++
			}
		}
		return n == len(v.pods) && n >= 4, fmt.Sprintf("%d of %d replicas are ready", n, len(v.pods))
	})
}

func (d *demo) corrupt(ctx context.Context) (time.Time, error) {
	at := time.Now()
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"this is no record"}}}`, locks.LeaderElectionRecordAnnotationKey)
	_, err := d.kube.CoreV1().ConfigMaps(systemNamespace).
		Patch(ctx, witnessed, types.MergePatchType, patch, metav1.PatchOptions{})
	return at, err
}

// killProcess sends SIGKILL to a pod's process and returns when it is gone. Only
// what it did before the given instant was its work: its pod may have another by then.
func (d *demo) killProcess(ctx context.Context, pod node.Pod, at time.Time) error {
	err := syscall.Kill(pod.PID, syscall.SIGKILL)
	for err == nil {
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the end of pod %s: %w", pod.Name, context.Cause(ctx))
		case <-time.After(time.Millisecond):
		}
		err = syscall.Kill(pod.PID, 0)
	}
	if !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("killing pod %s: %w", pod.Name, err)
	}
	d.journal.died(pod.Name, at, time.Now())
	return nil
}
