package bootstrap

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"incumbent.dev/incumbent/internal/apirequest"
	"incumbent.dev/incumbent/internal/testutil/apiserver"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pkg/kube"
	"incumbent.dev/incumbent/tests/cluster"
)

func TestEventRecorder_WritesUntilItEnds(t *testing.T) {
	for name, test := range map[string]struct {
		slow  time.Duration // duration of a request
		took  time.Duration // duration of the stop
		late  int
		count int
	}{
		"fast":     {count: 2},
		"slow":     {slow: 500 * time.Millisecond, took: time.Second, count: 2},
		"too late": {slow: 3 * time.Second, took: 2 * time.Second, late: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := apiserver.New()
				server.On(func(apiserver.Request) apiserver.Fault { return apiserver.Fault{Before: test.slow} })
				client := cluster.ClientFor(t, server.Config())
				log := &harness.Log{}
				e := newEvents(client, "the-pod", slog.New(slog.NewTextHandler(log, nil)))
				object := &corev1.ObjectReference{Kind: "Lease", Namespace: "home", Name: "lock"}
				e.Eventf(object, corev1.EventTypeNormal, "Reason", "before")
				stop := harness.Background(t, e.run)
				synctest.Wait()
				e.Eventf(object, corev1.EventTypeNormal, "Reason", "one of %d", 2)
				other := &corev1.ObjectReference{Kind: "Lease", Namespace: "home", Name: "lock-2"} // the name of an Event contains object and time
				e.Eventf(other, corev1.EventTypeWarning, "Reason", "the last")
				began := time.Now()
				if stop(); time.Since(began) != test.took {
					t.Errorf("the recorder ended after %v", time.Since(began))
				}
				e.Eventf(object, corev1.EventTypeNormal, "Reason", "after")
				synctest.Wait()
				list, err := client.Kube().CoreV1().Events("home").List(t.Context(), metav1.ListOptions{})
				harness.Must(t, err)
				var messages []string
				for _, event := range list.Items {
					messages = append(messages, event.Message)
				}
				slices.Sort(messages)
				if got := strings.Join(messages, ", "); test.count > 0 && got != "one of 2, the last" || test.count == 0 && got != "" {
					t.Errorf("written: %q", got)
				}
				if n := log.Count("last Events were not written in time"); n != test.late {
					t.Errorf("missing Events were logged %d times", n)
				}
				for _, event := range list.Items {
					if event.Source.Component != userAgent || event.Source.Host != "the-pod" || !strings.HasPrefix(event.InvolvedObject.Name, "lock") || event.Namespace != "home" {
						t.Errorf("an Event is %+v", event)
					}
				}
			})
		})
	}
}

// TestEventSink_LogsForbiddenOnce also shows that other errors go to the broadcaster, which retries.
func TestEventSink_LogsForbiddenOnce(t *testing.T) {
	var log bytes.Buffer
	client, err := kube.NewClient(goodConfig().RESTConfig)
	harness.Must(t, err)
	sink := &eventSink{ctx: t.Context(), client: client, trouble: apirequest.NewTrouble(slog.New(slog.NewTextHandler(&log, nil)), nil)}
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "events"}, "", errors.New("no"))
	event := &corev1.Event{Message: "mine"}
	for i, step := range []struct {
		err    error
		logged int
	}{{forbidden, 1}, {forbidden, 1}, {errAway, 1}, {forbidden, 1}, {nil, 1}, {forbidden, 2}} {
		stored, err := sink.write(event, func(ctx context.Context, _ typedcorev1.EventInterface) (*corev1.Event, error) {
			if deadline, bounded := ctx.Deadline(); !bounded || time.Until(deadline) > eventTimeout {
				t.Errorf("the request may take until %v", deadline)
			}
			return nil, step.err
		})
		if refused := errors.Is(step.err, forbidden); refused && (err != nil || stored != event) || !refused && !errors.Is(err, step.err) {
			t.Errorf("step %d: %v, %v", i, stored, err)
		}
		if n := strings.Count(log.String(), `msg="permission denied" verb="write Events"`); n != step.logged {
			t.Errorf("step %d: logged %d times", i, n)
		}
	}
}
