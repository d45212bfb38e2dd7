package migration

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/apirequest"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/pkg/kube"
)

// Config configures a LockTypeCheck.
type Config struct {
	// Client reads the locks of the other type.
	Client kube.Client
	// Events receives a warning for both locks of an election.
	Events k8sresourcelock.EventRecorder
	// Registry exports the metric.
	Registry prometheus.Registerer
	Logger   *slog.Logger
	// RetryPeriod is the interval between reads while a check is not finished. If 0, it is the default of elections.
	RetryPeriod time.Duration
}

// LockTypeCheck looks for locks of the other type with the names of this server's elections. A released lock and a
// lock that a migration holds are ignored. A lock that no process renews is reported as stale.
//
// A server with Leases does not report another incumbent that holds the ConfigMap, because it may migrate. If it uses only
// ConfigMaps, it reports the holder of the Lease itself, within checkEvery.
type LockTypeCheck struct {
	config    Config
	held      *prometheus.GaugeVec
	wake      apirequest.Signal
	elections []*leaderelection.LeaderElection

	unread apirequest.Reported[*leaderelection.LeaderElection]

	mu    sync.Mutex
	found map[*leaderelection.LeaderElection]observation
}

// observation is the knowledge about one lock of the other type.
type observation struct {
	holder, raw string    // as last read
	since       time.Time // of the first read with this content
	state       state
}

// state is the state of a lock of the other type.
type state uint8

const (
	none    state = iota // no holder, or a holder that may use both types
	seen                 // a holder was read once
	renewed              // the record changed between two reads, so a live process renews it
	stale                // the record has not changed for its lease duration
)

// readTimeout bounds one read of a lock.
const readTimeout = 5 * time.Second

// NewLockTypeCheck returns a check without elections. It starts nothing.
func NewLockTypeCheck(config Config) *LockTypeCheck {
	config.RetryPeriod = cmp.Or(config.RetryPeriod, leaderelection.DefaultRetryPeriod)
	c := &LockTypeCheck{
		config: config, wake: apirequest.NewSignal(), found: map[*leaderelection.LeaderElection]observation{},
		held: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "incumbent_election_other_lock_held",
			Help: "1 if a live process renews a lock of the other type with the name of the election, else 0. Then two leaders can be active.",
		}, []string{"name"}),
	}
	config.Registry.MustRegister(c.held)
	return c
}

// Watch adds an election. It must be called before Run and before the election runs.
func (c *LockTypeCheck) Watch(le *leaderelection.LeaderElection) {
	c.elections = append(c.elections, le)
	c.held.WithLabelValues(le.Status().Lock).Set(0)
	// Two installations that start at the same time find no lock yet. The second leader finds the lock of the first.
	le.AddRunContext(c.wake.Around)
}

// checkEvery is the interval of checks while this process leads by a ConfigMap, in RetryPeriods.
const checkEvery = 4

// Run checks all elections at the start and whenever a term begins or ends, and repeats checks that are not finished.
func (c *LockTypeCheck) Run(ctx context.Context) error {
	for {
		wait := time.Duration(math.MaxInt64)
		for _, le := range c.elections {
			if c.check(ctx, le, time.Now()) {
				wait = c.config.RetryPeriod
			} else if s := le.Status(); s.Leading && s.LockType == leaderelection.LockTypeConfigMap {
				wait = min(wait, checkEvery*c.config.RetryPeriod)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-c.wake:
		case <-time.After(wait):
		}
	}
}

// check reads the other lock of an election once. It reports whether the check must be repeated.
func (c *LockTypeCheck) check(ctx context.Context, le *leaderelection.LeaderElection, now time.Time) (unfinished bool) {
	status := le.Status()
	other := otherType(status.LockType)
	meta := metav1.ObjectMeta{Namespace: status.Namespace, Name: status.Lock}
	readCtx, cancel := context.WithTimeout(ctx, readTimeout)
	snap, err := k8sresourcelock.NewLock(other, meta, c.config.Client.Kube(), k8sresourcelock.ResourceLockConfig{}, nil).Read(readCtx)
	cancel()
	log := c.config.Logger.With("election", status.Lock, "ours", status.LockType, "other", other)
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.found[le]
	after, unfinished := before.next(snap, err, now, migrates(snap, status))
	c.found[le] = after
	if ctx.Err() != nil {
		return unfinished
	}
	if c.unread.Failed(le, err) {
		log.Info("failed to read the lock of the other type", "err", err)
	}
	switch {
	case after.state == before.state:
	case after.state == renewed:
		c.held.WithLabelValues(status.Lock).Set(1)
		log.Warn("another installation uses a different lock type for this election, so two leaders can be active: "+
			"set the same --lock everywhere, or --lock=multi while migrating",
			"holder", after.holder, "key", snap.Record.HolderKey)
		c.recordEvents(status, after.holder)
	case before.state == renewed:
		c.held.WithLabelValues(status.Lock).Set(0)
		log.Info("the other installation no longer holds a lock of a different type")
	case after.state == stale:
		log.Info("found a stale lock of the other type; delete it", "holder", after.holder)
	}
	return unfinished
}

// next returns the observation after a further read, and whether another read is needed.
func (o observation) next(snap k8sresourcelock.Snapshot, err error, now time.Time, migrates bool) (next observation, again bool) {
	if err != nil {
		return o, !apierrors.IsForbidden(err)
	}
	next = observation{holder: snap.Record.HolderIdentity, raw: string(snap.Raw), since: now}
	switch {
	case next.holder == "" || migrates:
		return observation{}, false
	case o.state == none:
		next.state = seen
	case o.raw != next.raw:
		next.state = renewed
	case now.Sub(o.since) <= time.Duration(snap.Record.LeaseDurationSeconds)*time.Second:
		return o, true
	default:
		next.state = stale
		next.since = o.since
		return next, false
	}
	return next, true
}

// migrates reports whether the holder of the other lock may use both types. The holder of the Lease then also holds the ConfigMap. The
// holder of the ConfigMap is an incumbent: another process may hold the Lease.
func migrates(other k8sresourcelock.Snapshot, status leaderelection.Status) bool {
	if status.LockType == leaderelection.LockTypeLease {
		snap, _ := other.Decode()
		return snap.Annotations.Marker.Identity == snap.Record.Holder
	}
	return other.Record.HolderIdentity == status.Holder
}

func otherType(lockType leaderelection.LockType) leaderelection.LockType {
	if lockType == leaderelection.LockTypeLease {
		return leaderelection.LockTypeConfigMap
	}
	return leaderelection.LockTypeLease
}

// recordEvents writes a warning on both locks, so that a user of either installation finds it.
func (c *LockTypeCheck) recordEvents(status leaderelection.Status, holder string) {
	other := otherType(status.LockType)
	for _, kind := range []leaderelection.LockType{status.LockType, other} {
		object := corev1.ObjectReference{Namespace: status.Namespace, Name: status.Lock}
		object.APIVersion, object.Kind = kind.Object()
		c.config.Events.Eventf(&object, corev1.EventTypeWarning, "LeaderElection",
			"%s uses the %s while %s holds the %s: two leaders can be active", status.Identity, status.LockType, holder, other)
	}
}

// Problem describes the live holder of the other lock. It is empty if there is none, and for a nil check.
func (c *LockTypeCheck) Problem(le *leaderelection.LeaderElection) string {
	if c == nil {
		return ""
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if found := c.found[le]; found.state == renewed {
		return fmt.Sprintf("%s holds the %s", found.holder, otherType(le.Status().LockType))
	}
	return ""
}
