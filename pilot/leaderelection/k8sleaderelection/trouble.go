package k8sleaderelection

import (
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// What can be in trouble. Calls of one kind can fail while those of another succeed, so
// each kind is a topic of its own; a server that cannot be reached is one for all.
const (
	topicReach   = "reach"
	topicRead    = "read"
	topicWrite   = "write"
	topicRequest = "ask"
	topicWatch   = "watch"
	topicFitness = "fitness"
	topicRecord  = "record"
	// Who chooses: a coordinator, or the candidates.
	topicCoordinator = "coordinator"
	topicStrategy    = "strategy"
)

// quietFor bounds the lines about one topic: after its end, or after a line about it, one
// that comes back at once is not reported until it has stayed for as long.
const quietFor = time.Minute

// troubles remembers what has been reported: each cause once in a spell of trouble.
type troubles struct {
	now func() core.Instant

	mu     sync.Mutex // calls report from the loop, watches from their own goroutine
	topics map[string]*spell
}

// spell is one time in which a topic was in trouble, or its quiet after that.
type spell struct {
	causes []string // that were reported; none: nothing was, or it is over
	said   core.Instant
	ever   bool // said is set
}

// maxCauses bounds the lines of a spell in which the cause keeps changing.
const maxCauses = 8

// begin notes a cause and reports whether it is to be logged.
func (t *troubles) begin(topic, cause string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.topics == nil {
		t.topics = map[string]*spell{}
	}
	s := t.topics[topic]
	if s == nil {
		s = &spell{}
		t.topics[topic] = s
	}
	now := t.now()
	if slices.Contains(s.causes, cause) || len(s.causes) == maxCauses {
		return false
	}
	if s.ever && len(s.causes) == 0 && topic != topicRecord && s.said.Until(now) < quietFor {
		return false
	}
	s.causes, s.said, s.ever = append(s.causes, cause), now, true
	return true
}

// end reports whether there was a trouble that had been logged.
func (t *troubles) end(topic string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.topics[topic]
	if s == nil || len(s.causes) == 0 {
		return false
	}
	s.causes, s.said = nil, t.now()
	return true
}

// warnOnce logs a trouble, unless it is known.
func (r *reporter) warnOnce(topic, cause, message string, args ...any) (news bool) {
	if !r.troubles.begin(topic, cause) {
		return false
	}
	r.log.Warn(message, args...)
	return true
}

// resolved logs that a topic's trouble has ended, if there was one.
func (r *reporter) resolved(topic, message string) {
	if r.troubles.end(topic) {
		r.log.Info(message)
	}
}

// callFailed reports a call that brought nothing.
func (r *reporter) callFailed(c call) {
	if !fromServer(c.err) {
		r.warnOnce(topicReach, string(apierrors.ReasonForError(c.err)), "request for the lock failed; retrying", "call", c.op.String(), "err", c.err)
		return
	}
	cause := causeOf(c.err)
	r.warnOnce(topicOf(c.op), cause.name, cause.message, "call", c.op.String(), "cause", cause.name, "err", c.err)
}

// callSucceeded ends the troubles of its kind.
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

// cause says why an API server does not do what it was asked for.
type cause struct{ name, message string }

// causeOf tells causes apart by the text of an API server's error. Its reason alone would not do:
// a policy, a quota and a missing permission are all Forbidden.
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
	case strings.Contains(text, "failed calling webhook"):
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
