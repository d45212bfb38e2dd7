package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"

	"incumbent.dev/incumbent/internal/apirequest"
	"incumbent.dev/incumbent/internal/audit"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/leaderelection/gate"
	locks "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/pkg/kube"
	"incumbent.dev/incumbent/tests/cluster/node"
	"incumbent.dev/incumbent/tests/upgrade/rollout"
	"incumbent.dev/incumbent/tests/upgrade/verdict"
)

const (
	// judgeInterval is the interval between two checks of the audit log.
	judgeInterval = 200 * time.Millisecond
	// courseLimit bounds the wait for the course of an act. It is long, because a busy machine is not a failure.
	courseLimit = 3 * time.Minute
)

// demo disturbs the namespace controller's election.
type demo struct {
	*rollout.Rollout
	settings
	out io.Writer
	// frozen is the Pod of the stopped leader.
	frozen node.Pod
}

// act is one disturbance.
type act struct {
	title, expect string
	course        verdict.Course
	// disturb causes the change. It gets the Pod of the leader.
	disturb func(ctx context.Context, leader node.Pod) error
	// revision is the revision of the leader afterwards.
	revision string
	// crash is true if the leader ends without a drain, so that no leader is active until the next term.
	crash bool
	// then runs after the new leader has been found. Optional.
	then func(context.Context) error
}

// The courses without a coordinator.
var (
	elected    = verdict.Course{Began: audit.Created}
	handedOver = verdict.Course{Ended: audit.HandedOver, Began: audit.Nominated, Leader: verdict.AnotherPod}
	expired    = verdict.Course{Ended: audit.Taken, Began: audit.Overwrote, Leader: verdict.AnotherPod, Waited: true}
	reclaimed  = verdict.Course{Ended: audit.Reclaimed, Began: audit.Reclaimed, Leader: verdict.SamePod, Or: &expired}
	released   = verdict.Course{Ended: audit.Released, Began: audit.Acquired, Leader: verdict.AnotherPod}
	recreated  = verdict.Course{Ended: audit.Deleted, Began: audit.Created}
	replaced   = verdict.Course{Ended: audit.Corrupted, Began: audit.Overwrote, Waited: true}
)

func (d *demo) script() []act {
	return []act{
		{
			title: "Start two replicas of stable, then two of canary", revision: "stable", course: elected,
			expect: "a replica of stable, the default revision, creates the lock and leads",
		},
		{
			title: "Make canary the default revision", revision: "canary", course: handedOver,
			expect:  "canary requests a handover; stable drains and hands the lock over",
			disturb: func(ctx context.Context, _ node.Pod) error { return d.Flip(ctx, "canary") },
		},
		{
			title: "Kill the process of the leader for good (SIGKILL); its parent is its witness", revision: "canary",
			course: released, crash: true, disturb: d.killServer,
			expect: "the witness releases the lock without a wait for the lease; another replica acquires it",
		},
		{
			title: "Kill the process of the leader together with its witness", revision: "canary", course: reclaimed, crash: true, disturb: d.kill,
			expect: "the restarted process has the same identity and reclaims the lock",
		},
		{
			title: "Kill the process of the leader and delete its Pod by force", revision: "canary", course: expired, crash: true, disturb: d.lose,
			expect: "another replica acquires the lock after the lease has expired",
		},
		{
			title: "Stop the leader gracefully (kubectl delete pod)", revision: "canary", course: released, disturb: d.deletePod,
			expect: "the leader drains and releases the lock; another replica acquires it immediately",
		},
		{
			title: "Delete the lock", revision: "canary", course: recreated, disturb: d.deleteLock,
			expect: "the leader drains; the lock is created again, with a new term",
		},
		{
			title: "Corrupt the record of the lock", revision: "canary", course: replaced, disturb: d.corrupt,
			expect: "the leader stops; the lock counts as held for a lease duration, then the record is replaced",
		},
		{
			title: "Pause the leader (SIGSTOP) until another replica leads, then resume it (SIGCONT)", revision: "canary",
			course: expired, disturb: d.freeze, then: d.resume,
			expect: "the API server rejects a write with the token of the paused leader; the resumed leader writes nothing",
		},
	}
}

// coordinatedScript is the script with a coordinator. canary runs an older version than stable.
func (d *demo) coordinatedScript() []act {
	named := func(ended audit.Change) verdict.Course {
		return verdict.Course{Ended: ended, Began: audit.Nominated, Leader: verdict.AnotherPod, Waited: ended == audit.Taken}
	}
	return []act{
		{
			title: "Start two replicas of canary (version 1.1.0), then two of stable (1.2.0)", revision: "canary",
			course: verdict.Course{Began: audit.Nominated},
			expect: "the coordinator chooses a replica of canary, the default revision, although stable is newer",
		},
		{
			title: "Make stable the default revision", revision: "stable", course: handedOver,
			expect:  "the coordinator prefers stable; canary drains and hands the lock over",
			disturb: func(ctx context.Context, _ node.Pod) error { return d.Flip(ctx, "stable") },
		},
		{
			title: "Stop the leader gracefully (kubectl delete pod)", revision: "stable", course: named(audit.Released), disturb: d.deletePod,
			expect: "the leader drains and releases the lock; the coordinator chooses another replica",
		},
		{
			title: "Kill the process of the leader and delete its Pod by force", revision: "stable", course: named(audit.Taken), crash: true, disturb: d.lose,
			expect: "the coordinator chooses another replica after the lease has expired",
		},
	}
}

// run plays the script under load, and prints the verdict.
func (d *demo) run(ctx context.Context) error {
	fmt.Fprintf(d.out, "Leases of %v, renew deadline %v, retry period %v.\n", d.rollout().Lease, d.rollout().Renew, d.rollout().Retry)
	script := d.script()
	if d.settings.rollout.Coordinated {
		script = d.coordinatedScript()
	}
	for i, a := range script {
		fmt.Fprintf(d.out, "\n%d. %s\n   Expected: %s.\n", i+1, a.title, a.expect)
		if err := d.play(ctx, a); err != nil {
			return fmt.Errorf("step %d, %q: %w", i+1, a.title, err)
		}
	}
	if err := d.StopLoad(); err != nil {
		return err
	}
	if err := printVerdict(ctx, d.Rollout, d.out); err != nil {
		return err
	}
	fmt.Fprintf(d.out, "All %d steps went as expected.\n", len(script))
	return nil
}

func (d *demo) rollout() rollout.Options { return d.settings.rollout }

// play runs one act and checks it.
func (d *demo) play(ctx context.Context, a act) error {
	before, err := d.terms()
	if err != nil {
		return err
	}
	began := time.Now()
	if a.disturb == nil {
		if err := errors.Join(d.install(ctx, d.Rollout), d.StartLoad(ctx)); err != nil {
			return err
		}
	} else {
		leader, err := d.Node.Pod(rollout.Namespace, before[len(before)-1].Pod)
		if err != nil {
			return err
		}
		if a.crash {
			// The leader renews its lock, and has then also tested the fence. Without a fence in effect, its witness waits for writes on
			// their way before it releases the lock.
			_ = apirequest.Pause(ctx, 2*d.rollout().Retry)
		}
		began = time.Now()
		if err := a.disturb(ctx, leader); err != nil {
			return err
		}
	}
	terms, err := d.await(ctx, a, len(before))
	if err != nil {
		return err
	}
	if a.crash {
		d.note("no leader was active for %v; the lease is %v", terms[len(before)].Start.Answered.Sub(began).Round(time.Millisecond), d.rollout().Lease)
	}
	for i := max(len(before), 1); i < len(terms); i++ {
		former, term := terms[i-1], terms[i]
		d.note("the term of %s ended: %s", former.Pod, former.Ended)
		d.note("%s leads after %v (%s)", term.Pod, term.Start.Answered.Sub(began).Round(time.Millisecond), term.Began)
	}
	if len(before) == 0 {
		d.note("%s leads (%s)", terms[0].Pod, terms[0].Began)
	}
	if a.then != nil {
		return a.then(ctx)
	}
	return nil
}

func (d *demo) note(format string, args ...any) {
	fmt.Fprintf(d.out, "   "+format+"\n", args...)
}

func (d *demo) terms() ([]audit.Term, error) {
	h, err := d.History()
	if err != nil {
		return nil, err
	}
	return verdict.Terms(h.Courses(), rollout.Namespace, rollout.NamespaceElection), nil
}

// await waits until the terms of the lock fit the course and the new leader has created the ConfigMap everywhere. It
// fails as soon as a Pod writes outside its term.
func (d *demo) await(ctx context.Context, a act, before int) ([]audit.Term, error) {
	timing := verdict.Timing{Lease: d.rollout().Lease, Retry: d.rollout().Retry}
	ctx, cancel := context.WithTimeout(ctx, courseLimit)
	defer cancel()
	for {
		v, err := d.Judge()
		if err != nil {
			return nil, err
		}
		if err := v.Err(audit.Unelected, audit.Interleaved, audit.Late, verdict.Returned); err != nil {
			return nil, err
		}
		terms, err := d.terms()
		if err != nil {
			return nil, err
		}
		mismatch := a.course.Check(terms, before, a.revision, timing)
		if mismatch == nil {
			_, err := d.AwaitWanted(ctx)
			return terms, err
		}
		if apirequest.Pause(ctx, judgeInterval) != nil {
			return nil, mismatch
		}
	}
}

func (d *demo) kill(_ context.Context, leader node.Pod) error {
	return d.signal(leader, syscall.SIGKILL)
}

// killServer kills the server process. Its parent, the process of the Pod, is its witness.
func (d *demo) killServer(_ context.Context, leader node.Pod) error {
	children, err := harness.Children(leader.PID)
	if err != nil {
		return err
	}
	if len(children) == 0 {
		return fmt.Errorf("process %d of Pod %s has no child: its server has no witness", leader.PID, leader.Name)
	}
	for _, pid := range children {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			return fmt.Errorf("kill process %d of Pod %s: %w", pid, leader.Name, err)
		}
	}
	return nil
}

func (d *demo) signal(pod node.Pod, signal syscall.Signal) error {
	if err := d.Node.Signal(rollout.Namespace, pod.Name, signal); err != nil {
		return fmt.Errorf("send %v to Pod %s: %w", signal, pod.Name, err)
	}
	return nil
}

// lose stops the process first, so that it cannot release the lock.
func (d *demo) lose(ctx context.Context, leader node.Pod) error {
	if err := d.signal(leader, syscall.SIGSTOP); err != nil {
		return err
	}
	none := int64(0)
	if err := d.Kube.CoreV1().Pods(rollout.Namespace).Delete(ctx, leader.Name, metav1.DeleteOptions{GracePeriodSeconds: &none}); err != nil {
		return err
	}
	if err := syscall.Kill(leader.PID, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("kill Pod %s: %w", leader.Name, err)
	}
	return nil
}

func (d *demo) deletePod(ctx context.Context, leader node.Pod) error {
	return d.Kube.CoreV1().Pods(rollout.Namespace).Delete(ctx, leader.Name, metav1.DeleteOptions{})
}

// deleteLock waits for all replicas first: a replica that starts at that moment could create the lock.
func (d *demo) deleteLock(ctx context.Context, _ node.Pod) error {
	for _, revision := range d.revisions() {
		if err := d.AwaitReady(ctx, revision, 2); err != nil {
			return err
		}
	}
	return d.Kube.CoreV1().ConfigMaps(rollout.Namespace).Delete(ctx, rollout.NamespaceElection, metav1.DeleteOptions{})
}

func (d *demo) corrupt(ctx context.Context, _ node.Pod) error {
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"this is not a record"}}}`, locks.LeaderElectionRecordAnnotationKey)
	_, err := d.Kube.CoreV1().ConfigMaps(rollout.Namespace).Patch(ctx, rollout.NamespaceElection, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

func (d *demo) freeze(_ context.Context, leader node.Pod) error {
	d.frozen = leader
	return d.signal(leader, syscall.SIGSTOP)
}

// resume writes with the token of the paused leader, which the fence must reject, and resumes the leader.
func (d *demo) resume(ctx context.Context) error {
	err := d.writeAsFrozen(ctx)
	if err := errors.Join(err, d.signal(d.frozen, syscall.SIGCONT)); err != nil {
		return err
	}
	d.note("%s continues; the audit log shows whether it writes", d.frozen.Name)
	_ = apirequest.Pause(ctx, d.rollout().Lease)
	return nil
}

func (d *demo) writeAsFrozen(ctx context.Context) error {
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(filepath.Dir(d.frozen.Log), "kubeconfig"))
	if err != nil {
		return fmt.Errorf("read kubeconfig of Pod %s: %w", d.frozen.Name, err)
	}
	client, err := kube.NewClient(config, kube.WithOwnConnections())
	if err != nil {
		return err
	}
	defer kube.CloseIdleConnections(client)
	body := []byte(`{"data":{"root-cert.pem":"written by a paused leader"}}`)
	_, err = client.Kube().CoreV1().ConfigMaps(rollout.Namespace).Patch(ctx, "istio-ca-root-cert", types.MergePatchType, body, metav1.PatchOptions{})
	if err == nil {
		return errors.New("the fence did not reject a write of the paused leader")
	}
	if !gate.IsRefusal(err) {
		return fmt.Errorf("the fence did not reject a write of the paused leader: %w", err)
	}
	d.note("the API server rejected a write with its token: %s", firstSentence(err.Error()))
	return nil
}

func firstSentence(text string) string {
	first, _, _ := strings.Cut(text, "; ")
	return first
}
