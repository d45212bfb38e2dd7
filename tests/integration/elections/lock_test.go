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

	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/tests/cluster"
)

// editLock changes the lock object, and creates it if it does not exist.
func (x *fixture) editLock(change func(metav1.Object)) {
	x.Helper()
	client := x.cluster.Client(x).Kube()
	meta := metav1.ObjectMeta{Name: election}
	var err error
	if x.lock == leaderelection.LockTypeLease {
		err = cluster.Edit(x.Context(), client.CoordinationV1().Leases(x.namespace), &coordinationv1.Lease{ObjectMeta: meta},
			func(lease *coordinationv1.Lease) { change(lease) })
	} else {
		err = cluster.Edit(x.Context(), client.CoreV1().ConfigMaps(x.namespace), &corev1.ConfigMap{ObjectMeta: meta},
			func(cm *corev1.ConfigMap) { change(cm) })
	}
	if err != nil {
		x.Fatal(err)
	}
}

func (x *fixture) deleteLock() {
	x.Helper()
	client := x.cluster.Client(x).Kube()
	var err error
	if x.lock == leaderelection.LockTypeLease {
		err = client.CoordinationV1().Leases(x.namespace).Delete(x.Context(), election, metav1.DeleteOptions{})
	} else {
		err = client.CoreV1().ConfigMaps(x.namespace).Delete(x.Context(), election, metav1.DeleteOptions{})
	}
	if err != nil {
		x.Fatal(err)
	}
}

func annotate(obj metav1.Object, key, value string) {
	annotations := obj.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[key] = value
	obj.SetAnnotations(annotations)
}

// writeIstiod writes a record as istiod does. Everything else on the object stays.
func (x *fixture) writeIstiod(key string, transitions int) {
	x.Helper()
	x.editLock(func(obj metav1.Object) {
		now := time.Now().UTC()
		switch obj := obj.(type) {
		case *corev1.ConfigMap:
			stamp := now.Format(time.RFC3339)
			annotate(obj, "control-plane.alpha.kubernetes.io/leader", fmt.Sprintf(
				`{"holderIdentity":"istiod","holderKey":%q,"leaseDurationSeconds":%d,"acquireTime":%q,"renewTime":%q,"leaderTransitions":%d}`,
				key, int(shortLease.Seconds()), stamp, stamp, transitions))
		case *coordinationv1.Lease:
			annotate(obj, "leader.istio.io/holder-key", key)
			obj.Spec = coordinationv1.LeaseSpec{
				HolderIdentity: new("istiod"), LeaseDurationSeconds: new(int32(shortLease.Seconds())),
				AcquireTime: &metav1.MicroTime{Time: now}, RenewTime: &metav1.MicroTime{Time: now}, LeaseTransitions: new(int32(transitions)),
			}
		}
	})
}

// history is the sequence of states of the lock object that a watch returned.
type history struct {
	testing.TB
	mu     sync.Mutex
	states []k8sresourcelock.Snapshot
	seen   []time.Time
}

type watchable interface {
	k8sresourcelock.Versioned
	k8sresourcelock.Watchable
}

// observed returns the lock for an administrator.
func (x *fixture) observed() watchable {
	x.Helper()
	client := x.cluster.Client(x).Kube()
	meta := metav1.ObjectMeta{Namespace: x.namespace, Name: election}
	config := k8sresourcelock.ResourceLockConfig{Identity: "observer"}
	if x.lock == leaderelection.LockTypeLease {
		return &k8sresourcelock.LeaseLock{LeaseMeta: meta, Client: client.CoordinationV1(), LockConfig: config}
	}
	return &k8sresourcelock.ConfigMapLock{ConfigMapMeta: meta, Client: client.CoreV1(), LockConfig: config}
}

// snapshot returns the state of the lock.
func (x *fixture) snapshot() k8sresourcelock.Snapshot {
	x.Helper()
	state, err := x.observed().Read(x.Context())
	if err != nil {
		x.Fatal(err)
	}
	return state
}

// history records the states of the lock from now on.
func (x *fixture) history() *history {
	x.Helper()
	lock := x.observed()
	h := &history{TB: x}
	connected := make(chan struct{})
	run(x, func(ctx context.Context) {
		_, err := lock.Watch(ctx, "", func() { close(connected) }, func(state k8sresourcelock.Snapshot) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.states = append(h.states, state)
			h.seen = append(h.seen, time.Now())
		})
		if err != nil {
			x.Errorf("watch lock: %v", err)
		}
	})
	x.Cleanup(func() {
		if x.Failed() {
			x.Logf("states of the lock:\n%s", strings.Join(h.steps(), "\n"))
		}
	})
	<-connected
	return h
}

// steps returns one line for each change that is not only a renewal. It leaves out refused requests: a leader
// refuses for a moment if the challenger sees the new default revision first.
func (h *history) steps() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var steps []string
	for _, state := range h.states {
		step := describe(state)
		if !strings.Contains(step, ", refuses ") {
			steps = append(steps, step)
		}
	}
	return slices.Compact(steps)
}

// describe returns holder, transitions and the annotations of a state in one line.
func describe(s k8sresourcelock.Snapshot) string {
	if !s.Exists {
		return "deleted"
	}
	step := fmt.Sprintf("%s %d", s.Record.HolderIdentity, s.Record.LeaderTransitions)
	if s.Record.HolderIdentity == "" {
		step = fmt.Sprintf("free %d", s.Record.LeaderTransitions)
	}
	marker := s.Annotations["incumbent.dev/leader"]
	switch {
	case marker == fmt.Sprintf("v1 %s %d handover", s.Record.HolderIdentity, s.Record.LeaderTransitions):
		step += ", leads"
	case marker != "":
		step += ", marker of " + strings.TrimPrefix(marker, "v1 ")
	}
	var request struct {
		Identity, Refused string
		Accepted          bool
	}
	if json.Unmarshal([]byte(s.Annotations["incumbent.dev/handover-request"]), &request) == nil {
		switch {
		case request.Accepted:
			step += ", accepts " + request.Identity
		case request.Refused != "":
			step += ", refuses " + request.Identity
		default:
			step += ", asked by " + request.Identity
		}
	}
	if s.Annotations["incumbent.dev/nominated"] != "" {
		step += ", nominated"
	}
	return step
}

// handover returns the steps of a handover, with the first write of the new leader.
func handover(from, to string, transitions int) []string {
	leads := fmt.Sprintf("%s %d, leads", from, transitions)
	next := fmt.Sprintf("%s %d", to, transitions+1)
	return []string{leads, leads + ", asked by " + to, leads + ", accepts " + to, next + ", nominated", next + ", leads"}
}

// expect waits until the lock went through exactly these steps.
func (h *history) expect(steps ...string) {
	h.Helper()
	eventually(h, "the lock goes through: "+strings.Join(steps, " | "), func() bool { return slices.Equal(h.steps(), steps) })
}

// await waits for a step and returns when the watch first returned it.
func (h *history) await(step string) (seen time.Time) {
	h.Helper()
	eventually(h, "the lock is: "+step, func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		i := slices.IndexFunc(h.states, func(s k8sresourcelock.Snapshot) bool { return describe(s) == step })
		if i >= 0 {
			seen = h.seen[i]
		}
		return i >= 0
	})
	return seen
}

// renewals waits until the lock was written n more times.
func (h *history) renewals(n int) {
	h.Helper()
	count := func() int {
		h.mu.Lock()
		defer h.mu.Unlock()
		return len(h.states)
	}
	before := count()
	eventually(h, fmt.Sprintf("%d renewals", n), func() bool { return count() >= before+n })
}
