package leaderelection

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/pkg/revisions"
)

// LockType is the type of the lock object of an election.
type LockType uint8

const (
	// LockTypeLease stores the record in the spec of a Lease. It is the zero value.
	LockTypeLease LockType = iota
	// LockTypeConfigMap stores the record in an annotation of a ConfigMap.
	LockTypeConfigMap
	// LockTypeMulti stores the record in both. It is the intermediate step of a migration from
	// LockTypeConfigMap to LockTypeLease: all replicas must use LockTypeMulti before the first
	// replica uses LockTypeLease. See docs/migration.md.
	LockTypeMulti
)

// String returns "lease", "configmap" or "multi".
func (l LockType) String() string {
	switch l {
	case LockTypeConfigMap:
		return "configmap"
	case LockTypeLease:
		return "lease"
	case LockTypeMulti:
		return "multi"
	}
	return fmt.Sprintf("LockType(%d)", uint8(l))
}

// Config says which election a process takes part in, and as whom.
type Config struct {
	// Namespace of the lock object.
	Namespace string
	// Identity is this candidate's name, unique among live processes: the pod name.
	// Empty means "unknown-" and the host's name.
	Identity string
	// ElectionID is the lock object's name; per-revision elections append "-<revision>".
	ElectionID string
	// Revision of this control plane; empty counts as "default".
	Revision string
	// PerRevision elections have a lock for each revision, and no rank.
	PerRevision bool
	// Remote candidates run outside the cluster whose lock it is: local ones of the
	// same revision go before them.
	Remote bool
	// Lock is the type of the lock object. Default: LockTypeLease.
	Lock LockType

	// Predecessor, if given, is a lock that guarded this election's work in earlier
	// versions: run functions start once it is held too.
	Predecessor *Predecessor

	// Coordination, if given, has a coordinator choose who leads.
	Coordination *Coordination

	// LeaseDuration, RenewDeadline and RetryPeriod are as in LeaderElectionConfig.
	// Zero means 30 s, 15 s and 7.5 s.
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration
	// DrainLimit, StopLimit, PeerGrace, PreemptImmediately, OnStuckDrain and
	// ExitOnStuckDrain are as in LeaderElectionConfig, zero values included.
	DrainLimit, StopLimit, PeerGrace time.Duration
	PreemptImmediately               bool
	OnStuckDrain                     func()
	ExitOnStuckDrain                 bool

	// DefaultWatcher says which revision is the default. Its owner runs it. nil: no
	// revision goes before another. Until it has synced the election takes no lock, for
	// three seconds or a quarter of the lease at most: nobody has to wait for it before Run.
	DefaultWatcher revisions.DefaultWatcher
	// Disabled starts every run function at once and touches no lock.
	Disabled bool

	// LockClient reads and writes the lock. It should have no gate, and no rate limit in
	// common with the work. nil: one of its own, which elections of one client share.
	LockClient kubernetes.Interface
	// EventRecorder, if given, writes Kubernetes Events about the lock object.
	EventRecorder k8sresourcelock.EventRecorder
	// Observer is called with phases and calls, for metrics.
	Observer k8sleaderelection.Observer
	// HealthTolerance is how long after the end of the lease run functions may live on
	// before Healthz fails. Zero means 20 s.
	HealthTolerance time.Duration
	// Logger gets the elector's lines. nil: slog.Default.
	Logger *slog.Logger
}

const defaultHealthTolerance = 20 * time.Second

func (c Config) withDefaults() Config {
	if c.Identity == "" {
		c.Identity = unknownIdentity()
	}
	if c.Revision == "" {
		c.Revision = "default"
	}
	setDefault(&c.LeaseDuration, DefaultLeaseDuration)
	setDefault(&c.RenewDeadline, DefaultRenewDeadline)
	setDefault(&c.RetryPeriod, DefaultRetryPeriod)
	setDefault(&c.HealthTolerance, defaultHealthTolerance)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

func setDefault(d *time.Duration, value time.Duration) {
	if *d == 0 {
		*d = value
	}
}

// unknownIdentity is the identity where none was given, the same as istiod's.
func unknownIdentity() string {
	host, err := os.Hostname()
	if err != nil {
		host = "host"
	}
	return "unknown-" + host
}

// lockName is the lock object's name.
func (c Config) lockName() string {
	if c.PerRevision {
		return c.ElectionID + "-" + c.Revision
	}
	return c.ElectionID
}

// key is the candidate's rank, which it writes into the lock.
func (c Config) key() string { return k8sleaderelection.RevisionKey(c.Revision, c.Remote) }

// maxSyncWait is about as long as a watcher takes to sync beside a process that starts.
const maxSyncWait = 3 * time.Second

// syncWait is how long the elector waits for the default watcher.
func (c Config) syncWait() time.Duration {
	if c.DefaultWatcher == nil || c.PerRevision {
		return 0
	}
	return min(maxSyncWait, c.LeaseDuration/4)
}

// validate checks what the elector and the lock do not check.
func (c Config) validate() error {
	var errs []error
	if c.ElectionID == "" {
		errs = append(errs, errors.New("no ElectionID: name the election, e.g. "+NamespaceController))
	}
	if c.Namespace == "" {
		errs = append(errs, errors.New("no Namespace: name the namespace of the lock object, e.g. istio-system"))
	}
	for _, problem := range validation.IsDNS1123Label(c.Revision) {
		errs = append(errs, fmt.Errorf("the Revision %q: %s", c.Revision, problem))
	}
	switch c.Lock {
	case LockTypeConfigMap, LockTypeLease, LockTypeMulti:
	default:
		errs = append(errs, fmt.Errorf("the Lock %v is none of LockTypeConfigMap, LockTypeLease, LockTypeMulti", c.Lock))
	}
	if c.Predecessor != nil {
		errs = append(errs, c.validatePredecessor())
	}
	errs = append(errs, c.validateCoordination())
	return errors.Join(errs...)
}

func (c Config) validatePredecessor() error {
	p := *c.Predecessor
	if err := p.validate(); err != nil {
		return err
	}
	if (p.Namespace == "" || p.Namespace == c.Namespace) && p.Name == c.lockName() && (p.Lock == c.Lock || c.Lock == LockTypeMulti) {
		return fmt.Errorf("the Predecessor %s is the election's own lock", p.Name)
	}
	return nil
}
