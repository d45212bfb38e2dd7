package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// witnessed is the election that the demo disturbs; it judges overlaps in all.
const witnessed = "istio-namespace-controller-election"

const (
	// recheck is how often a wait looks at the processes' accounts, which no watch
	// announces.
	recheck = 10 * time.Millisecond
	// poll is how often the API server is asked for one object.
	poll = 2 * time.Millisecond
)

// demo plays acts on a stage and judges each.
type demo struct {
	*stage
	number int
	// limit is how long the election may take to settle after an act.
	limit  time.Duration
	zombie zombie
	// answering is the Pod that the sample's Gateway answered through last.
	answering string
}

// act is one disturbance.
type act struct {
	title string
	// expect tells the audience what to look for.
	expect string
	// course is how it has to go.
	course course
	// disturb does it and says when.
	disturb func(context.Context) (time.Time, error)
	// revision is whose replica must lead afterwards.
	revision string
	// then, if given, is done once the election has settled.
	then func(context.Context) error
}

// playDemo runs the script. Its error says what was wrong.
func playDemo(ctx context.Context, s *stage) error {
	d := &demo{stage: s, limit: 3 * s.timing.lease}
	s.screen.print(fmt.Sprintf("Leases of %v, to be renewed within %v, each %v; all times by the processes' own logs.\n",
		s.timing.lease, s.timing.renew, s.timing.retry))
	script := d.script()
	if d.coordinated {
		script = d.coordinatedScript()
	}
	for i, a := range script {
		if d.only > 0 && i > 0 {
			if i+1 != d.only {
				continue
			}
			d.number, a.revision = i, d.revisions()[0] // the default has not been flipped
		}
		if err := d.play(ctx, a); err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx) // an interruption is no verdict
			}
			return fmt.Errorf("act %d, %s: %w", d.number, a.title, err)
		}
	}
	return d.verdict(ctx)
}

// play runs one act, waits until the election has settled, and has the leader work.
func (d *demo) play(ctx context.Context, a act) error {
	d.number++
	d.screen.print(fmt.Sprintf("\n%d. %s\n   (%s)\n", d.number, a.title, a.expect))
	former := ""
	if d.number > 1 {
		var err error
		if former, err = d.leader(); err != nil {
			return err
		}
	}
	at, err := a.disturb(ctx)
	if err != nil {
		return err
	}
	settled := d.settle(ctx, a.revision, at)
	if overlap(d.journal.all(), time.Now()) != nil {
		return settled
	}
	// One that has not settled in time may still say by its causes why.
	if err := errors.Join(settled, d.judge(ctx, a.course, former, at)); err != nil {
		return err
	}
	d.tell(at)
	if a.then != nil {
		if err := a.then(ctx); err != nil {
			return err
		}
	}
	return d.prove(ctx)
}

// settle waits until one replica of a revision works, in a span that began after
// the disturbance, and the lock names it. It fails as soon as two work.
func (d *demo) settle(ctx context.Context, revision string, after time.Time) error {
	ctx, cancel := context.WithTimeoutCause(ctx, d.limit, fmt.Errorf("not settled after %v", d.limit))
	defer cancel()
	var clash error
	err := d.watched.await(ctx, recheck, func(v view) (bool, string) {
		spans := d.journal.all()
		if clash = overlap(spans, time.Now()); clash != nil {
			return true, ""
		}
		why := unsettled(v, spans, revision, after)
		return why == "", why
	})
	return errors.Join(clash, err)
}

// judge waits until all that is known of an act fits its course. What does not fit by then is
// wrong: logs and watches are a moment late at most.
func (d *demo) judge(ctx context.Context, c course, former string, at time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, d.timing.lease)
	defer cancel()
	var verdict error
	_ = d.watched.await(ctx, recheck, func(view) (bool, string) {
		leader, err := d.leader()
		if err != nil {
			verdict = err
			return false, ""
		}
		verdict = c.convict(evidence{
			former: former, leader: leader, said: d.journal.since(at, witnessed), steps: d.watched.witnessed.since(at),
			lease: d.timing.lease, retry: d.timing.retry,
		})
		return verdict == nil, ""
	})
	return verdict
}

// unsettled says what is missing; "" when a replica of a revision leads in a term that
// began after an instant.
func unsettled(v view, spans []span, revision string, after time.Time) string {
	now := working(spans, witnessed)
	if len(now) != 1 {
		return fmt.Sprintf("%d replicas work", len(now))
	}
	l, there := v.locks[witnessed]
	switch {
	case !there || l.unreadable:
		return "there is no lock that can be read"
	case l.holder != now[0].pod:
		return fmt.Sprintf("%s works while the lock names %q", now[0].pod, l.holder)
	case l.key != revision:
		return fmt.Sprintf("%s of %s leads, not one of %s", l.holder, l.key, revision)
	case !now[0].from.After(after):
		return fmt.Sprintf("%s has not begun a new term", now[0].pod)
	}
	return ""
}

// overlap is an error when two run functions of one election were ever alive at once.
func overlap(spans []span, now time.Time) error {
	var errs []error
	for _, c := range clashes(spans, now) {
		errs = append(errs, fmt.Errorf("two at once: %s and %s worked on %s together for %s",
			c.first.pod, c.second.pod, c.first.election, round(c.length)))
	}
	return errors.Join(errs...)
}

// tell says what the processes reported since a disturbance.
func (d *demo) tell(at time.Time) {
	spans := d.journal.all()
	for _, s := range spans {
		if s.election == witnessed && s.from.Before(at) && s.to.After(at) {
			d.line("%s had stopped after %s", s.pod, round(s.to.Sub(at)))
		}
	}
	for _, s := range spans {
		if s.election == witnessed && !s.from.Before(at) {
			d.line("%s worked after %s (%s)", s.pod, round(s.from.Sub(at)), evidence{leader: s.pod, said: d.journal.since(at, witnessed)}.claimed())
		}
	}
	d.line("nobody worked for %s, never two at once", round(idle(spans, witnessed, at, time.Now())))
}

// proofWrites is the least that a leader writes in prove: a bundle, and the same again.
const proofWrites = 2

// prove has the leader do some work: the bundle into a new namespace, and back
// into it when it was deleted there.
func (d *demo) prove(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, d.limit, fmt.Errorf("not in place after %v", d.limit))
	defer cancel()
	leader, err := d.leader()
	if err != nil {
		return err
	}
	before, _, err := d.admitted(ctx, leader)
	if err != nil {
		return err
	}
	fresh := fmt.Sprintf("demo-%d", d.number)
	created := time.Now()
	if err := d.objects.make(ctx, namespaceObject(fresh)); err != nil {
		return err
	}
	if err := d.awaitBundles(ctx, fresh); err != nil {
		return err
	}
	filled := time.Now()
	if err := d.proveIngress(ctx, fresh); err != nil {
		return err
	}
	if err := d.kube.CoreV1().ConfigMaps(fresh).Delete(ctx, rootCertName, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("deleting %s/%s: %w", fresh, rootCertName, err)
	}
	deleted := time.Now()
	if err := d.awaitRestored(ctx, fresh); err != nil {
		return err
	}
	restored := time.Now()
	if err := d.awaitBundles(ctx, fresh); err != nil {
		return err
	}
	after, _, err := d.admitted(ctx, leader)
	if err != nil {
		return err
	}
	if after-before < proofWrites {
		return fmt.Errorf("%s has written %d times at least, and its gate has let %v writes through: the others have gone past it",
			leader, proofWrites, after-before)
	}
	if err := errors.Join(d.consistent(ctx), d.announced(ctx)); err != nil {
		return err
	}
	v, _ := d.watched.now()
	in, of, _ := v.spread(d.bundle, d.excluded)
	d.line("%s is in place in %d of %d namespaces; in a new one after %s, deleted there and back after %s",
		rootCertName, in, of, round(filled.Sub(created)), round(restored.Sub(deleted)))
	return d.awaitSample(ctx, v.defaultRevision)
}

// awaitBundles waits until the bundle is wherever it should be, a fresh namespace
// included.
func (d *demo) awaitBundles(ctx context.Context, fresh string) error {
	return d.watched.await(ctx, d.limit, func(v view) (bool, string) {
		_, _, missing := v.spread(d.bundle, d.excluded)
		if !v.namespaces[fresh] {
			missing = append(missing, fresh)
		}
		return len(missing) == 0, fmt.Sprintf("%s is missing or wrong in %s", rootCertName, strings.Join(missing, ", "))
	})
}

// awaitRestored asks the API server itself: a watch may still show the deleted one.
func (d *demo) awaitRestored(ctx context.Context, namespace string) error {
	for {
		got, err := d.kube.CoreV1().ConfigMaps(namespace).Get(ctx, rootCertName, metav1.GetOptions{})
		if err == nil && got.Data[rootCertKey] == d.bundle {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s did not come back in %s: %w", rootCertName, namespace, context.Cause(ctx))
		case <-time.After(poll):
		}
	}
}

// verdict looks once more, after a calm of two retry periods in which nothing may
// have changed.
func (d *demo) verdict(ctx context.Context) error {
	before := d.journal.all()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(2 * d.timing.retry):
	}
	spans := d.journal.all()
	if err := overlap(spans, time.Now()); err != nil {
		return err
	}
	if len(spans) != len(before) || len(working(spans, witnessed)) != 1 {
		return fmt.Errorf("the election did not stay settled: %d replicas work on %s", len(working(spans, witnessed)), witnessed)
	}
	if err := d.quiet(ctx); err != nil {
		return err
	}
	d.screen.print(fmt.Sprintf("\nAll %d acts went as they should: %d spans of work, never two at once.\n", d.number, len(spans)))
	return nil
}

func (d *demo) line(format string, args ...any) {
	d.screen.print("   " + fmt.Sprintf(format, args...) + "\n")
}

// round writes a duration as people time things.
func round(d time.Duration) string {
	if d < 10*time.Millisecond {
		return d.Round(100 * time.Microsecond).String()
	}
	return d.Round(time.Millisecond).String()
}
