package leaderelection

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"incumbent.dev/incumbent/internal/apirequest"
)

// LeaderLabel is the label of the Pod that leads an election. Its value is the name of the lock. See Config.LabelPod.
const LeaderLabel = "incumbent.dev/leader"

// validatePodLabel returns an error if the Pod cannot have the label.
func (c Config) validatePodLabel() error {
	if c.LabelPod == (types.NamespacedName{}) {
		return nil
	}
	var errs []error
	if c.LabelPod.Namespace == "" || c.LabelPod.Name == "" {
		errs = append(errs, fmt.Errorf("the LabelPod %q: set the namespace and the name of the Pod of this process", c.LabelPod))
	}
	for _, problem := range validation.IsValidLabelValue(c.lockName()) {
		errs = append(errs, fmt.Errorf("LabelPod is set, and the label %s cannot have the value %q: %s", LeaderLabel, c.lockName(), problem))
	}
	return errors.Join(errs...)
}

// podLabel sets the label of the own Pod in each term, and removes it afterwards. One goroutine sends its requests.
type podLabel struct {
	*LeaderElection
	changes chan labelChange
}

// labelChange is a request to set or to remove the label.
type labelChange struct {
	ctx  context.Context // of the first attempt. The label is set only in this context
	set  bool
	done chan struct{} // closed after the first attempt
}

// start starts the goroutine. stop ends it.
func (p *podLabel) start(ctx context.Context) (stop func()) {
	if p == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.serve(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}

// serve makes the changes, and repeats failed changes. The first change removes a label that a killed process left.
func (p *podLabel) serve(ctx context.Context) {
	ticker := time.NewTicker(p.cfg.RetryPeriod)
	defer ticker.Stop()
	last := labelChange{ctx: ctx}
	err := p.patch(ctx, false)
	var reported apirequest.Reported[string]
	for {
		if reported.Failed("label", err) {
			p.log.Warn("failed to label the Pod; retrying", "election", p.cfg.lockName(), "pod", p.cfg.LabelPod, "set", last.set, "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case change := <-p.changes:
			uncertain := last.set && err != nil // the label may still be set by the request
			last = change
			if err = p.patch(change.ctx, change.set); err == nil && uncertain {
				err = errUncertain
			}
			close(change.done)
			last.ctx = ctx
			if change.set {
				last.ctx = change.ctx
			}
		case <-ticker.C:
			if err != nil {
				err = p.patch(last.ctx, last.set)
			}
		}
	}
}

var errUncertain = errors.New("an earlier request that set the label may still be executed")

// run is a run function.
func (p *podLabel) run(ctx context.Context) error {
	p.change(ctx, true)
	<-ctx.Done()
	// The drain waits for this attempt. It ends before other run functions would exceed the limit.
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.cfg.RetryPeriod/4)
	defer cancel()
	p.change(limited, false)
	return nil
}

// change waits for the first attempt of a change.
func (p *podLabel) change(ctx context.Context, set bool) {
	c := labelChange{ctx: ctx, set: set, done: make(chan struct{})}
	select {
	case p.changes <- c:
		<-c.done
	case <-ctx.Done():
	}
}

// patch sets the label through the gate, or removes it. After a lost term the gate is closed, and only the own label of the
// own Pod is removed. A patch has no guard, so it is sent again only after its limit. A drain does not wait for a request whose
// context has ended: it may still be executed, so it counts as uncertain.
func (p *podLabel) patch(ctx context.Context, set bool) error {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.RenewDeadline/2)
	defer cancel()
	kind := types.JSONPatchType
	const path = "/metadata/labels/incumbent.dev~1leader"
	var patch any = []map[string]string{{"op": "test", "path": path, "value": p.cfg.lockName()}, {"op": "remove", "path": path}}
	if set {
		kind = types.MergePatchType
		patch = map[string]any{"metadata": map[string]any{"labels": map[string]string{LeaderLabel: p.cfg.lockName()}}}
	}
	body, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	write := func(ctx context.Context) error {
		pod := p.cfg.LabelPod
		_, err := p.client.Kube().CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, kind, body, metav1.PatchOptions{})
		return err
	}
	if set && !p.cfg.Disabled {
		return p.gate.Do(ctx, write)
	}
	err = write(ctx)
	if !set && (apierrors.IsInvalid(err) || apierrors.IsNotFound(err)) {
		return nil // the Pod does not have the label
	}
	return err
}
