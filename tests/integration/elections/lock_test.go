package elections

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/tests/cluster"
)

// handoverRequest is the request on a lock object, written down anew here: what the
// elector believes of its own format is not what others find in a cluster.
type handoverRequest struct {
	Identity    string `json:"identity"`
	Key         string `json:"key"`
	Reason      string `json:"reason"`
	Requester   string `json:"requester"`
	Holder      string `json:"holder"`
	Transitions int    `json:"transitions"`
	Seconds     int    `json:"seconds"`
	Accepted    bool   `json:"accepted"`
	Refused     string `json:"refused,omitempty"`
}

const (
	markerNote    = "incumbent.dev/leader"
	requestNote   = "incumbent.dev/handover-request"
	nominatedNote = "incumbent.dev/nominated"
)

func requestIn(notes map[string]string) (r handoverRequest) {
	if json.Unmarshal([]byte(notes[requestNote]), &r) != nil {
		return handoverRequest{}
	}
	return r
}

func (r handoverRequest) json() string {
	raw, err := json.Marshal(r)
	if err != nil {
		panic(err)
	}
	return string(raw)
}

// istiod is a client that the API server takes for istiod's.
func (s *stage) istiod(t testing.TB) kubernetes.Interface {
	t.Helper()
	return s.client(t, func(c *rest.Config) { c.UserAgent = "pilot-discovery/v0.0.0" })
}

func (s *stage) client(t testing.TB, change func(*rest.Config)) kubernetes.Interface {
	t.Helper()
	config := s.cluster.Admin()
	change(config)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// mutate changes the lock object, guarded, and again when it was overtaken. It makes
// the object when there is none.
func (s *stage) mutate(t testing.TB, client kubernetes.Interface, change func(metav1.Object)) {
	t.Helper()
	meta := metav1.ObjectMeta{Name: election}
	var err error
	if s.lock == leaderelection.LeaseLock {
		err = cluster.Edit(t.Context(), client.CoordinationV1().Leases(s.namespace), &coordinationv1.Lease{ObjectMeta: meta},
			func(lease *coordinationv1.Lease) { change(lease) })
	} else {
		err = cluster.Edit(t.Context(), client.CoreV1().ConfigMaps(s.namespace), &corev1.ConfigMap{ObjectMeta: meta},
			func(cm *corev1.ConfigMap) { change(cm) })
	}
	if err != nil {
		t.Fatal(err)
	}
}

func annotate(obj metav1.Object, key, value string) {
	notes := obj.GetAnnotations()
	if notes == nil {
		notes = map[string]string{}
	}
	notes[key] = value
	if value == "" {
		delete(notes, key)
	}
	obj.SetAnnotations(notes)
}

// record is one as istiod writes it.
type record struct {
	holder, key string
	seconds     int
	transitions int
}

// put stores a record byte for byte as istiod does, and like istiod leaves everything
// else on the object.
func (s *stage) put(t testing.TB, r record) {
	t.Helper()
	s.mutate(t, s.istiod(t), func(obj metav1.Object) { setRecord(obj, r) })
}

func setRecord(obj metav1.Object, r record) {
	now := time.Now().UTC()
	switch obj := obj.(type) {
	case *corev1.ConfigMap:
		stamp := now.Format(time.RFC3339)
		annotate(obj, "control-plane.alpha.kubernetes.io/leader", fmt.Sprintf(
			`{"holderIdentity":%q,"holderKey":%q,"leaseDurationSeconds":%d,"acquireTime":%q,"renewTime":%q,"leaderTransitions":%d}`,
			r.holder, r.key, r.seconds, stamp, stamp, r.transitions))
	case *coordinationv1.Lease:
		annotate(obj, "leader.istio.io/holder-key", r.key)
		obj.Spec.HolderIdentity, obj.Spec.LeaseDurationSeconds = &r.holder, new(int32(r.seconds))
		obj.Spec.AcquireTime, obj.Spec.RenewTime = &metav1.MicroTime{Time: now}, &metav1.MicroTime{Time: now}
		obj.Spec.LeaseTransitions = new(int32(r.transitions))
	}
}

// empty takes the record away and leaves the object.
func (s *stage) empty(t testing.TB) {
	t.Helper()
	s.mutate(t, s.cluster.Client(t).Kube(), func(obj metav1.Object) {
		if lease, ok := obj.(*coordinationv1.Lease); ok {
			lease.Spec = coordinationv1.LeaseSpec{}
		}
		annotate(obj, "control-plane.alpha.kubernetes.io/leader", "")
		annotate(obj, "leader.istio.io/holder-key", "")
	})
}

// note puts one annotation onto the lock object; "" takes it away.
func (s *stage) note(t testing.TB, key, value string) {
	t.Helper()
	s.mutate(t, s.cluster.Client(t).Kube(), func(obj metav1.Object) { annotate(obj, key, value) })
}

// chronicle is every state of the lock object, as a watch shows them.
type chronicle struct {
	mu     sync.Mutex
	states []k8sresourcelock.Snapshot
	seen   []time.Time
}

type watchable interface {
	k8sresourcelock.Versioned
	k8sresourcelock.Watchable
}

// observer is the lock as somebody sees it who takes no part.
func (s *stage) observer(t testing.TB) watchable {
	t.Helper()
	client := s.client(t, func(*rest.Config) {})
	meta := metav1.ObjectMeta{Namespace: s.namespace, Name: election}
	who := k8sresourcelock.ResourceLockConfig{Identity: "observer"}
	if s.lock == leaderelection.LeaseLock {
		return &k8sresourcelock.LeaseLock{LeaseMeta: meta, Client: client.CoordinationV1(), LockConfig: who}
	}
	return &k8sresourcelock.ConfigMapLock{ConfigMapMeta: meta, Client: client.CoreV1(), LockConfig: who}
}

// chronicle writes down what happens to the lock from now on.
func (s *stage) chronicle(t testing.TB) *chronicle {
	t.Helper()
	c, lock := &chronicle{}, s.observer(t)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	up, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		_, err := lock.Watch(ctx, "", func() { close(up) }, func(snap k8sresourcelock.Snapshot) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.states, c.seen = append(c.states, snap), append(c.seen, time.Now())
		})
		if err != nil {
			t.Errorf("the watch of the lock: %v", err)
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		if t.Failed() {
			t.Logf("the lock:\n%s", strings.Join(c.steps(), "\n"))
		}
	})
	within(t, "a watch of the lock", up)
	return c
}

// steps tells the lock's story, one line for each change that is more than a renewal.
func (c *chronicle) steps() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var steps []string
	for _, state := range c.states {
		if step := describe(state); len(steps) == 0 || steps[len(steps)-1] != step {
			steps = append(steps, step)
		}
	}
	return steps
}

// describe is a state in a line: holder and transitions, and what the annotations say.
func describe(s k8sresourcelock.Snapshot) string {
	switch {
	case !s.Exists:
		return "gone"
	case s.Unreadable != nil:
		return "unreadable"
	case s.Raw == nil:
		return "empty"
	}
	holder := s.Record.HolderIdentity
	if holder == "" {
		holder = "nobody"
	}
	words := []string{fmt.Sprintf("%s %d", holder, s.Record.LeaderTransitions)}
	own := fmt.Sprintf("v1 %s %d", s.Record.HolderIdentity, s.Record.LeaderTransitions)
	switch marker := s.Notes[markerNote]; marker {
	case "":
	case own + " handover":
		words = append(words, "leads")
	case own:
		words = append(words, "leads alone") // cannot be asked
	default:
		words = append(words, "marker of "+strings.TrimPrefix(marker, "v1 "))
	}
	if r := requestIn(s.Notes); r.Identity != "" {
		word := "asked by "
		switch {
		case r.Accepted:
			word = "accepts "
		case r.Refused != "":
			word = "refuses "
		}
		words = append(words, word+r.Identity)
	}
	switch nominated := s.Notes[nominatedNote]; nominated {
	case "":
	case s.Record.HolderIdentity:
		words = append(words, "nominated")
	default:
		words = append(words, "nominee "+nominated)
	}
	return strings.Join(words, ", ")
}

// await waits for a step.
func (c *chronicle) await(t testing.TB, step string) {
	t.Helper()
	eventually(t, "the lock says "+step, func() bool { return slices.Contains(c.steps(), step) })
}

// never fails the test if a step with that word has been seen.
func (c *chronicle) never(t testing.TB, word string) {
	t.Helper()
	for _, step := range c.steps() {
		if strings.Contains(step, word) {
			t.Errorf("the lock said %q", step)
		}
	}
}

// expect waits until these steps, in this order and no others, are the lock's story. That a
// leader refused for a moment, because its watcher was later than the challenger's, is left out.
func (c *chronicle) expect(t testing.TB, steps ...string) {
	t.Helper()
	eventually(t, "the lock's story is told: "+strings.Join(steps, " | "), func() bool { return slices.Equal(c.granted(), steps) })
}

// granted is steps but for refusals.
func (c *chronicle) granted() []string {
	return slices.Compact(slices.DeleteFunc(c.steps(), func(step string) bool { return strings.Contains(step, ", refuses ") }))
}

// expectButRequests is expect for a story in which a challenger may or may not have asked
// again meanwhile: what it asks, and whether that is refused, is left out.
func (c *chronicle) expectButRequests(t testing.TB, steps ...string) {
	t.Helper()
	eventually(t, "the lock's story is told, but for requests: "+strings.Join(steps, " | "), func() bool {
		told := c.steps()
		for i, step := range told {
			told[i] = butRequest(step)
		}
		return slices.Equal(slices.Compact(told), steps)
	})
}

func butRequest(step string) string {
	for _, word := range []string{", asked by ", ", refuses "} {
		step, _, _ = strings.Cut(step, word)
	}
	return step
}

// next is the step that follows these first ones.
func (c *chronicle) next(t testing.TB, first ...string) (step string) {
	t.Helper()
	eventually(t, "the lock's story goes on after: "+strings.Join(first, " | "), func() bool {
		told := c.granted()
		if len(told) <= len(first) || !slices.Equal(told[:len(first)], first) {
			return false
		}
		step = told[len(first)]
		return true
	})
	return step
}

// renewals waits until the present record was renewed n times.
func (c *chronicle) renewals(t testing.TB, n int) {
	t.Helper()
	c.mu.Lock()
	from := len(c.states)
	c.mu.Unlock()
	eventually(t, fmt.Sprintf("%d renewals", n), func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.states) >= from+n
	})
}

// firstSeen is when the lock first was as a step says.
func (c *chronicle) firstSeen(t testing.TB, step string) (at time.Time) {
	t.Helper()
	c.await(t, step)
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.states, func(s k8sresourcelock.Snapshot) bool { return describe(s) == step })
	return c.seen[i]
}

// firstSeenButRequests is when the lock first was as a step says, whatever was asked.
func (c *chronicle) firstSeenButRequests(t testing.TB, step string) time.Time {
	t.Helper()
	var full string
	eventually(t, "the lock says "+step+", whatever is asked", func() bool {
		steps := c.steps()
		i := slices.IndexFunc(steps, func(s string) bool { return butRequest(s) == step })
		if i >= 0 {
			full = steps[i]
		}
		return i >= 0
	})
	return c.firstSeen(t, full)
}

func step(holder string, transitions int, words string) string {
	return fmt.Sprintf("%s %d, %s", holder, transitions, words)
}

func (c *chronicle) all() []k8sresourcelock.Snapshot {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.states)
}
