package fence

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/audit"
	"incumbent.dev/incumbent/internal/fence"
	locks "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/tests/cluster"
	"incumbent.dev/incumbent/tests/cluster/node"
)

// auditGuarded configures the audit log for writes to guarded objects only.
const auditGuarded = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  verbs: [patch]
  resources: [{group: "", resources: [configmaps], resourceNames: [guarded]}]
- level: None
`

// auditedWrite is one guarded write as the audit log has it.
type auditedWrite struct {
	pod string
	// begun is the time at which the process began the write, before the check of the gate. received is the time at which
	// the API server received it.
	begun, received time.Time
	code            int
}

func (s *stage) audited() []auditedWrite {
	s.t.Helper()
	raw, err := os.Open(s.cluster.AuditLog())
	if err != nil {
		s.t.Fatal(err)
	}
	defer raw.Close()
	var all []auditedWrite
	var reading audit.Reading
	err = reading.Read("audit log", raw, func([]byte) bool { return false }, func(e audit.Event) error {
		nanos, err := strconv.ParseInt(strings.TrimPrefix(e.UserAgent, stampPrefix), 10, 64)
		if err == nil && e.Pod() != "" && e.ObjectRef.Namespace == s.namespace {
			all = append(all, auditedWrite{e.Pod(), time.Unix(0, nanos), e.RequestReceivedTimestamp, e.ResponseStatus.Code})
		}
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return all
}

// history is every version of the guarded object, and by whom it is.
type history struct {
	mu       sync.Mutex
	versions []version
}

type version struct {
	number uint64
	by     string
}

func (h *history) add(object metav1.Object, by string) {
	number, err := strconv.ParseUint(object.GetResourceVersion(), 10, 64)
	if err != nil {
		panic(err) // of the API server's own
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.versions = append(h.versions, version{number, by})
}

func (h *history) all() []version {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]version{}, h.versions...)
}

// last returns the last version.
func (h *history) last() (last version) {
	if all := h.all(); len(all) > 0 {
		last = all[len(all)-1]
	}
	return last
}

// by counts versions by a pod that are later than another.
func (h *history) by(pod string, after uint64) (n int) {
	for _, v := range h.all() {
		if v.by == pod && v.number > after {
			n++
		}
	}
	return n
}

// first returns the number of the first version by a pod that is later than another.
func (h *history) first(pod string, after uint64) uint64 {
	for _, v := range h.all() {
		if v.by == pod && v.number > after {
			return v.number
		}
	}
	return after
}

// follow notes who wrote each version of the guarded ConfigMap, until the test ends.
func (s *stage) follow() *history {
	s.t.Helper()
	watch, err := s.admin.CoreV1().ConfigMaps(s.namespace).Watch(s.t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + guarded})
	if err != nil {
		s.t.Fatal(err)
	}
	h := &history{}
	var follower sync.WaitGroup
	follower.Go(func() {
		for event := range watch.ResultChan() {
			if cm, ok := event.Object.(*corev1.ConfigMap); ok {
				h.add(cm, cm.Data["pod"])
			}
		}
	})
	s.t.Cleanup(func() { watch.Stop(); follower.Wait() })
	return h
}

// holder is the holder of the lock, or "" if it cannot be read.
func (s *stage) holder() string {
	s.t.Helper()
	if s.kind == fence.Lease {
		lease, err := s.admin.CoordinationV1().Leases(s.namespace).Get(s.t.Context(), election, metav1.GetOptions{})
		if err != nil {
			return ""
		}
		return locks.LeaseSnapshot(lease).Record.HolderIdentity
	}
	cm, err := s.admin.CoreV1().ConfigMaps(s.namespace).Get(s.t.Context(), election, metav1.GetOptions{})
	if err != nil {
		return ""
	}
	return locks.ConfigMapSnapshot(cm).Record.HolderIdentity
}

func TestFence_PausedLeader(t *testing.T) {
	t.Parallel()
	c := ownCluster(t, cluster.Options{Audit: true, AuditPolicy: auditGuarded})
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	n := node.Start(t, node.Options{Config: c.Admin(), Dir: t.TempDir(), Images: map[string]string{"writer": self}, StopGrace: 3 * time.Second})
	for _, test := range []struct {
		kind fence.LockKind
		gate string
	}{{fence.ConfigMap, "on"}, {fence.Lease, "off"}} {
		t.Run(fmt.Sprintf("%s, gate %s", test.kind, test.gate), func(t *testing.T) {
			t.Parallel()
			s := stageOn(t, c, test.kind)
			history := s.prepare()
			for _, name := range []string{"a", "b"} {
				s.must(s.admin.CoreV1().Pods(s.namespace).Create(t.Context(), writerPod(name, test.kind, test.gate), metav1.CreateOptions{}))
			}
			eventually(t, "one leads and writes", func() bool { by := history.last().by; return by != "" && history.by(by, 0) > 20 })
			paused := history.last()
			zombie := paused.by
			if err := n.Signal(s.namespace, zombie, syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			eventually(t, "another leads and writes", func() bool {
				by := history.last().by
				return by != zombie && history.by(by, paused.number) > 20
			})
			successor := s.holder()
			taken := history.first(successor, paused.number) // the API server has seen the holder
			before := s.tries(n, zombie)
			awake := time.Now()
			if err := n.Signal(s.namespace, zombie, syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the zombie has tried hundreds of times", func() bool { return s.tries(n, zombie) > before+300 })
			s.judge(test.gate, zombie, awake, history, taken)
			if leads := s.holder(); leads != successor {
				t.Errorf("%s leads, and no longer %s", leads, successor)
			}
		})
	}
}

// prepare creates the guarded ConfigMap and the fence before a candidate leads.
func (s *stage) prepare() *history {
	s.t.Helper()
	s.identity("nobody", account) // the account and its rights
	s.must(s.admin.CoreV1().ConfigMaps(s.namespace).Create(s.t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: guarded}}, metav1.CreateOptions{}))
	history := s.follow()
	s.install(s.declaration())
	return history
}

// tries is the number of attempts that a process reports.
func (s *stage) tries(n *node.Node, pod string) int {
	s.t.Helper()
	p, err := n.Pod(s.namespace, pod)
	if err != nil {
		s.t.Fatal(err)
	}
	log, err := os.ReadFile(p.Log)
	if err != nil {
		s.t.Fatal(err)
	}
	last := 0
	for line := range strings.Lines(string(log)) {
		if n := 0; strings.HasPrefix(line, "try ") {
			if _, err := fmt.Sscanf(line, "try %d", &n); err == nil {
				last = max(last, n)
			}
		}
	}
	return last
}

// judge looks at what the zombie's writes became.
func (s *stage) judge(gate, zombie string, awake time.Time, history *history, taken uint64) {
	s.t.Helper()
	var out, past, refused, admitted int
	for _, w := range s.audited() {
		if w.pod != zombie || w.received.Before(awake) {
			continue
		}
		if w.begun.After(awake) {
			out++
		} else {
			past++
		}
		switch w.code {
		case 403:
			refused++
		case 200:
			admitted++
		}
	}
	if gate == "on" && out > 0 {
		s.t.Errorf("%d gated writes that began after the pause got out", out)
	}
	if gate == "off" && refused < 200 {
		s.t.Errorf("only %d writes were refused by the fence", refused)
	}
	if n := history.by(zombie, taken); n > 0 || admitted > 0 {
		s.t.Errorf("%d writes of the zombie stand after the successor's first; %d were admitted after it woke", n, admitted)
	}
	s.t.Logf("figure: gate %s: of the zombie's writes, %d began after the pause and %d before; the server refused %d and admitted %d",
		gate, out, past, refused, admitted)
}
