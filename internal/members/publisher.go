package members

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"incumbent.dev/incumbent/internal/apirequest"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	coordinationv1ac "k8s.io/client-go/applyconfigurations/coordination/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const (
	// every is the time between two writes without changes.
	every = 30 * time.Second
	// Duration is the lease duration of a member Lease. Two writes in a row may be lost.
	Duration = 3 * every
	// stateInterval is the time between two calls of Config.State.
	stateInterval = time.Second
	// minInterval is the minimum time between two writes.
	minInterval = 5 * time.Second
	// timeout limits one request.
	timeout = 5 * time.Second
	// StopTimeout limits the deletion of the Lease at the end.
	StopTimeout = 2 * time.Second
	manager     = "incumbent-member"
	verb        = "write the member Lease"
)

// Config configures a Publisher.
type Config struct {
	Client kubernetes.Interface
	// Namespace is the namespace of the locks. Identity is the identity of the process in elections.
	Namespace, Identity string
	// PodUID is the UID of the Pod named Identity, which becomes the owner of the Lease. It is empty outside a Pod. With a wrong UID
	// the garbage collector deletes the Lease.
	PodUID types.UID
	// State returns the state to publish. It is called once a second and must not block.
	State func() State
	// Logger logs when writes begin to fail and when they succeed again. The default is slog.Default.
	Logger *slog.Logger
}

// Publisher maintains the member Lease of a process.
type Publisher struct {
	cfg     Config
	name    string
	trouble *apirequest.Trouble
}

// New validates the configuration and starts nothing.
func New(cfg Config) (*Publisher, error) {
	var errs []error
	if cfg.Client == nil || cfg.State == nil {
		errs = append(errs, errors.New("Client and State are required"))
	}
	for _, problem := range validation.IsDNS1123Label(cfg.Namespace) {
		errs = append(errs, fmt.Errorf("namespace %q: %s", cfg.Namespace, problem))
	}
	if cfg.Identity == "" {
		errs = append(errs, errors.New("Identity is required"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("member: %w", err)
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	p := &Publisher{cfg: cfg, name: LeaseName(cfg.Identity)}
	p.cfg.Logger = cfg.Logger.With("lease", cfg.Namespace+"/"+p.name)
	p.trouble = apirequest.NewTrouble(p.cfg.Logger, map[string]string{verb: "others do not see this process as a candidate"})
	return p, nil
}

// Run publishes until ctx ends, and then deletes the Lease. After a failure it retries after every. It uses server-side apply, so it
// reads nothing and has no conflicts.
func (p *Publisher) Run(ctx context.Context) error {
	ticker := time.NewTicker(stateInterval)
	defer ticker.Stop()
	var written string
	var last time.Time
	for first := true; ctx.Err() == nil; first = false {
		now := time.Now()
		state, err := json.Marshal(p.cfg.State())
		if err != nil {
			return err
		}
		changed := written != string(state) && p.trouble.Problem() == nil
		if since := now.Sub(last); first || since >= every || changed && since >= minInterval {
			// After a failure, changes are not written before every has passed.
			if err := p.write(ctx, string(state), now); ctx.Err() == nil {
				p.trouble.Tried(verb, err)
			}
			written = string(state)
			last = now
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
	p.remove(ctx)
	return nil
}

func (p *Publisher) write(ctx context.Context, state string, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	lease := coordinationv1ac.Lease(p.name, p.cfg.Namespace).
		WithLabels(map[string]string{Label: LabelValue}).
		WithAnnotations(map[string]string{StateAnnotation: state}).
		WithSpec(coordinationv1ac.LeaseSpec().WithHolderIdentity(p.cfg.Identity).
			WithLeaseDurationSeconds(int32(Duration / time.Second)).WithRenewTime(metav1.NewMicroTime(now)))
	if p.cfg.PodUID != "" {
		lease.WithOwnerReferences(metav1ac.OwnerReference().WithAPIVersion("v1").WithKind("Pod").WithName(p.cfg.Identity).WithUID(p.cfg.PodUID))
	}
	_, err := p.cfg.Client.CoordinationV1().Leases(p.cfg.Namespace).Apply(ctx, lease, metav1.ApplyOptions{FieldManager: manager, Force: true})
	return err
}

// remove deletes the Lease. If that fails, the Lease is deleted with the Pod.
func (p *Publisher) remove(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), StopTimeout)
	defer cancel()
	err := p.cfg.Client.CoordinationV1().Leases(p.cfg.Namespace).Delete(ctx, p.name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) && p.trouble.Problem() == nil {
		p.cfg.Logger.Info("failed to delete the member Lease", "err", err)
	}
}
