package bootstrap

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"go.uber.org/atomic"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	"incumbent.dev/incumbent/internal/apirequest"
	"incumbent.dev/incumbent/pkg/kube"
)

const (
	// eventTimeout bounds one request for an Event.
	eventTimeout = 5 * time.Second
	// eventsStop bounds the time to write the last Events.
	eventsStop = 2 * time.Second
)

// events writes Kubernetes Events in the background while it runs. Before and after, they are dropped. Callers do not wait,
// and errors have no other effect.
type events struct {
	client   kube.Client
	identity string
	log      *slog.Logger
	recorder atomic.Pointer[record.EventRecorderLogger]
}

func newEvents(client kube.Client, identity string, log *slog.Logger) *events {
	return &events{client: client, identity: identity, log: log}
}

func (e *events) run(ctx context.Context) error {
	// Events about the end of elections are written after ctx ends.
	writeCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	trouble := apirequest.NewTrouble(e.log, map[string]string{eventVerb: "the log has the same information"})
	sink := &eventSink{ctx: writeCtx, client: e.client, trouble: trouble, flushed: make(chan struct{})}
	broadcaster := record.NewBroadcaster(record.WithContext(writeCtx))
	broadcaster.StartRecordingToSink(sink)
	recorder := broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: userAgent, Host: e.identity})
	e.recorder.Store(&recorder)
	<-ctx.Done()
	e.recorder.Store(nil)
	recorder.Eventf(&corev1.ObjectReference{Kind: lastEvent}, corev1.EventTypeNormal, lastEvent, lastEvent)
	select {
	case <-sink.flushed:
	case <-time.After(eventsStop):
		e.log.Info("last Events were not written in time")
	}
	return nil
}

// Eventf implements the recorder of locks.
func (e *events) Eventf(object runtime.Object, kind, reason, message string, args ...any) {
	if recorder := e.recorder.Load(); recorder != nil {
		(*recorder).Eventf(object, kind, reason, message, args...)
	}
}

// once writes a warning with a fixed name. If several processes write it, one Event exists.
func (e *events) once(ctx context.Context, name string, about *corev1.ObjectReference, reason, message string) {
	ctx, cancel := context.WithTimeout(ctx, eventTimeout)
	defer cancel()
	namespace, now := cmp.Or(about.Namespace, metav1.NamespaceDefault), metav1.Now()
	_, err := e.client.Kube().CoreV1().Events(namespace).Create(ctx, &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: name, Namespace: namespace},
		InvolvedObject: *about, Type: corev1.EventTypeWarning, Reason: reason, Message: message,
		Source: corev1.EventSource{Component: userAgent, Host: e.identity}, FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		e.log.Warn("failed to write Event", "reason", reason, "about", about.Name, "err", err)
	}
}

// lastEvent is the reason of an Event that is not written. It shows that the broadcaster has written all Events before it.
const lastEvent = "Last"

// eventSink writes Events. A broadcaster calls it from one goroutine.
type eventSink struct {
	ctx     context.Context
	client  kube.Client
	flushed chan struct{}
	trouble *apirequest.Trouble
}

func (s *eventSink) Create(event *corev1.Event) (*corev1.Event, error) {
	if event.Reason == lastEvent {
		close(s.flushed)
		return event, nil
	}
	return s.write(event, func(ctx context.Context, events typedcorev1.EventInterface) (*corev1.Event, error) {
		return events.Create(ctx, event, metav1.CreateOptions{})
	})
}

// Update implements the interface. Broadcasters call Patch.
func (s *eventSink) Update(event *corev1.Event) (*corev1.Event, error) {
	return s.write(event, func(ctx context.Context, events typedcorev1.EventInterface) (*corev1.Event, error) {
		return events.Update(ctx, event, metav1.UpdateOptions{})
	})
}

func (s *eventSink) Patch(event *corev1.Event, patch []byte) (*corev1.Event, error) {
	return s.write(event, func(ctx context.Context, events typedcorev1.EventInterface) (*corev1.Event, error) {
		return events.Patch(ctx, event.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	})
}

// eventVerb is the name of these requests in the log.
const eventVerb = "write Events"

// write sends a request. A forbidden Event is not retried.
func (s *eventSink) write(event *corev1.Event, send func(context.Context, typedcorev1.EventInterface) (*corev1.Event, error)) (*corev1.Event, error) {
	ctx, cancel := context.WithTimeout(s.ctx, eventTimeout)
	defer cancel()
	stored, err := send(ctx, s.client.Kube().CoreV1().Events(event.Namespace))
	if err != nil && !apierrors.IsForbidden(err) {
		return stored, err // the broadcaster retries
	}
	if s.trouble.Tried(eventVerb, err); err != nil {
		return event, nil
	}
	return stored, nil
}
