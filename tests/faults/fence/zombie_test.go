package fence

import (
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/audit"
	"incumbent.dev/incumbent/internal/fence"
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

// by is the pod that wrote the guarded ConfigMap, or "".
func (s *stage) by() string {
	s.t.Helper()
	cm, err := s.admin.CoreV1().ConfigMaps(s.namespace).Get(s.t.Context(), guarded, metav1.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return cm.Data["pod"]
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
			s.prepare()
			for _, name := range []string{"a", "b"} {
				s.must(s.admin.CoreV1().Pods(s.namespace).Create(t.Context(), writerPod(name, test.kind, test.gate), metav1.CreateOptions{}))
			}
			eventually(t, "one leads and writes", func() bool { return s.by() != "" })
			zombie := s.by()
			if err := n.Signal(s.namespace, zombie, syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			eventually(t, "another leads and writes", func() bool { return s.by() != zombie })
			taken := time.Now() // the API server has seen the holder
			before := s.tries(n, zombie)
			awake := time.Now()
			if err := n.Signal(s.namespace, zombie, syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the zombie has tried hundreds of times", func() bool { return s.tries(n, zombie) > before+300 })
			s.judge(test.gate, zombie, taken, awake)
		})
	}
}

// prepare creates the guarded ConfigMap and the fence before a candidate leads.
func (s *stage) prepare() {
	s.t.Helper()
	s.identity("nobody", account) // the account and its rights
	s.must(s.admin.CoreV1().ConfigMaps(s.namespace).Create(s.t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: guarded}}, metav1.CreateOptions{}))
	s.install(s.declaration())
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
func (s *stage) judge(gate, zombie string, taken, awake time.Time) {
	s.t.Helper()
	raw, err := os.Open(s.cluster.AuditLog())
	if err != nil {
		s.t.Fatal(err)
	}
	defer raw.Close()
	var out, past, refused, admitted int
	var reading audit.Reading
	err = reading.Read("audit log", raw, func([]byte) bool { return false }, func(e audit.Event) error {
		// The process began the write at this time, before the check of the gate.
		nanos, err := strconv.ParseInt(strings.TrimPrefix(e.UserAgent, stampPrefix), 10, 64)
		if err != nil || e.Pod() != zombie || e.ObjectRef.Namespace != s.namespace || e.RequestReceivedTimestamp.Before(taken) {
			return nil
		}
		if time.Unix(0, nanos).After(awake) {
			out++
		} else {
			past++
		}
		switch e.ResponseStatus.Code {
		case http.StatusForbidden:
			refused++
		case http.StatusOK:
			admitted++
		}
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
	if gate == "on" && out > 0 {
		s.t.Errorf("%d gated writes that began after the pause got out", out)
	}
	if gate == "off" && refused < 200 {
		s.t.Errorf("only %d writes were refused by the fence", refused)
	}
	if by := s.by(); by == zombie || admitted > 0 {
		s.t.Errorf("%d writes of the zombie were admitted after its successor's first; the last write is by %s", admitted, by)
	}
	s.t.Logf("figure: gate %s: of the zombie's writes, %d began after the pause and %d before; the server refused %d and admitted %d",
		gate, out, past, refused, admitted)
}
