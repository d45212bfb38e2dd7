package apirequest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// ErrOneAnswer is the error of a request that was sent twice, if one attempt was rejected and the other has no usable answer. The
// other attempt may have been executed, and may be the cause of the rejection.
var ErrOneAnswer = errors.New("sent twice, and only one attempt was answered")

// ErrOvertaken is the cause of the context of a first attempt that got no answer before the second attempt.
var ErrOvertaken = errors.New("the second attempt was answered first")

// errNotReturned is the error of an attempt that called runtime.Goexit.
var errNotReturned = errors.New("request did not return")

type second struct{}

// IsSecond reports whether ctx belongs to a second attempt of Twice. It should use another connection than the first attempt.
func IsSecond(ctx context.Context) bool { return ctx.Value(second{}) != nil }

// Rejected reports whether an API server answered that it did not execute the request.
func Rejected(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code >= 400 && code < 500 && code != http.StatusRequestTimeout
}

// LeastDelay is the shortest time from the first to the second attempt.
const LeastDelay = 500 * time.Millisecond

// SecondAfter returns the time from the first to the second attempt. longest is the time of the slowest recent answer. A third of the
// time that is left leaves room for an answer that takes as long as two thirds.
func SecondAfter(longest, left time.Duration) time.Duration {
	return min(max(LeastDelay, longest*5/4), left/3)
}

// recentAnswers is the number of answers that Latency remembers.
const recentAnswers = 8

// Latency has the time that the latest requests to an API server took. Its zero value has none. Its methods are safe for concurrent
// use.
type Latency struct {
	mu    sync.Mutex
	took  [recentAnswers]time.Duration
	count int
}

// Answered records the time that a request took.
func (l *Latency) Answered(took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.took[l.count%recentAnswers] = took
	l.count++
}

// Longest returns the longest of the recorded times.
func (l *Latency) Longest() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	longest := l.took[0]
	for _, took := range l.took[1:] {
		longest = max(longest, took)
	}
	return longest
}

// delay returns the time from the first to the second attempt of a request.
func (l *Latency) delay(ctx context.Context) time.Duration {
	left := time.Duration(math.MaxInt64)
	if end, ok := ctx.Deadline(); ok {
		left = time.Until(end) //nolint:forbidigo // a deadline
	}
	return SecondAfter(l.Longest(), left)
}

// attempt is the result of one attempt.
type attempt[T any] struct {
	value T
	err   error
	took  time.Duration
}

// Twice sends a request. If it has no answer after the usual time, the API server is slow or the connection is dead. Then Twice sends
// the same request once more, while the first attempt continues. The first success counts. ctx should have a deadline.
//
// The API server may execute both attempts, so the request must have a guard: a resourceVersion, a name to create, or it is a read.
// The guard rejects the attempt that is executed later. Therefore a rejection counts only if both attempts were rejected. Otherwise
// Twice waits for the other attempt as long as a read would take, and returns ErrOneAnswer. rejected classifies an error.
//
// send should end with its context: Twice waits until both attempts have ended, but not longer than endTime after the answer.
func Twice[T any](ctx context.Context, latency *Latency, rejected func(error) bool, send func(context.Context) (T, error)) (T, error) {
	answers := make(chan attempt[T], 2)
	start := func(ctx context.Context) {
		began := time.Now() //nolint:forbidigo // measures the attempt
		go func() {
			answer := attempt[T]{err: errNotReturned}
			defer func() { answers <- answer }()
			value, err := send(ctx)
			took := time.Since(began)                                    //nolint:forbidigo // measures the attempt
			notNeeded := errors.Is(context.Cause(ctx), context.Canceled) // its answer would have taken longer
			if err == nil || rejected(err) || notNeeded && took > latency.Longest() {
				latency.Answered(took)
			}
			answer = attempt[T]{value, err, took}
		}()
	}
	first, overtake := context.WithCancelCause(ctx)
	defer overtake(ErrOvertaken)
	start(first)
	timer := time.NewTimer(latency.delay(ctx))
	defer timer.Stop()
	select {
	case only := <-answers:
		return only.value, only.err
	case <-timer.C:
	}
	again, cancel := context.WithCancel(context.WithValue(ctx, second{}, true))
	start(again)
	value, both, err := either(answers, rejected)
	cancel()
	if !both {
		overtake(ErrOvertaken)
		select {
		case <-answers:
		case <-time.After(endTime):
		}
	}
	return value, err
}

// endTime is how long Twice waits for an attempt that is not needed any more.
const endTime = 100 * time.Millisecond

// either returns the result of two attempts, and whether both have ended.
func either[T any](answers <-chan attempt[T], rejected func(error) bool) (value T, both bool, err error) {
	one := <-answers
	if one.err == nil {
		return one.value, false, nil
	}
	var limit <-chan time.Time
	if rejected(one.err) {
		limit = time.After(one.took)
	}
	select {
	case other := <-answers:
		if other.err == nil || rejected(one.err) == rejected(other.err) {
			return other.value, true, other.err
		}
		return value, true, fmt.Errorf("%w: %v, and %v", ErrOneAnswer, one.err, other.err) //nolint:errorlint // not a rejection
	case <-limit:
		return value, false, fmt.Errorf("%w: %v", ErrOneAnswer, one.err) //nolint:errorlint // not a rejection
	}
}
