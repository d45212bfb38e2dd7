package witness

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/internal/testutil/relay"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/tests/cluster"
)

const election = "istio-leader"

// stage is a namespace with an election.
type stage struct {
	testing.TB
	cluster   *cluster.Cluster
	admin     kubernetes.Interface
	namespace string
	kind      string // as in k8sresourcelock.New
	lock      k8sresourcelock.Lock
}

func newStage(t testing.TB, kind string) *stage {
	t.Helper()
	c := cluster.Shared(t)
	s := &stage{TB: t, cluster: c, admin: c.Client(t).Kube(), namespace: c.Namespace(t), kind: kind}
	lock, err := k8sresourcelock.New(kind, s.namespace, election, s.admin.CoreV1(), s.admin.CoordinationV1(), k8sresourcelock.ResourceLockConfig{Identity: "observer"})
	harness.Must(t, err)
	s.lock = lock.(k8sresourcelock.Lock)
	return s
}

// read returns the lock.
func (s *stage) read() (snap k8sresourcelock.Snapshot) {
	s.Helper()
	harness.Until(s.TB, "the lock is read", func() (ok bool) {
		var err error
		snap, err = s.lock.Read(s.Context())
		return err == nil
	})
	return snap
}

// freed waits until the lock is free. A witness that receives no reply to its release logs none.
func (s *stage) freed() {
	s.Helper()
	harness.Until(s.TB, "the lock is released", func() bool { return s.state() == "free" })
}

var rules = []rbacv1.PolicyRule{{APIGroups: []string{"", "coordination.k8s.io"}, Resources: []string{"configmaps", "leases", "events"}, Verbs: []string{"*"}}}

// process is a candidate with its witness.
type process struct {
	*harness.Process
	s     *stage
	name  string
	relay *relay.Relay
	// config is the content of the file access.
	config  *rest.Config
	access  string
	sidecar *harness.Process
}

// account is the service account of all candidates.
const account = "pilot"

// pod makes the identity of a candidate, and a relay for its requests.
func (s *stage) pod(name string) *process {
	s.Helper()
	config := s.cluster.Identity(s.TB, cluster.IdentityOptions{Namespace: s.namespace, PodName: name, ServiceAccount: account, Rules: rules})
	p := &process{s: s, name: name, relay: relay.For(s, config), config: config, access: filepath.Join(s.TempDir(), "kubeconfig")}
	p.token(config.BearerToken)
	return p
}

// run starts the test program in the pod.
func (p *process) run(env ...string) *harness.Process {
	p.s.Helper()
	env = append([]string{"CANDIDATE=" + p.name, "NAMESPACE=" + p.s.namespace, "LOCK=" + p.s.kind, "KUBECONFIG=" + p.access}, env...)
	return harness.Start(p.s.TB, p.name, env, "/proc/self/exe")
}

// token replaces the token in the kubeconfig of the candidate.
func (p *process) token(text string) {
	p.s.Helper()
	config := rest.CopyConfig(p.config)
	config.BearerToken = text
	harness.Must(p.s, cluster.WriteKubeconfig(p.access, config, ""))
}

// leader starts a candidate and waits until it leads.
func (s *stage) leader(name string, env ...string) *process {
	s.Helper()
	p := s.pod(name)
	p.Process = p.run(env...)
	harness.Until(s.TB, name+" leads", p.leads)
	return p
}

// leads reports whether the candidate has begun to lead.
func (p *process) leads() bool { return strings.Contains(p.Out.String(), "leading") }

var pids = regexp.MustCompile(`(?m)^(candidate|orphan) (\d+)$`)

// pid returns the process ID of the candidate, which is the child of its witness, or of its orphan.
func (p *process) pid(who string) int {
	p.s.Helper()
	for _, found := range pids.FindAllStringSubmatch(p.Out.String(), -1) {
		if found[1] == who {
			n, _ := strconv.Atoi(found[2])
			return n
		}
	}
	p.s.Fatalf("no process ID of the %s in the output", who)
	return 0
}

// signal sends a signal to the candidate itself.
func (p *process) signal(n syscall.Signal) {
	p.s.Helper()
	harness.Must(p.s, syscall.Kill(p.pid("candidate"), n))
}

// stop stops the candidate and waits until all of its threads are stopped.
func (p *process) stop() {
	p.s.Helper()
	p.signal(syscall.SIGSTOP)
	harness.Until(p.s.TB, p.name+" is stopped", func() bool {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.pid("candidate")))
		return err == nil && len(threads) > 0 && !slices.ContainsFunc(threads, func(stat string) bool {
			content, err := os.ReadFile(stat) // a thread may have ended
			return err != nil || !strings.Contains(string(content), ") T ")
		})
	})
}

// state describes the lock: its holder, and whether it has a marker.
func (s *stage) state() string {
	s.Helper()
	snap := s.read()
	switch {
	case !snap.Exists:
		return "absent"
	case snap.Record.HolderIdentity == "" && len(snap.Annotations) == 0:
		return "free"
	case snap.Record.HolderIdentity == "" && len(snap.Annotations) == 1 && strings.HasPrefix(snap.Annotations[record.WitnessReleaseAnnotation], "v1 "):
		return "free" // a witness has released it
	}
	return fmt.Sprintf("held by %q, annotations %v", snap.Record.HolderIdentity, snap.Annotations)
}
