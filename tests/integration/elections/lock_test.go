package elections

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/tests/cluster"
)

// as returns the fixture with another type of lock.
func (x *fixture) as(lock leaderelection.LockType) *fixture {
	other := *x
	other.lock = lock
	return &other
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

// corruptLock makes the record of a ConfigMap lock unreadable.
func (x *fixture) corruptLock() {
	x.Helper()
	client := x.cluster.Client(x).Kube().CoreV1().ConfigMaps(x.namespace)
	err := cluster.Edit(x.Context(), client, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: election}}, func(cm *corev1.ConfigMap) {
		metav1.SetMetaDataAnnotation(&cm.ObjectMeta, k8sresourcelock.LeaderElectionRecordAnnotationKey, "{")
	})
	if err != nil {
		x.Fatal(err)
	}
}

// overwriteLock writes another holder without a handover, as istiod does.
func (x *fixture) overwriteLock() {
	x.Helper()
	now := metav1.Now()
	record := k8sresourcelock.LeaderElectionRecord{
		HolderIdentity: "istiod", HolderKey: "stable", LeaseDurationSeconds: int(shortLease.Seconds()), AcquireTime: now, RenewTime: now, LeaderTransitions: 3,
	}
	eventually(x, "another holder is written", func() bool {
		base := x.snapshot()
		_, err := x.observed().Write(x.Context(), base, record, base.Annotations)
		return err == nil // a renewal can be first
	})
}

// history is the sequence of states of the lock object that a watch returned.
type history struct {
	testing.TB
	mu     sync.Mutex
	states []k8sresourcelock.Snapshot
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
	if s.Annotations["incumbent.dev/leader"] == fmt.Sprintf("v1 %s %d handover", s.Record.HolderIdentity, s.Record.LeaderTransitions) {
		step += ", leads"
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
