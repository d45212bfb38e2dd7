package members

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	coordinationv1ac "k8s.io/client-go/applyconfigurations/coordination/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const (
	// Every is the time between two writes of a Publisher while nothing changes.
	Every = 30 * time.Second
	// Duration is the leaseDurationSeconds of a member's Lease, as a time: for so long after
	// its renewTime the member counts as present (Member.Late), so that two writes in a row
	// may be lost.
	Duration = 3 * Every
	// stateInterval is how often a Publisher calls Config.State, which costs no request.
	stateInterval = time.Second
	// minInterval is the least time between two writes, however often something changes.
	minInterval = 5 * time.Second
	// timeout bounds one request.
	timeout = 5 * time.Second
	// StopTimeout bounds how long a Publisher takes to end.
	StopTimeout = 2 * time.Second
	manager     = "incumbent-member"
)

// Config of a Publisher.
type Config struct {
	Client kubernetes.Interface
	// Namespace is that of the locks. Identity is the process's name in elections.
	Namespace, Identity string
	// PodUID is that of the Pod of the namespace whose name is Identity, to which the Lease is to belong; "" where the
	// process runs in none. With another Pod's, the garbage collector deletes the Lease.
	PodUID types.UID
	// State returns what to publish now. It is called once a second, and must not block.
	State func() State
	// Logger says when writing begins to fail and works again; nil means slog's default.
	Logger *slog.Logger
}

// Publisher keeps a process's member Lease.
type Publisher struct {
	cfg     Config
	name    string
	failing bool
}

// New checks the configuration and starts nothing.
func New(cfg Config) (*Publisher, error) {
	var errs []error
	if cfg.Client == nil || cfg.State == nil {
		errs = append(errs, errors.New("give a Client and a State"))
	}
	for _, problem := range validation.IsDNS1123Label(cfg.Namespace) {
		errs = append(errs, fmt.Errorf("namespace %q: %s", cfg.Namespace, problem))
	}
	if cfg.Identity == "" {
		errs = append(errs, errors.New("the identity is empty: give the process's name in elections"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("member: %w", err)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	return &Publisher{cfg: cfg, name: LeaseName(cfg.Identity)}, nil
}

// Run publishes until ctx ends, and then deletes the Lease. A server that refuses it hurts
// nothing: it is tried again after Every.
//
// What is written is applied as a whole, whatever there is: so there is nothing to read, and nobody to
// contend with.
func (p *Publisher) Run(ctx context.Context) error {
	ticker := time.NewTicker(stateInterval)
	defer ticker.Stop()
	var written State
	var last time.Time
	for first := true; ctx.Err() == nil; first = false {
		now := time.Now()
		state := p.cfg.State()
		changed := !same(written, state) && !p.failing
		if since := now.Sub(last); first || since >= Every || changed && since >= minInterval {
			// After a refusal the next write comes when it is due, whatever has changed until then.
			p.report(ctx, p.write(ctx, state, now))
			written, last = state, now
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
	p.remove(ctx)
	return nil
}

func same(a, b State) bool {
	return a.Revision == b.Revision && a.Cluster == b.Cluster && a.Version == b.Version && a.EmulationVersion == b.EmulationVersion && slices.Equal(a.Elections, b.Elections)
}

func (p *Publisher) write(ctx context.Context, state State, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	text, err := json.Marshal(state)
	if err != nil {
		return err
	}
	lease := coordinationv1ac.Lease(p.name, p.cfg.Namespace).
		WithLabels(map[string]string{Label: LabelValue}).
		WithAnnotations(map[string]string{StateAnnotation: string(text)}).
		WithSpec(coordinationv1ac.LeaseSpec().WithHolderIdentity(p.cfg.Identity).
			WithLeaseDurationSeconds(int32(Duration / time.Second)).WithRenewTime(metav1.NewMicroTime(now)))
	if p.cfg.PodUID != "" {
		lease.WithOwnerReferences(metav1ac.OwnerReference().WithAPIVersion("v1").WithKind("Pod").WithName(p.cfg.Identity).WithUID(p.cfg.PodUID))
	}
	_, err = p.cfg.Client.CoordinationV1().Leases(p.cfg.Namespace).Apply(ctx, lease, metav1.ApplyOptions{FieldManager: manager, Force: true})
	return err
}

// report says once that the Lease cannot be written, and once that it can be again.
func (p *Publisher) report(ctx context.Context, err error) {
	log := p.cfg.Logger.With("lease", p.cfg.Namespace+"/"+p.name)
	switch {
	case err != nil && !p.failing && ctx.Err() == nil:
		log.Warn("the member Lease cannot be written: others do not see that this process takes part in elections", "err", err)
	case err == nil && p.failing:
		log.Info("the member Lease is written again")
	}
	p.failing = err != nil
}

// remove ends what was published. What is left of a process that cannot do this goes with its Pod.
func (p *Publisher) remove(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), StopTimeout)
	defer cancel()
	err := p.cfg.Client.CoordinationV1().Leases(p.cfg.Namespace).Delete(ctx, p.name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) && !p.failing {
		p.cfg.Logger.Info("the member Lease is left behind", "lease", p.cfg.Namespace+"/"+p.name, "err", err)
	}
}
