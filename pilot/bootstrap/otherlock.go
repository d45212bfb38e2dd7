package bootstrap

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/pkg/kube"
)

// otherLocks looks for locks of the other kind that bear the names of ours: an installation
// that elects by Leases and one that elects by ConfigMaps do not see each other, and both
// work. A lock that is released, or kept by a migration, is none of that; one whose
// record nobody renews was left behind.
type otherLocks struct {
	on     bool
	client kube.Client
	events k8sresourcelock.EventRecorder
	log    *slog.Logger
	held   *prometheus.GaugeVec
	wake   wakeup
	retry  time.Duration // how often to look while a look is not finished

	elections []*leaderelection.LeaderElection

	mu    sync.Mutex
	looks map[*leaderelection.LeaderElection]otherLook
}

// otherLook is what was seen of another lock.
type otherLook struct {
	// seen is the record that is held, raw as it is stored, and since is how long it has
	// been as it is.
	seen  k8sresourcelock.LeaderElectionRecord
	raw   string
	since time.Time
	// renewed: it has changed while we looked, so that somebody lives who renews it.
	renewed bool
	// left: it has not changed for as long as its lease.
	left bool
	// failed: it could not be read, which was said.
	failed bool
}

// otherTimeout bounds one read of another lock.
const otherTimeout = 5 * time.Second

func newOtherLocks(client kube.Client, events k8sresourcelock.EventRecorder, registry prometheus.Registerer, log *slog.Logger, config Config) *otherLocks {
	kind, _ := lockType(config.Lock) // validated
	o := &otherLocks{
		on:     !config.DisableElections && kind != leaderelection.MultiLock,
		client: client, events: events, log: log, wake: newWakeup(), retry: config.RetryPeriod,
		looks: map[*leaderelection.LeaderElection]otherLook{},
		held: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "incumbent_election_other_lock_held",
			Help: "Whether a lock of the other kind with that election's name is being renewed: 1, or 0. Then two installations elect apart from each other, and both work.",
		}, []string{"name"}),
	}
	if o.retry == 0 {
		o.retry = leaderelection.DefaultRetryPeriod
	}
	if o.on {
		registry.MustRegister(o.held)
	}
	return o
}

// watch has an election looked after.
func (o *otherLocks) watch(le *leaderelection.LeaderElection) {
	if !o.on {
		return
	}
	o.elections = append(o.elections, le)
	o.held.WithLabelValues(le.Status().Lock).Set(0)
	// Two that start at one time see nothing yet; whoever leads second sees the first.
	o.wake.onTerms(le)
}

// run looks at the start and whenever a term begins or has ended, and again and again
// while there is something to see.
func (o *otherLocks) run(ctx context.Context) error {
	if !o.on {
		<-ctx.Done()
		return nil
	}
	for {
		unfinished := false
		for _, le := range o.elections {
			unfinished = o.look(ctx, le, time.Now()) || unfinished
		}
		again := time.NewTimer(o.retry)
		if !unfinished {
			again.Stop()
		}
		select {
		case <-ctx.Done():
			again.Stop()
			return nil
		case <-o.wake:
			again.Stop()
		case <-again.C:
		}
	}
}

// look reads an election's other lock once, and reports whether that has to be repeated.
func (o *otherLocks) look(ctx context.Context, le *leaderelection.LeaderElection, now time.Time) (unfinished bool) {
	status := le.Status()
	other := otherKind(status.LockType)
	readCtx, cancel := context.WithTimeout(ctx, otherTimeout)
	snap, err := o.read(readCtx, other, status.Namespace, status.Lock)
	cancel()
	log := o.log.With("election", status.Lock, "ours", status.LockType, "other", other)
	o.mu.Lock()
	defer o.mu.Unlock()
	was := o.looks[le]
	next, again := was.after(snap, err, now)
	o.looks[le] = next
	switch {
	case ctx.Err() != nil:
	case next.failed && !was.failed:
		log.Info("a lock of the other kind cannot be looked for", "err", err)
	case next.renewed && !was.renewed:
		o.held.WithLabelValues(status.Lock).Set(1)
		log.Warn("another installation elects by another kind of lock, and both work: give all the same --lock, or multi to those that move",
			"holder", next.seen.HolderIdentity, "key", next.seen.HolderKey)
		o.say(status, other, next.seen.HolderIdentity)
	case was.renewed && !next.renewed:
		o.held.WithLabelValues(status.Lock).Set(0)
		log.Info("nobody elects by another kind of lock any more")
	case next.left && !was.left:
		log.Info("a lock of the other kind was left behind: nobody renews it, delete it", "holder", next.seen.HolderIdentity)
	}
	return again
}

// after is what is known after a further look, and whether one more is needed.
func (l otherLook) after(snap k8sresourcelock.Snapshot, err error, now time.Time) (next otherLook, again bool) {
	if err != nil {
		l.failed = true
		return l, !apierrors.IsForbidden(err)
	}
	record, raw := snap.Record, string(snap.Raw)
	if record.HolderIdentity == "" || keptByMigration(snap) {
		return otherLook{}, false
	}
	lease := time.Duration(record.LeaseDurationSeconds) * time.Second
	switch {
	case l.since.IsZero():
		return otherLook{seen: record, raw: raw, since: now}, true
	case l.raw != raw:
		return otherLook{seen: record, raw: raw, since: now, renewed: true}, true
	case now.Sub(l.since) <= lease:
		l.failed = false
		return l, true
	}
	return otherLook{seen: record, raw: raw, since: l.since, left: true}, false
}

// keptByMigration: who holds it holds the other kind as well, or keeps it for those who do.
func keptByMigration(snap k8sresourcelock.Snapshot) bool {
	holds := "v1 " + snap.Record.HolderIdentity + " "
	return strings.HasPrefix(snap.Notes[k8sresourcelock.MultiLockAnnotation], holds) ||
		strings.HasPrefix(snap.Notes[k8sresourcelock.PredecessorAnnotation], holds)
}

func otherKind(kind string) string {
	if kind == leaderelection.LeaseLock.String() {
		return leaderelection.ConfigMapLock.String()
	}
	return leaderelection.LeaseLock.String()
}

// read is the zero Snapshot where there is no such object.
func (o *otherLocks) read(ctx context.Context, kind, namespace, name string) (snap k8sresourcelock.Snapshot, err error) {
	if kind == leaderelection.LeaseLock.String() {
		lease, err := o.client.Kube().CoordinationV1().Leases(namespace).Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			return k8sresourcelock.LeaseSnapshot(lease), nil
		}
		return snap, present(err)
	}
	configMap, err := o.client.Kube().CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
	if err == nil {
		return k8sresourcelock.ConfigMapSnapshot(configMap), nil
	}
	return snap, present(err)
}

func present(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// objectKinds are how Events call the kinds of locks.
var objectKinds = map[string]corev1.ObjectReference{
	leaderelection.ConfigMapLock.String(): {APIVersion: "v1", Kind: "ConfigMap"},
	leaderelection.LeaseLock.String():     {APIVersion: "coordination.k8s.io/v1", Kind: "Lease"},
}

// say writes an Event on both locks: whoever looks at either one is to find it.
func (o *otherLocks) say(status leaderelection.Status, other, holder string) {
	for _, kind := range []string{status.LockType, other} {
		object := objectKinds[kind]
		object.Namespace, object.Name = status.Namespace, status.Lock
		o.events.Eventf(&object, corev1.EventTypeWarning, "LeaderElection",
			"%s elects by %s while %s holds the %s: both work", status.Identity, status.LockType, holder, other)
	}
}

// state is who holds the other lock, "" when nobody who lives does.
func (o *otherLocks) state(le *leaderelection.LeaderElection) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if look := o.looks[le]; look.renewed {
		return fmt.Sprintf("%s holds the %s", look.seen.HolderIdentity, otherKind(le.Status().LockType))
	}
	return ""
}
