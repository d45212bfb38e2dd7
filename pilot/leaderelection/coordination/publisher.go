package coordination

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	clientv1beta1 "k8s.io/client-go/kubernetes/typed/coordination/v1beta1"

	"incumbent.dev/incumbent/pkg/kube"
)

const (
	// requestTimeout bounds one request of a Publisher.
	requestTimeout = 5 * time.Second
	// retryPeriod is how long a Publisher waits after a request that failed or a watch that ended, soon after the one before.
	retryPeriod = 5 * time.Second
	// unservedPeriod is after how long a Publisher tries again whether the API server serves LeaseCandidates by now,
	// twice as long after each try, and longestUnserved at most.
	unservedPeriod, longestUnserved = 30 * time.Second, 5 * time.Minute
	// publishTries bounds how often the object is read and written again, since somebody else has written in between.
	publishTries = 3
	// stopTimeout bounds how long a Publisher takes to end.
	stopTimeout = 2 * time.Second
)

// PublisherConfig says what a process publishes of itself for one election.
type PublisherConfig struct {
	// Client is what the LeaseCandidate is read and written by.
	Client kubernetes.Interface
	// Namespace and Lease are those of the lock.
	Namespace, Lease string
	// Pod is this process's, and PodUID its UID, to which the LeaseCandidate is to belong; "" where it runs in none.
	Pod    string
	PodUID types.UID
	// BinaryVersion and EmulationVersion are semantic versions without a v in front. EmulationVersion is at
	// most BinaryVersion; empty means the same.
	BinaryVersion, EmulationVersion string
	// Strategy is the one that this candidate asks for, such as DefaultRevision.
	Strategy string
	// Labels are what strategies look at, such as RevisionLabel. Others that are put on the object stay.
	Labels map[string]string
	// Logger says when publishing begins to fail and works again; nil means slog's default.
	Logger *slog.Logger
}

// CandidateName is what the candidate of a pod in an election is called: its LeaseCandidate and the holder
// that is written into the lock. An object is for one election, so that two of a pod need two names.
func CandidateName(pod, lease string) string { return pod + "." + lease }

func (c PublisherConfig) name() string { return CandidateName(c.Pod, c.Lease) }

// Validate says all that the API server would refuse, and how to mend it.
func (c PublisherConfig) Validate() error {
	err := c.ValidateCandidate()
	if c.Client == nil {
		err = errors.Join(fmt.Errorf("candidate %s: no client was given", c.name()), err)
	}
	return err
}

// ValidateCandidate is Validate before there is a client.
func (c PublisherConfig) ValidateCandidate() error {
	var errs []error
	add := func(what, value string, problems []string) {
		for _, problem := range problems {
			errs = append(errs, fmt.Errorf("%s %q: %s", what, value, problem))
		}
	}
	add("namespace", c.Namespace, validation.IsDNS1123Label(c.Namespace))
	add("lease", c.Lease, validation.IsDNS1123Subdomain(c.Lease))
	add("pod", c.Pod, validation.IsDNS1123Subdomain(c.Pod))
	add("name", c.name(), validation.IsConfigMapKey(c.name()))
	for key, value := range c.Labels {
		add("label", key, validation.IsQualifiedName(key))
		add("label "+key, value, validation.IsValidLabelValue(value))
	}
	errs = append(errs, c.validateStrategy(), c.validateVersions())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("candidate %s in namespace %q: %w", c.name(), c.Namespace, err)
	}
	return nil
}

func (c PublisherConfig) validateStrategy() error {
	if c.Strategy == OldestEmulationVersion {
		return nil
	}
	if !strings.Contains(c.Strategy, "/") {
		return fmt.Errorf("strategy %q: give %s, %s, or a qualified name such as example.com/Zone", c.Strategy, DefaultRevision, OldestEmulationVersion)
	}
	for _, problem := range validation.IsQualifiedName(c.Strategy) {
		return fmt.Errorf("strategy %q: %s", c.Strategy, problem)
	}
	return nil
}

func (c PublisherConfig) validateVersions() error {
	binary, err := parseStrict(c.BinaryVersion)
	if err != nil {
		return fmt.Errorf("binary version: %w", err)
	}
	emulation, err := parseStrict(c.emulation())
	switch {
	case err != nil:
		return fmt.Errorf("emulation version: %w", err)
	case emulation.GT(binary):
		return fmt.Errorf("the emulation version %s is above the binary version %s: give at most that", c.emulation(), c.BinaryVersion)
	case c.Strategy == OldestEmulationVersion && emulation.EQ(semver.Version{}):
		return fmt.Errorf("the emulation version %s: %s needs one above 0.0.0", c.emulation(), OldestEmulationVersion)
	}
	return nil
}

func (c PublisherConfig) emulation() string {
	if c.EmulationVersion == "" {
		return c.BinaryVersion
	}
	return c.EmulationVersion
}

// Publisher keeps a process's LeaseCandidate for one election, and answers when it is asked whether it lives.
type Publisher struct {
	cfg     PublisherConfig
	objects clientv1beta1.LeaseCandidateInterface
	// published: this process has written the object, so that what an earlier one left has been renewed.
	published bool
	trouble   *kube.Trouble
	unserved  bool // LeaseCandidates are, as was logged

	unfit   atomic.Bool
	changed chan struct{} // has room for the word that unfit has changed
}

// NewPublisher checks the configuration and starts nothing.
func NewPublisher(cfg PublisherConfig) (*Publisher, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	cfg.Logger = cfg.Logger.With("leaseCandidate", cfg.Namespace+"/"+cfg.name())
	return &Publisher{
		cfg: cfg, objects: cfg.Client.CoordinationV1beta1().LeaseCandidates(cfg.Namespace), changed: make(chan struct{}, 1),
		trouble: kube.NewTrouble(cfg.Logger, map[string]string{keepVerb: "no coordinator sees this candidate"}),
	}, nil
}

// SetFit says whether this process would mind to lead. It does not block and may be called at any time; a Publisher
// that was not told is fit.
func (p *Publisher) SetFit(fit bool) {
	if p.unfit.Swap(!fit) == !fit {
		return
	}
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// Run publishes until ctx ends, and then deletes the LeaseCandidate. While nobody asks it sends no request. Where
// the API is not served, or refuses it, it says so once and tries again.
func (p *Publisher) Run(ctx context.Context) error {
	var ended time.Time
	unserved := unservedPeriod
	for ctx.Err() == nil {
		err := p.serve(ctx)
		p.report(ctx, err)
		if !apierrors.IsNotFound(err) {
			unserved = unservedPeriod
		}
		// API servers end a watch every few minutes, and an answer may fail. Who asks meanwhile waits five seconds for it: the first
		// try is at once.
		switch {
		case apierrors.IsNotFound(err):
			_ = kube.Pause(ctx, unserved)
			unserved = min(2*unserved, longestUnserved)
		case time.Since(ended) < retryPeriod:
			_ = kube.Pause(ctx, retryPeriod)
		}
		ended = time.Now()
	}
	p.remove(ctx)
	return nil
}

// serve publishes the object and follows it until its watch ends. A watch that ended is no error: the object is
// read anew.
func (p *Publisher) serve(ctx context.Context) error {
	object, err := p.publish(ctx)
	if err != nil {
		return err
	}
	p.published = true
	w, err := p.objects.Watch(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("metadata.name", p.cfg.name()).String(), ResourceVersion: object.ResourceVersion,
	})
	if err != nil {
		return err
	}
	defer w.Stop()
	p.report(ctx, nil)
	for {
		// The watch begins behind what was read or written last, and tells nothing of that.
		if err := p.answer(ctx, object); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-p.changed:
			if object, err = p.publish(ctx); err != nil {
				return err
			}
		case event, open := <-w.ResultChan():
			if !open {
				return nil
			}
			switch event.Type {
			case watch.Added, watch.Modified:
				object, _ = event.Object.(*coordinationv1beta1.LeaseCandidate)
			case watch.Deleted:
				if object, err = p.publish(ctx); err != nil {
					return err
				}
			case watch.Error, watch.Bookmark:
				return apierrors.FromObject(event.Object)
			}
		}
	}
}

// publish has the object say what this process is. Who has written it in between, as one that asks does, is waiting for an answer.
func (p *Publisher) publish(ctx context.Context) (object *coordinationv1beta1.LeaseCandidate, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	for range publishTries {
		if object, err = p.write(ctx); !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			break
		}
	}
	return object, err
}

// write creates the object, or brings the one that there is up to date. One of another election cannot be changed
// and is made anew.
func (p *Publisher) write(ctx context.Context) (*coordinationv1beta1.LeaseCandidate, error) {
	have, err := p.objects.Get(ctx, p.cfg.name(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) { // else there are no such objects
		return p.objects.Create(ctx, p.wanted(&coordinationv1beta1.LeaseCandidate{}), metav1.CreateOptions{})
	}
	if err != nil {
		return nil, err
	}
	if have.Spec.LeaseName != p.cfg.Lease {
		only := metav1.DeleteOptions{Preconditions: metav1.NewPreconditionDeleteOptions(string(have.UID)).Preconditions}
		if err := p.objects.Delete(ctx, have.Name, only); err != nil {
			return nil, err
		}
		return p.objects.Create(ctx, p.wanted(&coordinationv1beta1.LeaseCandidate{}), metav1.CreateOptions{})
	}
	wanted := p.wanted(have)
	if p.published && equality.Semantic.DeepEqual(have, wanted) {
		return have, nil
	}
	return p.objects.Update(ctx, wanted, metav1.UpdateOptions{})
}

// wanted is have with what this process says of itself. Labels of others stay.
func (p *Publisher) wanted(have *coordinationv1beta1.LeaseCandidate) *coordinationv1beta1.LeaseCandidate {
	o := have.DeepCopy()
	o.Name, o.Namespace = p.cfg.name(), p.cfg.Namespace
	if o.Labels == nil && len(p.cfg.Labels) > 0 {
		o.Labels = map[string]string{}
	}
	for key, value := range p.cfg.Labels {
		o.Labels[key] = value
	}
	if _, labelled := o.Labels[FitLabel]; labelled || p.unfit.Load() {
		metav1.SetMetaDataLabel(&o.ObjectMeta, FitLabel, strconv.FormatBool(!p.unfit.Load()))
	}
	if p.cfg.PodUID != "" {
		o.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: p.cfg.Pod, UID: p.cfg.PodUID}}
	}
	o.Spec.LeaseName, o.Spec.BinaryVersion, o.Spec.EmulationVersion = p.cfg.Lease, p.cfg.BinaryVersion, p.cfg.emulation()
	o.Spec.Strategy = coordinationv1.CoordinatedLeaseStrategy(p.cfg.Strategy)
	if !p.published || o.Spec.RenewTime == nil || asked(o.Spec) {
		o.Spec.RenewTime = answerTo(o.Spec.PingTime, time.Now())
	}
	return o
}

// answerTo is a renewTime by which a ping is answered, whatever the clocks say: who asked compares it with its own
// pingTime, so that it is never before that.
func answerTo(ping *metav1.MicroTime, now time.Time) *metav1.MicroTime {
	if ping != nil && now.Before(ping.Time) {
		now = ping.Time
	}
	return &metav1.MicroTime{Time: now}
}

// asked reports whether somebody waits for an answer.
func asked(spec coordinationv1beta1.LeaseCandidateSpec) bool {
	return spec.PingTime != nil && (spec.RenewTime == nil || spec.RenewTime.Before(spec.PingTime))
}

// answer writes a renewTime if somebody has asked. Who wrote in between is seen by the watch, and answered then.
func (p *Publisher) answer(ctx context.Context, object *coordinationv1beta1.LeaseCandidate) error {
	if object == nil || !asked(object.Spec) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	answered := object.DeepCopy()
	answered.Spec.RenewTime = answerTo(object.Spec.PingTime, time.Now())
	_, err := p.objects.Update(ctx, answered, metav1.UpdateOptions{})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// keepVerb is what the log calls what a Publisher does.
const keepVerb = "keep the LeaseCandidate"

func (p *Publisher) report(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	unserved := apierrors.IsNotFound(err)
	if unserved && !p.unserved {
		p.cfg.Logger.Info("the API server does not serve LeaseCandidates (coordination.k8s.io/v1beta1): no coordinator sees this candidate by one")
	}
	if p.unserved = unserved; !unserved { // which is how most API servers are, and no trouble
		p.trouble.Tried(keepVerb, err)
	}
}

// remove ends what was published. What is left of a process that cannot do this goes with its Pod.
func (p *Publisher) remove(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	err := p.objects.Delete(ctx, p.cfg.name(), metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) && p.trouble.Problem() == nil {
		p.cfg.Logger.Info("the LeaseCandidate is left behind", "err", err)
	}
}
