package k8sleaderelection

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// Witness is another process that releases the lock after this process has ended. Package witness has an implementation. The
// loop of the elector calls it, so it must not block.
type Witness interface {
	// Register is called when this process begins to lead, before its run functions start, and after each renewal.
	Register(t WitnessedTerm)
	// Remove is called when the lock does not have the term any more.
	Remove(t WitnessedTerm)
}

// WitnessedTerm is a term in which a process leads, with its lock.
type WitnessedTerm struct {
	// LockType, Namespace and Name are the lock, as in k8sresourcelock.New.
	LockType  string `json:"lockType"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Holder is the identity of the process.
	Holder string `json:"holder"`
	// UID is the UID of the lock object.
	UID string `json:"uid"`
	// Transitions and Acquired are leaderTransitions and the acquire time of the record, in microseconds.
	Transitions int   `json:"transitions"`
	Acquired    int64 `json:"acquired"`
	// Lease is the lease duration. After it, a release has no use.
	Lease time.Duration `json:"lease"`
	// Last is set if the lock should be released after the other locks of the process.
	Last bool `json:"last,omitempty"`
}

// Lock returns the lock of the term.
func (t WitnessedTerm) Lock(configMaps corev1client.CoreV1Interface, leases coordinationv1client.CoordinationV1Interface,
	events k8sresourcelock.EventRecorder,
) (k8sresourcelock.Lock, error) {
	lock, err := k8sresourcelock.New(t.LockType, t.Namespace, t.Name, configMaps, leases, k8sresourcelock.ResourceLockConfig{Identity: t.Holder, EventRecorder: events})
	if err != nil {
		return nil, err
	}
	return lock.(k8sresourcelock.Lock), nil
}

// ReleaseEnded releases the lock of a term if the lock still has the term. Call it only after the process has ended: it has the
// effect of a release after the drain, so the next leader does not wait. died is the time of its end, for
// metrics. released is false without an error if the lock has changed, and why has the reason. After an error, call it again.
func (t WitnessedTerm) ReleaseEnded(ctx context.Context, lock k8sresourcelock.Lock, died time.Time) (released bool, why string, err error) {
	base, err := lock.Read(ctx)
	if err != nil {
		return false, "", err
	}
	snap, err := base.Decode()
	if err != nil {
		return false, "", fmt.Errorf("lock %s: %w", lock.Describe(), err)
	}
	now := metav1.Now()
	since := max(now.Sub(died).Round(time.Millisecond), time.Millisecond)
	left := t.core().Left(snap)
	// The write of an earlier call may have been stored without a reply.
	was := snap.Annotations.Witness
	switch written := left == core.RecordEmptied && was.Identity == t.Holder && was.Transitions == t.Transitions; {
	case written:
		since = was.After
	case left != core.HolderDied:
		return false, string(left), nil
	default:
		notes := record.Annotations{Witness: record.WitnessRelease{Identity: t.Holder, Transitions: t.Transitions, After: since}}
		if _, err := lock.Write(ctx, base, k8sresourcelock.Encode(snap.Released(now.UnixNano())), notes.Encode()); err != nil {
			return false, "", err
		}
	}
	lock.RecordEvent(fmt.Sprintf("ended without a release; its witness released the lock after %v (%s)", since, core.HolderDied))
	return true, string(core.HolderDied), nil
}

func (t WitnessedTerm) core() core.EndedTerm {
	return core.EndedTerm{
		Holder: t.Holder, UID: t.UID,
		Transitions: t.Transitions, Acquired: core.Stamp(t.Acquired),
	}
}

// informWitness registers the term in which this process acts, and removes the registered term when the lock does not have it
// any more. A term whose release failed stays registered.
func (l *loop) informWitness(c *change) {
	w := l.le.config.Witness
	if w == nil || c.after.Learned == c.before.Learned && c.after.Marked == c.before.Marked { // the reply may show an older version
		return
	}
	if l.witnessed != (WitnessedTerm{}) && l.witnessed.core().Left(c.after.Snap) != core.HolderDied {
		w.Remove(l.witnessed)
		l.witnessed = WitnessedTerm{}
	}
	if t, acting := l.core.Acting(&c.after); acting {
		if l.witnessed = l.witnessedTerm(t); l.witnessed != (WitnessedTerm{}) {
			w.Register(l.witnessed)
		}
	}
}

// witnessedTerm returns the zero value for a lock that another process cannot make again.
func (l *loop) witnessedTerm(t core.EndedTerm) WitnessedTerm {
	object, err := meta.Accessor(l.base.Object)
	if err != nil {
		return WitnessedTerm{}
	}
	_, resource := kindOf(l.base.Object).Resource()
	return WitnessedTerm{
		LockType: resource, Namespace: object.GetNamespace(), Name: object.GetName(),
		Holder: t.Holder, UID: t.UID,
		Transitions: t.Transitions, Acquired: int64(t.Acquired), Lease: l.core.Lease,
	}
}
