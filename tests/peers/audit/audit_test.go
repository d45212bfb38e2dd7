package audit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"incumbent.dev/incumbent/internal/audit"
	"incumbent.dev/incumbent/internal/fence"
	locks "incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/internal/testutil/fences"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/internal/testutil/relay"
	"incumbent.dev/incumbent/tests/cluster"
	"incumbent.dev/incumbent/tests/peers/electors"
)

func TestMain(m *testing.M) {
	if text := os.Getenv(orderVariable); text != "" {
		fmt.Fprintln(os.Stderr, campaign(text))
		os.Exit(1)
	}
	cluster.Main(m, cluster.Options{WithoutControllers: true, Audit: true, AuditPolicy: audit.Policy("")})
}

const (
	election = "work"
	account  = "candidate"
	stable   = "stable"
	canary   = "canary"
)

// faults start a follower and disturb the leader. Each returns a function that ends the fault, which runs when the follower leads.
var faults = map[string]func(*stage) (end func()){
	// The default revision outranks the leader. client-go has no rank: an operator writes the other holder.
	"flip": func(s *stage) func() {
		if s.library != electors.ClientGo {
			s.follower = s.start("second", canary)
			return func() {}
		}
		s.follower = s.start("second", stable)
		patch := fmt.Appendf(nil, `{"spec":{"holderIdentity":%q}}`, s.follower.order.Spec.Identity)
		_, err := s.admin.CoordinationV1().Leases(s.namespace).Patch(s.t.Context(), election, types.MergePatchType, patch, metav1.PatchOptions{})
		harness.Must(s.t, err)
		return func() {}
	},
	"partition": func(s *stage) func() {
		s.follower = s.start("second", stable)
		s.leader.relay.All(relay.Stalled)
		return func() { s.leader.relay.All(relay.Fate{}) }
	},
	"stop": func(s *stage) func() {
		s.follower = s.start("second", stable)
		s.leader.Signal(s.t, syscall.SIGSTOP)
		return func() { s.leader.Signal(s.t, syscall.SIGCONT) }
	},
}

func TestPeers(t *testing.T) {
	c := cluster.Shared(t)
	_, err := electors.SetDefault(t.Context(), c.Client(t).Kube(), canary)
	harness.Must(t, err)
	t.Run("run", func(t *testing.T) {
		for name, fault := range faults {
			for _, library := range electors.Libraries {
				t.Run(name+"/"+library.String(), func(t *testing.T) {
					t.Parallel()
					disturb(newStage(t, c, library), fault)
				})
			}
		}
	})
	// The API server logs a write after its response.
	harness.Must(t, c.APIServer().Stop())
	text, err := os.ReadFile(c.AuditLog())
	harness.Must(t, err)
	record(t, text)
	log := audit.NewLog()
	harness.Must(t, log.Read("audit log", bytes.NewReader(text)))
	judge(t, audit.Examine(log, audit.Options{}))
}

// judge requires late writes for every fault and library, except for incumbent. In a partition, client-go's follower is also convicted:
// the release of the former leader arrives late and clears the follower's record.
func judge(t *testing.T, r audit.Report) {
	t.Helper()
	// A write of incumbent that hangs in a partition may have no response in the log.
	incomplete := slices.DeleteFunc(slices.Clone(r.Incomplete), func(why string) bool {
		return strings.Contains(why, "-run-partition-incumbent-") && strings.HasSuffix(why, "have no logged result")
	})
	if len(incomplete) > 0 || r.ByTime > 0 || len(r.NotJudged) > 0 {
		t.Errorf("incomplete %q, %d by time, not judged %v", incomplete, r.ByTime, r.NotJudged)
	}
	if want := len(faults) * len(electors.Libraries); len(r.Locks) != want {
		t.Errorf("%d locks, want %d", len(r.Locks), want)
	}
	for _, l := range r.Locks {
		t.Logf("%v: %d terms, %d writes, %d without the lock", l.Lock, l.Terms, l.Judged, l.Breaches)
		if convict := !strings.Contains(l.Namespace, "incumbent"); convict != (l.Breaches > 0) || l.Terms < 2 || l.Judged == 0 {
			t.Errorf("%v: %d terms, %d writes, %d without the lock; want some: %v", l.Lock, l.Terms, l.Judged, l.Breaches, convict)
		}
	}
	for _, f := range r.Findings {
		t.Logf("%s of %s in %v: %d writes, %v after the loss, overlap %v", f.Rule, f.Pod, f.Lock, f.Count, time.Duration(f.Late), time.Duration(f.Overlap))
		if f.Rule == audit.Unelected {
			t.Errorf("finding %+v", f)
		}
	}
}

// stage is an election with a leader and a follower.
type stage struct {
	t                *testing.T
	cluster          *cluster.Cluster
	admin            kubernetes.Interface
	namespace        string
	library          electors.Library
	leader, follower *process
}

func newStage(t *testing.T, c *cluster.Cluster, library electors.Library) *stage {
	t.Helper()
	s := &stage{t: t, cluster: c, admin: c.Client(t).Kube(), namespace: c.Namespace(t), library: library}
	for n := range objects {
		created := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: object(n)}}
		_, err := s.admin.CoreV1().ConfigMaps(s.namespace).Create(t.Context(), created, metav1.CreateOptions{})
		harness.Must(s.t, err)
	}
	if library == electors.Incumbent {
		s.fence()
	}
	return s
}

// fence installs the fence, as the chart does. Without it, a write that left the process in time can arrive late.
func (s *stage) fence() {
	s.t.Helper()
	guard := fence.Guard{Resources: []string{"configmaps"}, Namespaces: []string{s.namespace}}
	for n := range objects {
		guard.Names = append(guard.Names, object(n))
	}
	fences.Install(s.t, s.admin, s.namespace, fence.Declaration{
		Election: election, Namespace: s.namespace, Lock: locks.Lease, ServiceAccounts: []string{s.namespace + "/" + account}, Guards: []fence.Guard{guard},
	})
}

// process is a candidate in its own process, which reaches the API server through a relay.
type process struct {
	*harness.Process
	order order
	relay *relay.Relay
}

// start starts a candidate.
func (s *stage) start(pod, revision string) *process {
	s.t.Helper()
	// Except for the faults, the leader must keep the lock on a busy machine.
	spec := electors.Spec{
		Namespace: s.namespace, Election: election, Identity: pod, Revision: revision, Lock: electors.Lease,
		Timing: electors.Timing{Lease: 12 * time.Second, Deadline: 6 * time.Second, Retry: 3 * time.Second},
	}
	switch s.library {
	case electors.Istio:
		spec.Lock = electors.ConfigMap
	case electors.ClientGo:
		// The ratios of the Kubernetes controllers, and an identity with a UUID.
		spec.Timing = electors.Timing{Lease: 12 * time.Second, Deadline: 8 * time.Second, Retry: 1600 * time.Millisecond}
		spec.Identity += "_01234567-89ab-cdef-0123-456789abcdef"
	case electors.Incumbent:
	}
	all := []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}}
	identity := s.cluster.Identity(s.t, cluster.IdentityOptions{Namespace: s.namespace, PodName: pod, ServiceAccount: account, Rules: all, ClusterRules: all})
	p := &process{order: order{s.library, spec, pod}, relay: relay.For(s.t, identity)}
	kubeconfig := filepath.Join(s.t.TempDir(), "kubeconfig")
	harness.Must(s.t, cluster.WriteKubeconfig(kubeconfig, identity, s.namespace))
	text, err := json.Marshal(p.order)
	harness.Must(s.t, err)
	self, err := os.Executable()
	harness.Must(s.t, err)
	p.Process = harness.Start(s.t, pod, []string{orderVariable + "=" + string(text), "KUBECONFIG=" + kubeconfig}, self)
	return p
}

// wrote waits for the next write of an object by a process.
func (s *stage) wrote(p *process, n int) {
	s.t.Helper()
	var before string
	harness.Until(s.t, p.order.Pod+" writes", func() bool {
		cm, err := s.admin.CoreV1().ConfigMaps(s.namespace).Get(s.t.Context(), object(n), metav1.GetOptions{})
		if err != nil {
			return false
		}
		last := before
		before = cm.ResourceVersion
		return cm.Data["pod"] == p.order.Pod && last != "" && last != before
	})
}

// disturb disturbs a leader, and returns when its run function has returned and another process leads.
func disturb(s *stage, fault func(*stage) func()) {
	s.t.Helper()
	s.leader = s.start("first", stable)
	s.wrote(s.leader, 0)
	end := fault(s)
	s.wrote(s.follower, 0)
	end()
	s.wrote(s.follower, objects/2) // requests that were held can arrive before that
	harness.Until(s.t, "the run function of the former leader has returned", func() bool {
		return strings.Contains(s.leader.Out.String(), returned)
	})
}
