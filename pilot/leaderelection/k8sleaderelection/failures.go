package k8sleaderelection

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// Topics of failures. Each kind of call has its own topic, because one kind can fail while another succeeds. If the API
// server cannot be reached, there is one topic for all.
const (
	topicReach    = "reach"
	topicRead     = "read"
	topicWrite    = "write"
	topicRequest  = "request"
	topicWatch    = "watch"
	topicFitness  = "fitness"
	topicLatency  = "latency"
	topicRecord   = "record"
	topicDeletion = "deletion"

	topicCoordinator = "coordinator"
	topicStrategy    = "strategy"
)

// quietFor limits the log lines of a topic whose failures end and return quickly. A failure that returns within
// quietFor is logged only if it lasts longer.
const quietFor = time.Minute

// failures remembers which failures were logged.
type failures struct {
	now func() core.Instant

	mu     sync.Mutex // for the loop and the fitness check
	topics map[string]*failure
}

// failure is the state of a topic.
type failure struct {
	causes []string // logged causes; empty if there is no failure
	logged core.Instant
	ever   bool // logged is set
}

// maxCauses limits the log lines of a failure with changing causes.
const maxCauses = 8

// begin adds a cause and reports whether to log it.
func (t *failures) begin(topic, cause string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.topics == nil {
		t.topics = map[string]*failure{}
	}
	s := t.topics[topic]
	if s == nil {
		s = &failure{}
		t.topics[topic] = s
	}
	now := t.now()
	if slices.Contains(s.causes, cause) || len(s.causes) == maxCauses {
		return false
	}
	if s.ever && len(s.causes) == 0 && topic != topicRecord && s.logged.Until(now) < quietFor {
		return false
	}
	s.causes = append(s.causes, cause)
	s.logged = now
	s.ever = true
	return true
}

// end clears a topic and reports whether its failure was logged.
func (t *failures) end(topic string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.topics[topic]
	if s == nil || len(s.causes) == 0 {
		return false
	}
	s.causes = nil
	s.logged = t.now()
	return true
}

// warnOnce logs a failure and returns true, unless its cause was logged before.
func (r *reporter) warnOnce(topic, cause, message string, args ...any) (logged bool) {
	if !r.failures.begin(topic, cause) {
		return false
	}
	r.log.Warn(message, args...)
	return true
}

// resolved logs the end of a failure, if the failure was logged.
func (r *reporter) resolved(topic, message string) {
	if r.failures.end(topic) {
		r.log.Info(message)
	}
}

// latency reports that the API server answers too late. From half of RenewDeadline on, the next renewal may be answered after the
// validity of a leader.
func (r *reporter) latency(c call) {
	limit := r.core.Validity / 2
	switch {
	case c.result == core.Unknown:
	case c.took < limit:
		r.resolved(topicLatency, "API server answers in time again")
	default:
		r.warnOnce(topicLatency, "", "API server answers too late; no term begins, and a leader may lose its term", "call", c.op.String(), "latency", c.took.Round(time.Millisecond), "limit", limit)
	}
}

// callFailed reports a failed call.
func (r *reporter) callFailed(c call) {
	if errors.Is(c.err, context.Canceled) {
		return // the elector does not need the answer any more
	}
	if !fromServer(c.err) {
		r.warnOnce(topicReach, string(apierrors.ReasonForError(c.err)), "request for the lock failed; retrying", "call", c.op.String(), "err", c.err)
		return
	}
	cause := causeOf(c.err)
	var barred barredError
	if r.warnOnce(topicOf(c.op), cause.name, cause.message, "call", c.op.String(), "cause", cause.name, "err", c.err) && errors.As(c.err, &barred) {
		r.warn("requests no handover, because the API server would reject the acquisition: %s", brief(barred.err))
	}
}

// callSucceeded ends the failures of that kind of call.
func (r *reporter) callSucceeded(c call) {
	r.resolved(topicReach, "requests for the lock succeed again")
	switch topic := topicOf(c.op); topic {
	case topicRead:
		r.resolved(topic, "reading the lock succeeds again")
	case topicWrite:
		r.resolved(topic, "writing the lock succeeds again")
	default:
		r.resolved(topic, "writing handover requests succeeds again")
	}
}

func topicOf(op core.Op) string {
	switch op {
	case core.Read:
		return topicRead
	case core.SendRequest:
		return topicRequest
	case core.NoOp, core.Acquire, core.Renew, core.Release, core.HandOver:
	}
	return topicWrite
}

// webhookDown is in the response to a write if a webhook does not respond.
const webhookDown = "failed calling webhook"

// cause is why the API server rejected a call.
type cause struct{ name, message string }

// causeOf returns the cause of an error of the API server, by its text. The reason is not enough: for a policy, a
// quota and a missing permission it is Forbidden.
func causeOf(err error) cause {
	text := err.Error()
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return cause{"namespace-terminating", "namespace of the lock is being deleted; retrying"}
	case strings.Contains(text, "exceeded quota"):
		return cause{"quota", "quota does not allow the lock; retrying"}
	case strings.Contains(text, "ValidatingAdmissionPolicy"):
		return cause{"admission-policy", "admission policy denies the change of the lock; retrying"}
	case strings.Contains(text, "admission webhook"):
		return cause{"admission-webhook", "admission webhook denies the change of the lock; retrying"}
	case strings.Contains(text, webhookDown):
		return cause{"admission-webhook-down", "admission webhook for the lock does not respond; retrying"}
	case strings.Contains(text, "database space exceeded"):
		return cause{"store-full", "storage of the API server is full; retrying"}
	case apierrors.IsTooManyRequests(err):
		return cause{"too-many-requests", "API server has too many requests; retrying after the requested delay"}
	case apierrors.IsForbidden(err):
		return cause{"forbidden", "permission for the lock is missing; retrying"}
	case apierrors.IsUnauthorized(err):
		return cause{"unauthorized", "API server rejected the credentials; retrying"}
	case apierrors.IsNotFound(err):
		return cause{"namespace-missing", "namespace of the lock does not exist; retrying"}
	}
	return cause{"error " + string(apierrors.ReasonForError(err)), "request for the lock failed; retrying"}
}
