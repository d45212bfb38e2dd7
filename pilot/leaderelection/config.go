package leaderelection

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes"

	"incumbent.dev/incumbent/internal/environment"
	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/pilot/leaderelection/coordination"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/pkg/revisions"
)

// LockType is the type of the lock object of an election. The zero value means a Lease.
type LockType = record.Kind

const (
	// LockTypeLease stores the record in the spec of a Lease.
	LockTypeLease = record.Lease
	// LockTypeConfigMap stores the record in an annotation of a ConfigMap.
	LockTypeConfigMap = record.ConfigMap
)

// Config configures the part of a process in an election.
type Config struct {
	// Namespace is the namespace of the lock object. Required.
	Namespace string
	// Identity is the name of this candidate, unique among live processes: the pod name. Default: the host name and
	// a random suffix, which is logged. A fence accepts only the pod name.
	Identity string
	// ElectionID is the name of the lock object. Required. Per-revision elections append "-<revision>".
	ElectionID string
	// Revision is the revision of this control plane. Default: "default".
	Revision string
	// PerRevision elections have a lock for each revision, and no rank.
	PerRevision bool
	// Remote is true if the candidate runs outside the cluster of the lock. Local candidates of the
	// same revision outrank it.
	Remote bool
	// Lock is the type of the lock object. Default: LockTypeLease.
	Lock LockType

	// LockLabels are the labels of the lock object, if this process creates it. Optional.
	LockLabels map[string]string
	// LockOwners are the owner references of the lock object, if this process creates it. Optional.
	LockOwners []metav1.OwnerReference
	// LabelPod is the Pod of this process. While this process leads, the Pod has the label LeaderLabel, so that a Service can
	// select the leader. The label of a killed process remains until its container restarts or its Pod is deleted. Set it
	// in one election of a process. It needs the verb patch on Pods. Optional.
	LabelPod types.NamespacedName

	// Predecessor is the lock that guarded the run functions in earlier versions. The election
	// is not active while another process holds it. Optional.
	Predecessor *Predecessor
	// Coordination lets a coordinator (package coordination) choose the leader. The process publishes a LeaseCandidate while it takes
	// part, and acquires the lock when the coordinator names it. Its identity in the lock is coordination.CandidateName. On an API
	// server without LeaseCandidates the election is not coordinated (Status.Uncoordinated). Optional. It requires LockTypeLease,
	// and excludes Predecessor and PreemptImmediately.
	Coordination *coordination.CandidateConfig

	// LeaseDuration is the time after which other candidates may acquire a lock that is not renewed,
	// in whole seconds. Default: 30 s.
	LeaseDuration time.Duration
	// RenewDeadline is the time after its last renewal at which a leader stops. Default: 15 s.
	RenewDeadline time.Duration
	// RetryPeriod is the time between renewals, and between retries. Default: 7.5 s.
	RetryPeriod time.Duration
	// DrainLimit is the time that run functions have to return when a term is lost, counted from
	// the end of the validity. Default: as long as RenewDeadline and LeaseDuration allow.
	DrainLimit time.Duration
	// StopLimit is the time that run functions have to return when the election stops or hands over,
	// while the lock is renewed. Default: twice LeaseDuration, at most 15 s.
	StopLimit time.Duration
	// PeerGrace is the time after the end of their lease for which other electors, such as istiod,
	// may still be active. Default: 0.
	PeerGrace time.Duration
	// PreemptImmediately starts the run functions when a preempting write was acknowledged, as istiod
	// does. Two leaders can be active for a short time.
	PreemptImmediately bool
	// OnStuckDrain is called if run functions exceed DrainLimit or StopLimit. With a held Predecessor it may be called twice, once for
	// each lock. Optional.
	OnStuckDrain func()
	// ExitOnStuckDrain ends the process if run functions exceed DrainLimit or StopLimit.
	ExitOnStuckDrain bool

	// DefaultWatcher reports the default revision. The caller runs it. If nil, no candidate outranks
	// another by its revision. The election acquires no lock before the watcher has synced, but waits
	// at most three seconds or a quarter of the lease for it.
	DefaultWatcher revisions.DefaultWatcher
	// Disabled starts all run functions immediately. No lock is used.
	Disabled bool

	// LockClient reads and writes the lock. It must not be gated, and should not share a rate limit
	// with the run functions. Default: a client that elections with the same kube.Client share.
	LockClient kubernetes.Interface
	// Witness releases the lock after this process has ended without a release (package witness). Optional.
	Witness k8sleaderelection.Witness
	// EventRecorder writes Kubernetes Events about the lock object. Optional.
	EventRecorder k8sresourcelock.EventRecorder
	// Observer receives phase changes and API calls, for metrics. Optional.
	Observer k8sleaderelection.Observer
	// HealthTolerance is the time after the end of the lease at which Healthz fails if run functions
	// are still active. Default: 20 s.
	HealthTolerance time.Duration
	// Logger receives the log entries of the election. Default: slog.Default. A Logger, EventRecorder or Observer that does not return
	// does not delay the election (see k8sleaderelection.LeaderElectionConfig).
	Logger *slog.Logger
	// Clock measures the validity. Tests set it (electiontest.Clock). Default: the clocks of the machine.
	Clock *k8sleaderelection.Clock
}

const defaultHealthTolerance = 20 * time.Second

func (c Config) withDefaults() Config {
	c.Revision = cmp.Or(c.Revision, "default")
	c.Lock = cmp.Or(c.Lock, LockTypeLease)
	if c.Predecessor != nil {
		p := *c.Predecessor
		p.Lock = cmp.Or(p.Lock, LockTypeLease)
		c.Predecessor = &p
	}
	c.LeaseDuration = cmp.Or(c.LeaseDuration, DefaultLeaseDuration)
	c.RenewDeadline = cmp.Or(c.RenewDeadline, environment.DefaultRenewDeadline)
	c.RetryPeriod = cmp.Or(c.RetryPeriod, DefaultRetryPeriod)
	c.HealthTolerance = cmp.Or(c.HealthTolerance, defaultHealthTolerance)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	if c.Identity == "" {
		c.Identity = hostName() + "-" + rand.String(suffixLength)
		c.Logger.Info("no identity was given; using a unique one", "election", c.lockName(), "identity", c.Identity)
	}
	return c
}

// suffixLength is the length of the suffix of a default identity. The alphabet has 27 letters and digits.
const suffixLength = 10

func hostName() string {
	host, err := os.Hostname()
	if err != nil {
		return "host"
	}
	return host
}

func (c Config) lockName() string {
	if c.PerRevision {
		return c.ElectionID + "-" + c.Revision
	}
	return c.ElectionID
}

// key returns the key that the candidate writes into the lock. It determines the rank.
func (c Config) key() string { return k8sleaderelection.RevisionKey(c.Revision, c.Remote) }

// maxSyncWait is longer than a default watcher needs to sync while the process starts.
const maxSyncWait = 3 * time.Second

// syncWait returns how long the elector waits for the default watcher.
func (c Config) syncWait() time.Duration {
	if c.DefaultWatcher == nil || c.PerRevision {
		return 0
	}
	return min(maxSyncWait, c.LeaseDuration/4)
}

// validate checks the fields that neither the elector nor the lock checks.
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
	if c.Lock != LockTypeConfigMap && c.Lock != LockTypeLease {
		errs = append(errs, fmt.Errorf("the Lock %q is neither LockTypeConfigMap nor LockTypeLease", c.Lock))
	}
	errs = append(errs, c.validateLockMeta(), c.validatePodLabel())
	if c.Predecessor != nil {
		errs = append(errs, c.validatePredecessor())
	}
	errs = append(errs, c.validateCoordination())
	return errors.Join(errs...)
}

// validateLockMeta returns an error for labels and owners that an object cannot have.
func (c Config) validateLockMeta() error {
	labels := metavalidation.ValidateLabels(c.LockLabels, field.NewPath("LockLabels"))
	return append(labels, apivalidation.ValidateOwnerReferences(c.LockOwners, field.NewPath("LockOwners"))...).ToAggregate()
}

func (c Config) validatePredecessor() error {
	p := *c.Predecessor
	if err := p.validate(); err != nil {
		return err
	}
	if (p.Namespace == "" || p.Namespace == c.Namespace) && p.Name == c.lockName() && p.Lock == c.Lock {
		return fmt.Errorf("the Predecessor %s is the election's own lock", p.Name)
	}
	return nil
}
