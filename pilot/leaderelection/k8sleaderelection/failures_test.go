package k8sleaderelection

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// Each cause is logged once, and at most eight causes. After the end of a failure, its topic is quiet for a minute.
func TestFailuresBegin(t *testing.T) {
	now := core.Instant(time.Hour)
	ts := failures{now: func() core.Instant { return now }}
	begins := func(topic, cause string, want bool) {
		t.Helper()
		if got := ts.begin(topic, cause); got != want {
			t.Errorf("%s, %s: %v", topic, cause, got)
		}
	}
	for i := range maxCauses {
		begins(topicRead, fmt.Sprint(i), true)
		begins(topicRead, fmt.Sprint(i), false)
	}
	begins(topicRead, "one more", false)
	if !ts.end(topicRead) || ts.end(topicRead) || ts.end(topicRequest) {
		t.Error("the end of a failure is reported once")
	}
	now = now.After(quietFor - 1)
	begins(topicRead, "0", false)
	now = now.After(1)
	begins(topicRead, "0", true)
	begins(topicRecord, "0", true)
	ts.end(topicRecord)
	begins(topicRecord, "0", true) // topicRecord is never quiet
}

func TestCauseOf(t *testing.T) {
	locks := schema.GroupResource{Resource: "locks"}
	message := func(text string) error {
		err := apierrors.NewForbidden(locks, "x", nil)
		err.ErrStatus.Message = text
		return err
	}
	terminating := apierrors.NewForbidden(locks, "x", nil)
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for name, err := range map[string]error{
		"namespace-terminating":  terminating,
		"quota":                  message("exceeded quota: few"),
		"admission-policy":       message("ValidatingAdmissionPolicy 'no' denied request"),
		"admission-webhook":      message("admission webhook denied the request"),
		"admission-webhook-down": message("failed calling webhook: no endpoints"),
		"store-full":             apierrors.NewInternalError(errors.New("mvcc: database space exceeded")),
		"too-many-requests":      apierrors.NewTooManyRequests("later", 1),
		"forbidden":              apierrors.NewForbidden(locks, "x", nil),
		"unauthorized":           apierrors.NewUnauthorized("who"),
		"namespace-missing":      apierrors.NewNotFound(locks, "x"),
		"error InternalError":    apierrors.NewInternalError(errors.New("odd")),
	} {
		if got := causeOf(err); got.name != name || got.message == "" {
			t.Errorf("%v: cause %q", err, got.name)
		}
	}
}

// Failures of one kind of call are logged once, and so is their end.
func TestCallFailed(t *testing.T) {
	quota := apierrors.NewForbidden(schema.GroupResource{Resource: "locks"}, "x", errors.New("exceeded quota: few"))
	for op, end := range map[core.Op]string{
		core.Read: "reading the lock succeeds again", core.Renew: "writing the lock succeeds again", core.Acquire: "writing the lock succeeds again",
		core.SendRequest: "writing handover requests succeeds again",
	} {
		r, _, log := reporting(t)
		once := func(call func(), want string) {
			t.Helper()
			log.Reset()
			call()
			call()
			if strings.Count(log.String(), "\n") != 1 || !strings.Contains(log.String(), want) {
				t.Errorf("%v, want %q:\n%s", op, want, log)
			}
		}
		once(func() { r.callFailed(call{op: op, err: quota}) }, `msg="quota does not allow the lock; retrying"`)
		once(func() { r.callSucceeded(call{op: op}) }, end)
		once(func() { r.callFailed(call{op: op, err: errors.New("no route")}) }, `msg="request for the lock failed; retrying"`)
		once(func() { r.callSucceeded(call{op: op}) }, "requests for the lock succeed again")
	}
}

// The latency is logged once when it reaches half of RenewDeadline, and once when it is shorter again.
func TestReportLatency(t *testing.T) {
	r, _, log := reporting(t)
	limit := r.core.Validity / 2
	for i, step := range []struct {
		result core.Result
		err    error
		took   time.Duration
		want   string
	}{
		{core.OK, nil, limit - 1, ""},
		{core.OK, nil, limit, `msg="API server answers too late; no term begins, and a leader may lose its term"`},
		{core.Conflict, nil, limit + time.Second, ""},
		{core.Unknown, context.Canceled, time.Second, ""}, // the answer is not needed
		{core.OK, nil, time.Second, `msg="API server answers in time again"`},
		{core.OK, nil, time.Second, ""},
	} {
		log.Reset()
		r.answered(core.Leading, call{op: core.Renew, result: step.result, err: step.err, took: step.took})
		if text := log.String(); (text == "") != (step.want == "") || !strings.Contains(text, step.want) {
			t.Errorf("step %d: logged %q, want %q", i, text, step.want)
		}
	}
}

func TestNoteFailure(t *testing.T) {
	l := &loop{}
	for _, c := range []struct {
		err    error
		result core.Result
		want   string
	}{
		{fmt.Errorf("get lease: %w", &url.Error{Op: "Get", URL: "https://x/leases/e", Err: errors.New("connection refused")}), core.Unknown, "connection refused"},
		{context.Canceled, core.Unknown, "connection refused"},
		{nil, core.OK, ""},
		{errors.New("forbidden"), core.Refused, "forbidden"},
		{errors.New("another version"), core.Conflict, ""},
	} {
		ev := event{call: call{err: c.err}}
		ev.in.Result = c.result
		if l.noteFailure(&ev); l.failed != c.want {
			t.Errorf("%v: %q, want %q", c.err, l.failed, c.want)
		}
	}
}
