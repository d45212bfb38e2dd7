package interop

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/internal/testutil/relay"
	"incumbent.dev/incumbent/tests/cluster"
	"incumbent.dev/incumbent/tests/peers/electors"
)

// timing is about a seventh of istiod's timing. A lease in a record has whole seconds. On a busy machine a leader can
// lose such a lease, so a test requires a longer lease or allows the loss.
var timing = electors.Timing{Lease: 4 * time.Second, Deadline: 2 * time.Second, Retry: time.Second}

const (
	stable = "stable"
	canary = "canary"
)

// pairing is two libraries that share a kind of lock. The first library leads first.
type pairing struct {
	lock          electors.Lock
	first, second electors.Library
}

func (p pairing) String() string {
	return fmt.Sprintf("%v/%v-then-%v", p.lock, p.first, p.second)
}

// pairings are all pairs of incumbent and another elector, in both roles.
var pairings = []pairing{
	{electors.ConfigMap, electors.Incumbent, electors.Istio},
	{electors.ConfigMap, electors.Istio, electors.Incumbent},
	{electors.Lease, electors.Incumbent, electors.Istio},
	{electors.Lease, electors.Istio, electors.Incumbent},
	{electors.Lease, electors.Incumbent, electors.ClientGo},
	{electors.Lease, electors.ClientGo, electors.Incumbent},
}

// ranked are the pairings of electors that support revisions.
var ranked = pairings[:4]

// each runs a test for each pairing in parallel.
func each(t *testing.T, pairings []pairing, f func(t *testing.T, s *stage, p pairing)) {
	for _, p := range pairings {
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			f(t, newStage(t, p.lock, election), p)
		})
	}
}

const election = "istio-namespace-controller-election"

// stage is one election with its history.
type stage struct {
	t         *testing.T
	cluster   *cluster.Cluster
	admin     kubernetes.Interface
	namespace string
	election  string
	lock      electors.Lock
	members   []*member
	journal   *journal
	began     time.Time
	log       harness.Log // of incumbent candidates
}

// member is a candidate in its own process, which reaches the API server through a relay.
type member struct{ *electors.Member }

// Further fates of the connections of a member.
var (
	open  = relay.Fate{}
	reset = relay.Fate{Up: relay.Flow{CutAfter: 1}} // also new connections
)

// connections sets the fate of the member's connections.
func (m *member) connections(fate relay.Fate) {
	m.Relay.All(fate)
	if fate == reset {
		m.Relay.Reset()
	}
}

// newStage creates a lock object with foreign content, and watches it.
func newStage(t *testing.T, lock electors.Lock, election string) *stage {
	t.Helper()
	c := cluster.Shared(t)
	admin, err := kubernetes.NewForConfig(c.Admin())
	harness.Must(t, err)
	s := &stage{
		t: t, cluster: c, admin: admin, namespace: c.Namespace(t), election: election, lock: lock, began: time.Now(),
	}
	s.journal = s.watch()
	s.create()
	t.Cleanup(s.end)
	return s
}

// The foreign content of the lock object.
var (
	foreignAnnotation = map[string]string{"team.example/note": "keep this"}
	foreignLabel      = map[string]string{"team.example/owner": "mesh"}
	foreignData       = map[string]string{"other": "data"} // of a ConfigMap
)

// locks sends a request to the API of the lock's kind.
func (s *stage) locks(verb func(rest.Interface) *rest.Request) *rest.Request {
	api := s.admin.CoreV1().RESTClient()
	if s.lock == electors.Lease {
		api = s.admin.CoordinationV1().RESTClient()
	}
	return verb(api).Namespace(s.namespace).Resource(s.lock.Resource())
}

// create creates a lock object without a record.
func (s *stage) create() {
	s.t.Helper()
	about := metav1.ObjectMeta{Name: s.election, Annotations: foreignAnnotation, Labels: foreignLabel}
	var object runtime.Object = &corev1.ConfigMap{ObjectMeta: about, Data: foreignData}
	if s.lock == electors.Lease {
		object = &coordinationv1.Lease{ObjectMeta: about}
	}
	harness.Must(s.t, s.locks(rest.Interface.Post).Body(object).Do(s.t.Context()).Error())
}

// deleteLock deletes the lock object.
func (s *stage) deleteLock() {
	s.t.Helper()
	harness.Must(s.t, s.locks(rest.Interface.Delete).Name(s.election).Do(s.t.Context()).Error())
}

// caughtUp waits until the journal has the present version of the lock. All members have ended.
func (s *stage) caughtUp() {
	s.t.Helper()
	object, err := s.locks(rest.Interface.Get).Name(s.election).Do(context.WithoutCancel(s.t.Context())).Get()
	harness.Must(s.t, err)
	last, err := meta.Accessor(object)
	harness.Must(s.t, err)
	harness.Until(s.t, "the journal has version "+last.GetResourceVersion(), func() bool {
		return slices.ContainsFunc(s.journal.entries(), func(e entry) bool { return e.meta.ResourceVersion == last.GetResourceVersion() })
	})
}

// enter starts a candidate of revision stable.
func (s *stage) enter(library electors.Library, name string, change ...func(*electors.Spec)) *member {
	s.t.Helper()
	spec := electors.Spec{
		Namespace: s.namespace, Election: s.election, Identity: name, Revision: stable, Lock: s.lock, Timing: timing,
	}
	for _, f := range change {
		f(&spec)
	}
	logger := slog.New(slog.NewTextHandler(&s.log, nil)).With("me", name)
	candidate, err := electors.EnterThrough(s.t.Context(), library, s.cluster.Admin(), spec, logger)
	harness.Must(s.t, err)
	m := &member{candidate}
	s.members = append(s.members, m)
	return m
}

// leads waits for the run function of a member.
func (s *stage) leads(m *member) {
	s.t.Helper()
	harness.Until(s.t, m.what("leads"), m.Live)
}

// stops waits for the end of a member's run function.
func (s *stage) stops(m *member) {
	s.t.Helper()
	harness.Until(s.t, m.what("stops"), func() bool { return !m.Live() })
}

// joined waits until a candidate has seen the holder. istiod and client-go do not report the holder, so it waits for the
// second request from now on, which follows the response to the first one.
func (s *stage) joined(m *member) {
	s.t.Helper()
	from := s.sent(m)
	harness.Until(s.t, m.what("sees the holder"), func() bool {
		if seen, tells := m.Sees(); tells {
			return seen != "" && seen == s.journal.holder()
		}
		return s.sent(m) >= from+2
	})
}

// steady waits until a leading peer has renewed. If istiod is stopped before that, its release fails.
func (s *stage) steady(m *member) {
	s.t.Helper()
	if m.Library != electors.Incumbent {
		s.joined(m)
	}
}

// sent returns the number of requests of a member for the lock.
func (s *stage) sent(m *member) (all int) {
	for what, count := range m.Process.Counts() {
		if strings.HasSuffix(what, s.lock.Resource()) {
			all += count
		}
	}
	return all
}

func (m *member) what(does string) string {
	return fmt.Sprintf("%v's %s %s", m.Library, m.Identity, does)
}

// end stops all members and checks the records.
func (s *stage) end() {
	var all sync.WaitGroup
	for _, m := range s.members {
		all.Go(func() {
			if !s.t.Failed() {
				m.connections(open)
			} else {
				m.connections(reset) // do not wait
			}
			m.End()
		})
	}
	all.Wait()
	defer s.tell()
	s.caughtUp()
	s.journal.stop()
	s.judge()
}
