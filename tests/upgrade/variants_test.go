package upgrade

import (
	"context"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	locks "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/tests/upgrade/rollout"
	"incumbent.dev/incumbent/tests/upgrade/verdict"
)

// whole skips a test that is part of make upgrade-test alone.
func whole(t *testing.T) {
	t.Helper()
	if os.Getenv("UPGRADE") != "whole" {
		t.Skip("make upgrade-test runs it")
	}
}

var (
	stable = rollout.Release{Revision: "stable", Replicas: 3}
	canary = rollout.Release{Revision: "canary", Replicas: 2}
)

// All that can go wrong on the way, one after the other under the same work, judged by one log.
func TestUpgradeThroughTrouble(t *testing.T) {
	whole(t)
	w := start(t, rollout.Options{Lease: 6 * time.Second, Renew: 4 * time.Second, Retry: time.Second, Images: map[string]string{"crashing": "/bin/false"}})
	w.begin()
	w.canaryCrashes()
	w.canaryHasNoRights()
	w.flipsWithinASecond()
	w.rollbackDuringAHandover()
	w.allRestartAtOnce()
	w.apiServerRestarts()
	w.finish()
}

// moves flips the default by the label, and waits until the revision leads and all is as wanted.
func (w *world) moves(revision string) {
	w.t.Helper()
	w.must(w.FlipAtOnce(w.t.Context(), revision))
	w.must(w.AwaitLeads(w.t.Context(), revision))
	w.must(w.Settle(w.t.Context()))
}

// canaryCrashes: the chart refuses to make a revision the default that nobody runs. Mended in place, it is taken.
func (w *world) canaryCrashes() {
	w.t.Helper()
	ctx := w.t.Context()
	w.Step(ctx, "canary crashes again and again")
	broken := canary
	broken.Image = "crashing"
	w.must(w.Apply(ctx, broken))
	w.eventually("canary crashes", func() bool {
		for _, p := range w.Node.Pods() {
			if p.Restarts >= 2 && strings.HasPrefix(p.Name, "pilot-canary") {
				return true
			}
		}
		return false
	})
	if err := w.Flip(ctx, "canary"); err == nil || !strings.Contains(err.Error(), "no replica of revision canary is available") {
		w.t.Errorf("a flip to a revision that crashes: %v", err)
	}
	w.must(w.AwaitLeads(ctx, "stable"))
	// Canary's fence looks at a lock that nobody has ever held, which the chart has made: it does not refuse stable's writes for Gateways.
	lock, err := w.Kube.CoordinationV1().Leases(rollout.Home).Get(ctx, "istio-gateway-deployment-canary", metav1.GetOptions{})
	w.must(err)
	if holder := lock.Spec.HolderIdentity; holder != nil && *holder != "" {
		w.t.Errorf("canary crashes, and %q holds its lock", *holder)
	}
	w.must(w.Serve(ctx, "while-canary-crashes"))
	w.must(w.Install(ctx, canary))
	w.moves("canary")
	w.moves("stable")
}

// canaryHasNoRights: the default goes to servers that may do nothing, so stable goes on with what is shared. With
// their rights back, they take over.
func (w *world) canaryHasNoRights() {
	w.t.Helper()
	ctx := w.t.Context()
	w.must(w.Uninstall(ctx, "canary"))
	w.Step(ctx, "canary has no rights")
	powerless := canary
	powerless.Powerless = true
	w.must(w.Apply(ctx, powerless))
	w.eventually("canary's pods run", func() bool {
		pods, err := w.Pods(ctx, "canary")
		return err == nil && len(pods) == 2 && pods[0].Status.PodIP != "" && pods[1].Status.PodIP != ""
	})
	w.must(w.FlipAtOnce(ctx, "canary"))
	spoilt := metav1.ObjectMeta{Name: "while-powerless"}
	_, err := w.Kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: spoilt}, metav1.CreateOptions{})
	w.must(err)
	w.eventually("stable goes on", func() bool {
		_, err := w.Kube.CoreV1().ConfigMaps(spoilt.Name).Get(ctx, "istio-ca-root-cert", metav1.GetOptions{})
		return err == nil
	})
	w.must(w.AwaitLeads(ctx, "stable"))
	w.must(w.Install(ctx, canary))
	w.must(w.AwaitLeads(ctx, "canary"))
	w.must(w.Settle(ctx))
	w.moves("stable")
}

// flipsWithinASecond: there and back before anybody has finished.
func (w *world) flipsWithinASecond() {
	w.t.Helper()
	w.must(w.FlipAtOnce(w.t.Context(), "canary"))
	w.moves("stable")
}

// rollbackDuringAHandover: the default goes back as soon as a challenger's request stands in the lock.
func (w *world) rollbackDuringAHandover() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), endLimit)
	defer cancel()
	const lock = "istio-namespace-controller-election"
	watch, err := w.Kube.CoreV1().ConfigMaps(rollout.Home).Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + lock})
	w.must(err)
	defer watch.Stop()
	w.must(w.FlipAtOnce(ctx, "canary"))
	for event := range watch.ResultChan() {
		if c, ok := event.Object.(*corev1.ConfigMap); ok && c.Annotations[locks.HandoverRequestAnnotation] != "" {
			w.moves("stable")
			return
		}
	}
	w.t.Fatal("nobody asked for a handover")
}

// allRestartAtOnce: every pod of both revisions is deleted.
func (w *world) allRestartAtOnce() {
	w.t.Helper()
	ctx := w.t.Context()
	w.Step(ctx, "all pods of both revisions restart")
	before := map[string]bool{}
	for _, revision := range []string{"stable", "canary"} {
		pods, err := w.Pods(ctx, revision)
		w.must(err)
		for _, pod := range pods {
			before[pod.Name] = true
		}
	}
	w.must(w.Kube.CoreV1().Pods(rollout.Home).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "app=pilot"}))
	w.eventually("they are others", func() bool {
		for _, revision := range []string{"stable", "canary"} {
			pods, err := w.Pods(ctx, revision)
			if err != nil {
				return false
			}
			for _, pod := range pods {
				if before[pod.Name] {
					return false
				}
			}
		}
		return true
	})
	w.must(w.AwaitReady(ctx, "stable", 3))
	w.must(w.AwaitReady(ctx, "canary", 2))
	w.must(w.AwaitLeads(ctx, "stable"))
	w.must(w.Settle(ctx))
}

// apiServerRestarts right after a flip, as by a crash.
func (w *world) apiServerRestarts() {
	w.t.Helper()
	ctx := w.t.Context()
	w.must(w.FlipAtOnce(ctx, "canary"))
	w.must(w.CrashAPIServer(ctx))
	w.must(w.AwaitLeads(ctx, "canary"))
	w.must(w.Settle(ctx))
}

// The default moves while the old leader is cut off: its API server stands still, with all connections open. It cannot be
// asked, so its lease is waited for; what it wrote before, and what it does when it is back, is in the logs of two API servers.
func TestFlipWhileTheOldLeaderIsCutOff(t *testing.T) {
	whole(t)
	w := start(t, rollout.Options{Lease: 6 * time.Second, Renew: 4 * time.Second, Retry: time.Second})
	ctx := t.Context()
	server, err := w.StartFarNode(ctx)
	w.must(err)
	far := stable
	far.Node = rollout.FarNode
	w.must(w.Install(ctx, far))
	w.must(w.Flip(ctx, "stable"))
	w.must(w.AwaitLeads(ctx, "stable"))
	w.must(w.Work(ctx))
	w.must(w.Install(ctx, canary))
	w.must(server.Pause())
	w.must(w.FlipAtOnce(ctx, "canary"))
	w.must(w.AwaitLeads(ctx, "canary"))
	w.Step(ctx, "the cut is over")
	w.must(server.Resume())
	w.must(w.Settle(ctx))
	w.moves("stable")
	w.finish()
}

// eventually waits until something holds.
func (w *world) eventually(what string, holds func() bool) {
	w.t.Helper()
	deadline := time.After(3 * time.Minute)
	for !holds() {
		select {
		case <-deadline:
			w.t.Fatalf("not within 3 minutes: %s", what)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// A log of servers that do not elect has to be convicted: a checker that acquits it could not convict anybody.
func TestServersWithoutElectionsAreConvicted(t *testing.T) {
	whole(t)
	w := start(t, rollout.Options{Unfenced: true})
	ctx := t.Context()
	for _, revision := range []string{"stable", "canary"} {
		w.must(w.Apply(ctx, rollout.Release{Revision: revision, Replicas: 1, Lawless: true}))
		w.must(w.AwaitReady(ctx, revision, 1))
	}
	w.must(w.Flip(ctx, "stable"))
	v, err := w.Settled(ctx)
	w.must(err)
	rules := map[verdict.Rule]int{}
	for _, c := range v.Violations {
		rules[c.Rule]++
	}
	if rules[verdict.Unelected] == 0 {
		t.Errorf("the log of servers without elections: %v", v.Err())
	}
	t.Logf("convicted of %v", rules)
}

// TestFlips measures UPGRADE_FLIPS flips, 50 unless it says otherwise: from the change of the default to when a pod of the new
// revision leads all that they share. Between two, the Gateways' rollouts come to their end: a Deployment that is rolled back and forth
// each half second can lose all of its available pods at once, whoever asks for it (docs/upgrade.md, "What can go wrong").
func TestFlips(t *testing.T) {
	whole(t)
	n := 50
	if text := os.Getenv("UPGRADE_FLIPS"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatalf("UPGRADE_FLIPS=%q is no number", text)
		}
	}
	w := start(t, rollout.Options{})
	w.begin()
	w.must(w.Install(t.Context(), canary))
	for i := range n {
		revision := []string{"canary", "stable"}[i%2]
		w.moves(revision)
	}
	if v := w.finish(); len(v.Flips) != n {
		t.Errorf("%d flips came to an end, of %d", len(v.Flips), n)
	}
}
