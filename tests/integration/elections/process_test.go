package elections

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/testutil/lives"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/tests/cluster"
	"incumbent.dev/incumbent/tests/cluster/node"
)

// TestProcesses kills and stops real processes in the phases of a handover. Their leader
// takes a while to drain, which is when most of it happens.
func TestProcesses(t *testing.T) {
	t.Parallel()
	n := runNode(t, cluster.Shared(t))
	for name, test := range map[string]func(*troupe){
		"challenger is killed after acceptance":   challengerIsKilled,
		"nominee is stopped and passed over":      nomineeIsStopped,
		"leader is killed while it drains":        drainingLeaderIsKilled,
		"leader comes back while it drains":       drainingLeaderComesBack,
		"leader is stopped while it drains":       drainingLeaderIsStopped,
		"leader is told to end while it drains":   drainingLeaderIsTerminated,
		"all goes well and each drains in a turn": processesHandOver,
		"leader is suspended past its cover":      leaderIsSuspended,
		"and writes past its gate":                ungatedLeaderIsSuspended,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, leaderelection.LeaseLock)
			s.identity("nobody") // makes the service account and its rights
			s.setDefault(t, "stable")
			test(&troupe{T: t, stage: s, node: n, chronicle: s.chronicle(t)})
		})
	}
}

// runNode runs a node until the test and its subtests have ended.
func runNode(t *testing.T, c *cluster.Cluster) *node.Node {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return node.Start(t, node.Options{Config: c.Admin(), Dir: t.TempDir(), Images: map[string]string{"replica": self}})
}

// troupe is the processes of one test.
type troupe struct {
	*testing.T
	stage     *stage
	node      *node.Node
	chronicle *chronicle
	actors    []*actor
}

// actor is a process of the test.
type actor struct {
	*troupe
	name   string
	killed time.Time
}

// drains is how long the processes' functions take to return.
const drains = 3 * time.Second

func env(name, value string) corev1.EnvVar { return corev1.EnvVar{Name: name, Value: value} }

// enter starts a Pod and waits until it follows or leads.
func (tr *troupe) enter(name, revision string, policy corev1.RestartPolicy, more ...corev1.EnvVar) *actor {
	tr.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			ServiceAccountName: "pilot", RestartPolicy: policy,
			Containers: []corev1.Container{{
				Name: "replica", Image: "replica",
				Env: append(more, env(roleVariable, replicaRole), env("REVISION", revision), env("DRAIN", drains.String())),
			}},
		},
	}
	client := tr.stage.cluster.Client(tr).Kube()
	if _, err := client.CoreV1().Pods(tr.stage.namespace).Create(tr.Context(), pod, metav1.CreateOptions{}); err != nil {
		tr.Fatal(err)
	}
	a := &actor{troupe: tr, name: name}
	tr.actors = append(tr.actors, a)
	tr.Cleanup(func() {
		if tr.Failed() {
			tr.Logf("%s said:\n%s", name, a.output())
		}
	})
	eventually(tr, name+" is there", func() bool { return strings.Contains(a.output(), "default revision") })
	return a
}

// output is all that the actor's processes have said and logged.
func (a *actor) output() string {
	pod, err := a.node.Pod(a.stage.namespace, a.name)
	if err != nil || pod.Log == "" {
		return ""
	}
	raw, err := os.ReadFile(pod.Log)
	if err != nil {
		return ""
	}
	return string(raw)
}

// signal sends one to the actor's process; SIGKILL ends its run function as well.
func (a *actor) signal(s syscall.Signal) {
	a.Helper()
	if err := a.node.Signal(a.stage.namespace, a.name, s); err != nil {
		a.Fatal(err)
	}
	if s == syscall.SIGKILL {
		a.killed = time.Now()
	}
}

// Lives is lives.Candidate's.
func (a *actor) Lives() (string, lives.Spans) { return a.name, a.spans() }

func (a *actor) live() bool { return a.spans().Live() }

func (a *actor) draining() bool { return a.spans().Draining() }

// spans are the lives of the actor's run functions, by its own account.
func (a *actor) spans() (spans lives.Spans) {
	for line := range strings.Lines(a.output()) {
		nanos, word, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, err := strconv.ParseInt(nanos, 10, 64)
		if err != nil {
			continue
		}
		at := time.Unix(0, n)
		switch word {
		case sayRunning:
			if len(spans) > 0 && spans[len(spans)-1].To.IsZero() {
				spans[len(spans)-1].To = a.killed // it could not say so
			}
			spans = append(spans, lives.Span{From: at})
		case sayTold:
			spans[len(spans)-1].Told = at
		case sayEnded:
			spans[len(spans)-1].To = at
		}
	}
	if len(spans) > 0 && spans[len(spans)-1].To.IsZero() && a.killed.After(spans[len(spans)-1].From) {
		spans[len(spans)-1].To = a.killed
	}
	return spans
}

// apart fails the test when run functions of two actors were alive at once.
func (tr *troupe) apart() {
	tr.Helper()
	lives.Apart(tr, tr.actors...)
}

// upToDrain brings a leader of stable to the point where it has accepted canary's request.
func (tr *troupe) upToDrain(policy corev1.RestartPolicy) (a, b *actor) {
	tr.Helper()
	a = tr.enter("a", "stable", policy)
	eventually(tr, "a leads", a.live)
	tr.chronicle.await(tr, "a 0, leads")
	b = tr.enter("b", "canary", policy)
	tr.stage.setDefault(tr, "canary")
	tr.chronicle.await(tr, "a 0, leads, accepts b")
	return a, b
}

func processesHandOver(tr *troupe) {
	a, b := tr.upToDrain(corev1.RestartPolicyNever)
	eventually(tr, "b leads", b.live)
	tr.stage.setDefault(tr, "stable")
	eventually(tr, "a leads again", func() bool { return len(a.spans()) == 2 && a.live() })
	tr.chronicle.expect(tr, append(append(passes("a", "b", 0), passes("b", "a", 1)...), "a 2, leads")...)
	// The gate shuts when all functions have returned, so that these may finish.
	if !strings.Contains(a.output(), sayWrote) || !strings.Contains(b.output(), sayWrote) {
		tr.Error("a function that drained could not write")
	}
	tr.apart()
}

func challengerIsKilled(tr *troupe) {
	a, b := tr.upToDrain(corev1.RestartPolicyNever)
	b.signal(syscall.SIGKILL)
	tr.chronicle.await(tr, "b 1, nominated")
	eventually(tr, "a leads again", func() bool { return len(a.spans()) == 2 && a.live() })
	tr.chronicle.expect(tr, append(passes("a", "b", 0), "a 2, leads")...)
	if len(b.spans()) != 0 {
		tr.Errorf("b ran %v", b.spans())
	}
}

func nomineeIsStopped(tr *troupe) {
	a, b := tr.upToDrain(corev1.RestartPolicyNever)
	b.signal(syscall.SIGSTOP)
	tr.chronicle.await(tr, "a 2, leads")
	if len(b.spans()) != 0 {
		tr.Errorf("b ran %v while it was stopped", b.spans())
	}
	b.signal(syscall.SIGCONT)
	eventually(tr, "b leads in its turn", b.live)
	tr.chronicle.expect(tr, append(append(passes("a", "b", 0), passes("a", "b", 2)...), "b 3, leads")...)
	if len(a.spans()) != 2 {
		tr.Errorf("a ran %v", a.spans())
	}
	tr.apart()
}

func drainingLeaderIsKilled(tr *troupe) {
	a, b := tr.upToDrain(corev1.RestartPolicyNever)
	a.signal(syscall.SIGKILL)
	eventually(tr, "b leads", b.live)
	tr.chronicle.never(tr, "nominated")
	tr.chronicle.expect(tr, append(passes("a", "b", 0)[:3], "b 1, leads")...)
	tr.apart()
}

// The node starts another process in the Pod, which has the same name.
func drainingLeaderComesBack(tr *troupe) {
	a, b := tr.upToDrain(corev1.RestartPolicyAlways)
	a.signal(syscall.SIGKILL)
	eventually(tr, "b leads", b.live)
	tr.chronicle.expect(tr, append(append(passes("a", "b", 0)[:3], passes("a", "b", 1)...), "b 2, leads")...)
	tr.apart()
}

// It wakes up when its lease is long over: its function has no more to write, and its
// handover is no more to be made.
func drainingLeaderIsStopped(tr *troupe) {
	a, b := tr.upToDrain(corev1.RestartPolicyNever)
	eventually(tr, "a drains", a.draining)
	a.signal(syscall.SIGSTOP)
	eventually(tr, "b leads", b.live)
	a.signal(syscall.SIGCONT)
	eventually(tr, "a's function has returned", func() bool { return !a.live() })
	tr.chronicle.renewals(tr, 3)
	tr.chronicle.expect(tr, append(passes("a", "b", 0)[:3], "b 1, leads")...)
	if strings.Contains(a.output(), sayWrote) {
		tr.Error("a wrote after its pause")
	}
	if len(a.spans()) != 1 || len(b.spans()) != 1 {
		tr.Errorf("a ran %v, b ran %v", a.spans(), b.spans())
	}
}

func drainingLeaderIsTerminated(tr *troupe) {
	a, b := tr.upToDrain(corev1.RestartPolicyNever)
	a.signal(syscall.SIGTERM)
	eventually(tr, "b leads", b.live)
	tr.chronicle.expect(tr, append(passes("a", "b", 0), "b 1, leads")...)
	tr.apart()
}
