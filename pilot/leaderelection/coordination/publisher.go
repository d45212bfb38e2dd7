package coordination

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/blang/semver/v4"
	"go.uber.org/atomic"
	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	clientv1beta1 "k8s.io/client-go/kubernetes/typed/coordination/v1beta1"

	"incumbent.dev/incumbent/internal/apirequest"
	"incumbent.dev/incumbent/internal/watch"
)

const (
	// retryPeriod is the longest pause after a failure. The first is short, because a coordinator waits only five seconds for an answer.
	retryPeriod = 5 * time.Second
	// unservedPeriod is the initial interval between checks for the LeaseCandidate API. It doubles after each check, up to
	// longestUnserved.
	unservedPeriod  = 30 * time.Second
	longestUnserved = 5 * time.Minute
	// maxPublishAttempts is the maximum number of attempts to update the LeaseCandidate on conflict.
	maxPublishAttempts = 3
	// stopTimeout limits the deletion of the LeaseCandidate at the end.
	stopTimeout = 2 * time.Second
)

// CandidateConfig describes a process as a candidate of coordinated elections.
type CandidateConfig struct {
	// Strategy is the strategy that the candidate requests, for example DefaultRevision. Required.
	Strategy string
	// BinaryVersion is the semantic version of the program, without a leading "v". Required.
	BinaryVersion string
	// EmulationVersion is the semantic version that the program emulates. It is at most BinaryVersion, which is the default.
	EmulationVersion string
	// PodUID is the UID of the Pod of the process, which becomes the owner of the LeaseCandidate. If empty, the LeaseCandidate has
	// no owner.
	PodUID types.UID
	// Labels are labels of the LeaseCandidate for strategies, for example RevisionLabel. Labels that others set on the object are
	// preserved.
	Labels map[string]string
}

// Validate returns an error that lists everything that the API server would reject in a LeaseCandidate of the pod for the lease.
func (c CandidateConfig) Validate(namespace, lease, pod string) error {
	var errs []error
	add := func(field, value string, problems []string) {
		for _, problem := range problems {
			errs = append(errs, fmt.Errorf("%s %q: %s", field, value, problem))
		}
	}
	name := CandidateName(pod, lease)
	add("namespace", namespace, validation.IsDNS1123Label(namespace))
	add("lease", lease, validation.IsDNS1123Subdomain(lease))
	add("pod", pod, validation.IsDNS1123Subdomain(pod))
	add("name", name, validation.IsConfigMapKey(name))
	for key, value := range c.Labels {
		add("label", key, validation.IsQualifiedName(key))
		add("label "+key, value, validation.IsValidLabelValue(value))
	}
	errs = append(errs, c.validateStrategy(), c.validateVersions())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("candidate %s in namespace %q: %w", name, namespace, err)
	}
	return nil
}

func (c CandidateConfig) validateStrategy() error {
	if c.Strategy == OldestEmulationVersion {
		return nil
	}
	if !strings.Contains(c.Strategy, "/") {
		return fmt.Errorf("strategy %q: use %s, %s, or a qualified name such as example.com/Zone", c.Strategy, DefaultRevision, OldestEmulationVersion)
	}
	for _, problem := range validation.IsQualifiedName(c.Strategy) {
		return fmt.Errorf("strategy %q: %s", c.Strategy, problem)
	}
	return nil
}

func (c CandidateConfig) validateVersions() error {
	binary, err := parseVersion(c.BinaryVersion)
	if err != nil {
		return fmt.Errorf("binary version: %w", err)
	}
	emulation, err := parseVersion(c.emulation())
	switch {
	case err != nil:
		return fmt.Errorf("emulation version: %w", err)
	case emulation.GT(binary):
		return fmt.Errorf("emulation version %s is higher than binary version %s", c.emulation(), c.BinaryVersion)
	case c.Strategy == OldestEmulationVersion && emulation.EQ(semver.Version{}):
		return fmt.Errorf("emulation version %s: %s requires a version above 0.0.0", c.emulation(), OldestEmulationVersion)
	}
	return nil
}

func (c CandidateConfig) emulation() string { return cmp.Or(c.EmulationVersion, c.BinaryVersion) }

// PublisherConfig configures a Publisher.
type PublisherConfig struct {
	CandidateConfig
	// Client reads and writes the LeaseCandidate.
	Client kubernetes.Interface
	// Namespace and Lease identify the lock. Pod is the name of this process.
	Namespace, Lease, Pod string
	// SetUnserved is called with true if the API server does not serve LeaseCandidates, and with false when it does again. It must
	// not block. Optional.
	SetUnserved func(bool)
	// Logger logs when publishing begins to fail and when it succeeds again. The default is slog.Default.
	Logger *slog.Logger
}

func (c PublisherConfig) name() string { return CandidateName(c.Pod, c.Lease) }

// Publisher maintains a process's LeaseCandidate for one election. It writes the object when its content changes, answers the pings of
// a coordinator, and deletes the object at its end. It sends no other requests.
type Publisher struct {
	cfg     PublisherConfig
	objects clientv1beta1.LeaseCandidateInterface
	// published is true once this process has written the object. Before, the object may be from an earlier process.
	published bool
	// ping is the pingTime of the last version that this process wrote.
	ping     *metav1.MicroTime
	latency  apirequest.Latency
	trouble  *apirequest.Trouble
	unserved bool // see PublisherConfig.SetUnserved

	// unservedPause is the next pause if LeaseCandidates are not served.
	unservedPause time.Duration
	follower      watch.Follower

	unfit atomic.Bool
}

// NewPublisher validates the configuration and starts nothing.
func NewPublisher(cfg PublisherConfig) (*Publisher, error) {
	if cfg.Client == nil {
		return nil, fmt.Errorf("candidate %s: Client is required", cfg.name())
	}
	if err := cfg.Validate(cfg.Namespace, cfg.Lease, cfg.Pod); err != nil {
		return nil, err
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	cfg.Logger = cfg.Logger.With("leaseCandidate", cfg.Namespace+"/"+cfg.name())
	p := &Publisher{
		cfg: cfg, objects: cfg.Client.CoordinationV1beta1().LeaseCandidates(cfg.Namespace), unservedPause: unservedPeriod,
		trouble: apirequest.NewTrouble(cfg.Logger, map[string]string{publishVerb: "no coordinator sees this candidate"}),
	}
	p.follower = watch.Follower{
		Watch: p.objects.Watch, Selection: watch.ByName(cfg.name()), LongestPause: retryPeriod, Pause: p.pause,
		Connected: p.connected, Event: p.event, Ended: p.ended,
	}
	return p, nil
}

// SetFit sets whether this process is fit to lead. The default is fit. It does not block.
func (p *Publisher) SetFit(fit bool) {
	if p.unfit.Swap(!fit) != !fit {
		p.follower.Restart() // connected publishes the change
	}
}

// Run publishes the LeaseCandidate until ctx ends, and then deletes it. It sends no request unless it is pinged. If the API server
// does not serve LeaseCandidates or rejects the request, it logs that once and retries.
func (p *Publisher) Run(ctx context.Context) error {
	p.follower.Run(ctx)
	p.remove(ctx)
	return nil
}

// connected publishes the object when a watch starts after a gap.
func (p *Publisher) connected(ctx context.Context, gap bool) error {
	if gap {
		if err := p.publish(ctx); err != nil {
			return err
		}
	}
	p.report(nil)
	return nil
}

// event answers a ping. If that fails, the watch resumes before the event, so that the event is received again.
func (p *Publisher) event(ctx context.Context, kind apiwatch.EventType, object watch.Object) error {
	if kind == apiwatch.Deleted {
		return p.publish(ctx)
	}
	candidate, ok := object.(*coordinationv1beta1.LeaseCandidate)
	if !ok || candidate.Name != p.cfg.name() {
		return nil
	}
	return p.answer(ctx, candidate)
}

func (p *Publisher) ended(end watch.End) (again bool) {
	if !watch.IsExpired(end.Err) && !errors.Is(end.Err, watch.ErrNotAccepted) {
		p.report(end.Err)
	}
	return true
}

// pause returns a longer pause while LeaseCandidates are not served.
func (p *Publisher) pause(err error, backOff time.Duration) time.Duration {
	if !isUnserved(err) {
		p.unservedPause = unservedPeriod
		return backOff
	}
	pause := p.unservedPause
	p.unservedPause = min(2*pause, longestUnserved)
	return pause
}

// publish writes the object. It retries on conflict immediately, because a coordinator may wait for an answer.
func (p *Publisher) publish(ctx context.Context) (err error) {
	var object *coordinationv1beta1.LeaseCandidate
	for range maxPublishAttempts {
		object, err = p.write(ctx)
		if again := apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || errors.Is(err, apirequest.ErrOneAnswer); !again {
			break
		}
	}
	if err == nil {
		p.published = true
		p.ping = object.Spec.PingTime
	}
	return err
}

// write creates or updates the object. An object of another election is replaced, because leaseName is immutable.
func (p *Publisher) write(ctx context.Context) (*coordinationv1beta1.LeaseCandidate, error) {
	send := func(send func(context.Context) (*coordinationv1beta1.LeaseCandidate, error)) (*coordinationv1beta1.LeaseCandidate, error) {
		return request(ctx, &p.latency, send)
	}
	have, err := send(func(ctx context.Context) (*coordinationv1beta1.LeaseCandidate, error) {
		return p.objects.Get(ctx, p.cfg.name(), metav1.GetOptions{})
	})
	absent := apierrors.IsNotFound(err) && !isUnserved(err)
	if err == nil && have.Spec.LeaseName != p.cfg.Lease {
		_, err = send(func(ctx context.Context) (*coordinationv1beta1.LeaseCandidate, error) {
			return nil, p.objects.Delete(ctx, have.Name, *metav1.NewPreconditionDeleteOptions(string(have.UID)))
		})
		absent = err == nil
	}
	if absent {
		wanted := p.wanted(&coordinationv1beta1.LeaseCandidate{})
		return send(func(ctx context.Context) (*coordinationv1beta1.LeaseCandidate, error) {
			return p.objects.Create(ctx, wanted, metav1.CreateOptions{})
		})
	}
	if err != nil {
		return nil, err
	}
	wanted := p.wanted(have)
	if p.published && equality.Semantic.DeepEqual(have, wanted) {
		return have, nil
	}
	return send(func(ctx context.Context) (*coordinationv1beta1.LeaseCandidate, error) {
		return p.objects.Update(ctx, wanted, metav1.UpdateOptions{})
	})
}

// wanted returns a copy of have with the fields of this process.
func (p *Publisher) wanted(have *coordinationv1beta1.LeaseCandidate) *coordinationv1beta1.LeaseCandidate {
	o := have.DeepCopy()
	o.Name = p.cfg.name()
	o.Namespace = p.cfg.Namespace
	if o.Labels == nil && len(p.cfg.Labels) > 0 {
		o.Labels = map[string]string{}
	}
	maps.Copy(o.Labels, p.cfg.Labels)
	if _, labelled := o.Labels[FitLabel]; labelled || p.unfit.Load() {
		metav1.SetMetaDataLabel(&o.ObjectMeta, FitLabel, strconv.FormatBool(!p.unfit.Load()))
	}
	if p.cfg.PodUID != "" {
		o.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: p.cfg.Pod, UID: p.cfg.PodUID}}
	}
	o.Spec.LeaseName = p.cfg.Lease
	o.Spec.BinaryVersion = p.cfg.BinaryVersion
	o.Spec.EmulationVersion = p.cfg.emulation()
	o.Spec.Strategy = coordinationv1.CoordinatedLeaseStrategy(p.cfg.Strategy)
	if !p.published || o.Spec.RenewTime == nil || p.isPinged(o.Spec) {
		o.Spec.RenewTime = answerTo(o.Spec.PingTime, time.Now())
	}
	return o
}

// answerTo returns a renewTime that is not earlier than the ping, because the coordinator's clock may be ahead.
func answerTo(ping *metav1.MicroTime, now time.Time) *metav1.MicroTime {
	if ping != nil && now.Before(ping.Time) {
		now = ping.Time
	}
	return &metav1.MicroTime{Time: now}
}

// isPinged reports whether a ping is unanswered. Each new pingTime is a ping, because the coordinator's clock may be days behind.
func (p *Publisher) isPinged(spec coordinationv1beta1.LeaseCandidateSpec) bool {
	return spec.PingTime != nil && !spec.PingTime.Equal(p.ping) || isPinged(spec)
}

// answer writes renewTime if a ping is unanswered. On conflict the watch delivers the newer version, which is answered then.
func (p *Publisher) answer(ctx context.Context, object *coordinationv1beta1.LeaseCandidate) error {
	if object == nil || !p.isPinged(object.Spec) {
		return nil
	}
	answered := object.DeepCopy()
	answered.Spec.RenewTime = answerTo(object.Spec.PingTime, time.Now())
	_, err := request(ctx, &p.latency, func(ctx context.Context) (*coordinationv1beta1.LeaseCandidate, error) {
		return p.objects.Update(ctx, answered, metav1.UpdateOptions{})
	})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil {
		p.ping = object.Spec.PingTime
	}
	return err
}

const publishVerb = "publish the LeaseCandidate"

func (p *Publisher) report(err error) {
	unserved := isUnserved(err)
	if unserved != p.unserved && (unserved || err == nil) {
		p.setUnserved(unserved)
	}
	if !unserved { // most API servers do not serve them, so that is no problem
		p.trouble.Tried(publishVerb, err)
	}
}

func (p *Publisher) setUnserved(unserved bool) {
	p.unserved = unserved
	if unserved {
		p.cfg.Logger.Info("API server does not serve LeaseCandidates (coordination.k8s.io/v1beta1); the election is not coordinated")
	} else {
		p.cfg.Logger.Info("API server serves LeaseCandidates; the election is coordinated")
	}
	if p.cfg.SetUnserved != nil {
		p.cfg.SetUnserved(unserved)
	}
}

// remove deletes the object. If that fails, the object is deleted with its Pod.
func (p *Publisher) remove(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	err := p.objects.Delete(ctx, p.cfg.name(), metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) && p.trouble.Problem() == nil {
		p.cfg.Logger.Info("failed to delete the LeaseCandidate", "err", err)
	}
}
