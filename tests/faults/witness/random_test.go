package witness

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/internal/testutil/lives"
	"incumbent.dev/incumbent/pkg/revisions"
	"incumbent.dev/incumbent/tests/cluster"
)

// The moments at which the test kills a candidate, at random times within each of them.
const (
	acquiring moment = "start or acquire"
	renewing  moment = "lead and renew"
	draining  moment = "drain after SIGTERM"
	deleted   moment = "lead, lock deleted"
	settling  moment = "settle after that"
	joining   moment = "hand over: a better candidate joins"
	flipping  moment = "hand over: the default changes"
)

var moments = []moment{acquiring, renewing, draining, deleted, joining, flipping}

// rampage kills candidates of an election.
type rampage struct {
	*stage
	*history
	env      []string
	renewal  time.Duration
	sidecars bool
	all      []*contender
}

// contender is a candidate of a rampage, and when the test killed it.
type contender struct {
	*process
	revision string
	end      time.Time
	moment   moment
}

// TestDeath_RandomMoments kills candidates at random moments of their terms. KILLS is their number per witness, 10 without it. LEASE is the lease duration. A busy machine must run each leader within the half of it that follows the
// validity.
func TestDeath_RandomMoments(t *testing.T) {
	kills, err := strconv.Atoi(os.Getenv("KILLS"))
	if err != nil {
		kills = 10
	}
	lease, err := time.ParseDuration(os.Getenv("LEASE"))
	if err != nil {
		lease = 10 * time.Second
	}
	for name, sidecars := range map[string]bool{"parent": false, "sidecar": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, "leases")
			s.clusterRules = []rbacv1.PolicyRule{{
				APIGroups: []string{"admissionregistration.k8s.io"}, Resources: []string{"mutatingwebhookconfigurations"}, Verbs: []string{"get", "list", "watch"},
			}}
			r := &rampage{
				stage: s, history: follow(s), renewal: lease / 4, sidecars: sidecars,
				env: []string{"FENCED=yes", "DRAIN=300ms", "LEASE=" + lease.String()},
			}
			r.run(kills)
			r.judge()
		})
	}
}

// run kills one candidate per round. One candidate is left of the previous round, and another one joins.
func (r *rampage) run(kills int) {
	revision := "a"
	r.flip(revision)
	left := r.join(revision)
	last := moment("")
	for range kills {
		m := moments[rand.IntN(len(moments))]
		if last == deleted {
			m = settling
		}
		if m == joining || m == flipping {
			revision = map[string]string{"a": "b", "b": "a"}[left.revision]
		}
		victim, survivor := r.round(m, left, revision)
		r.kill(victim, m)
		if m == deleted {
			err := r.admin.CoordinationV1().Leases(r.namespace).Delete(r.Context(), election, metav1.DeleteOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				r.Fatal(err)
			}
		}
		victim.Exit(r.TB)
		left, revision, last = survivor, survivor.revision, m
	}
}

// round waits for a moment. It returns the candidate to kill, and the other one.
func (r *rampage) round(m moment, left *contender, revision string) (victim, survivor *contender) {
	r.Helper()
	switch m {
	case joining:
		r.leader(left)
		r.flip(revision)
	case settling: // the candidate that saw the deletion holds the lock, but the killed leader might still act
		harness.Until(r.TB, "a candidate holds the lock", func() bool { return r.latest().holder != "" })
	}
	next := r.join(revision)
	victim, survivor = left, next
	most := 200 * time.Millisecond
	switch m {
	case acquiring:
		most = 2 * most
	case renewing:
		victim, survivor = r.leader(left, next)
		most = r.renewal * 5 / 4
	case draining:
		victim, survivor = r.leader(left, next)
		r.kills(victim.name, m) // the witness releases the lock if the release of the candidate fails
		victim.Signal(r.TB, syscall.SIGTERM)
	case deleted:
		victim, survivor = r.leader(left, next)
		survivor.knows()
	case joining:
		harness.Until(r.TB, "a candidate requests the lock, or it leads", func() bool { return r.latest().requested || next.leads() })
	case flipping:
		r.leader(left, next)
		next.knows()
		r.flip(revision)
	}
	if (m == joining || m == flipping) && rand.IntN(2) == 0 {
		victim, survivor = survivor, victim
	}
	wait := time.NewTimer(rand.N(most))
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-r.Context().Done():
	}
	return victim, survivor
}

// knows waits until the candidate has seen the lock.
func (c *contender) knows() {
	c.s.Helper()
	harness.Until(c.s.TB, c.name+" is ready", func() bool { return strings.Contains(c.Out.String(), "ready") })
}

// join starts a candidate.
func (r *rampage) join(revision string) *contender {
	r.Helper()
	n := len(r.all)
	c := &contender{process: r.pod(fmt.Sprint("c", n)), revision: revision}
	env := append([]string{"REVISION=" + revision}, r.env...)
	if r.sidecars {
		env = append(env, c.serve())
	}
	c.Process = c.run(env...)
	r.all = append(r.all, c)
	if n >= 4 && r.sidecars && !r.all[n-4].end.IsZero() {
		r.all[n-4].sidecar.Kill() // it has had three rounds for the release
	}
	return c
}

// leader waits until one of two candidates leads, and returns it first.
func (r *rampage) leader(candidates ...*contender) (leader, other *contender) {
	r.Helper()
	harness.Until(r.TB, "a candidate leads", func() bool {
		lock := r.latest()
		for i, c := range candidates {
			if lock.marked && c.name == lock.holder && c.leads() {
				leader, other = c, candidates[len(candidates)-1-i]
			}
		}
		return leader != nil
	})
	return leader, other
}

// kill ends a candidate. A parent that has not started its child is killed itself.
func (r *rampage) kill(c *contender, m moment) {
	c.moment = m
	r.kills(c.name, m)
	c.end = time.Now()
	if strings.Contains(c.Out.String(), "candidate ") {
		_ = syscall.Kill(c.pid("candidate"), syscall.SIGKILL) // it may have ended
	} else {
		c.Kill()
	}
}

// flip changes the default revision.
func (r *rampage) flip(revision string) {
	r.Helper()
	hooks := r.admin.AdmissionregistrationV1().MutatingWebhookConfigurations()
	hook := &admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: revisions.DefaultTagWebhook(r.namespace)}}
	err := cluster.Edit(r.Context(), hooks, hook, func(hook *admissionv1.MutatingWebhookConfiguration) {
		hook.Labels = map[string]string{"istio.io/rev": revision, "istio.io/tag": "default"}
	})
	if err != nil {
		r.Fatal(err)
	}
}

// times returns the times that a candidate printed after a word.
func (p *process) times(word string) (all []time.Time) {
	for line := range strings.Lines(p.Out.String()) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), word+" "); ok {
			if nanos, err := strconv.ParseInt(text, 10, 64); err == nil {
				all = append(all, time.Unix(0, nanos))
			}
		}
	}
	return all
}

// Lives returns the runs of the run function. The last run of a killed candidate ends with the kill.
func (c *contender) Lives() (name string, spans lives.Spans) {
	ends := c.times("stopped")
	for i, begin := range c.times("leading") {
		span := lives.Span{From: begin, To: c.end}
		if i < len(ends) {
			span.To = ends[i]
		}
		spans = append(spans, span)
	}
	return fmt.Sprintf("%s (killed: %s)", c.name, c.moment), spans
}

// released is in the message of a witness that has released a lock.
const released = "released the lock of a process that has ended"

// logged returns the number of releases in the logs of the witnesses.
func (r *rampage) logged() (n int) {
	for _, c := range r.all {
		witness := c.Process
		if c.sidecar != nil {
			witness = c.sidecar
		}
		n += strings.Count(witness.Errors.String(), released)
	}
	return n
}

// written returns the number of releases that changed the lock.
func (r *rampage) written() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.writes
}

// judge compares all terms. A witness logs its release after the API server has acknowledged the write, so the watch reports each
// logged release. A release without a reply is not logged.
func (r *rampage) judge() {
	r.Helper()
	logged := r.logged()
	harness.Until(r.TB, "the watch reports each release that a witness has logged", func() bool { return r.written() >= logged })
	lives.Apart(r.TB, r.all...)
}
