package gatewaydeploy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
	gatewayclient "sigs.k8s.io/gateway-api/pkg/client/clientset/versioned/typed/apis/v1"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pkg/kube"
	"incumbent.dev/incumbent/tests/cluster"
)

// bound limits each wait.
const bound = harness.Patience

// world is a namespace with a running controller that has no additional permissions. It is also the system
// namespace.
type world struct {
	*testing.T
	namespace string
	admin     kubernetes.Interface
	objects   dynamic.Interface
	gateways  gatewayclient.GatewayInterface
	config    *rest.Config

	mu sync.Mutex
	// onWrite is called before a write is sent. If it returns an error, the write is not sent.
	onWrite func(call) error
	writes  []call
	// accepted contains the writes that the API server accepted. Writes with an old version are rejected and
	// retried.
	accepted []call
	events   []string
}

// call is a write.
type call struct{ verb, path string }

func (c call) String() string {
	return c.verb + " " + strings.Join(strings.Split(c.path, "/")[max(0, len(strings.Split(c.path, "/"))-2):], "/")
}

func newWorld(t *testing.T) *world {
	t.Helper()
	t.Parallel()
	c := cluster.Shared(t)
	if err := c.LoadGatewayAPI(t.Context()); err != nil {
		t.Fatal(err)
	}
	w := &world{T: t, namespace: c.Namespace(t)}
	client := c.Client(t)
	w.admin, w.objects = client.Kube(), client.Dynamic()
	all, err := gatewayclient.NewForConfig(client.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	w.gateways = all.Gateways(w.namespace)
	w.config = c.Identity(t, cluster.IdentityOptions{Namespace: w.namespace, PodName: "controller", ClusterRules: ClusterRules()})
	return w
}

// controller runs a controller until stop is called or the test ends. After stop, all its writes are recorded.
func (w *world) controller() (stop func()) {
	w.Helper()
	client, err := kube.NewClient(w.config, kube.WithRateLimit(-1, 0), kube.WithWrapTransport(func(next http.RoundTripper) http.RoundTripper {
		return counted{next, w}
	}))
	if err != nil {
		w.Fatal(err)
	}
	c, err := New(client, Config{
		Namespace: w.namespace, Event: w.note, Logger: slog.New(slog.DiscardHandler),
		IsMine: func(meta metav1.ObjectMeta) bool { return meta.Namespace == w.namespace },
	})
	if err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.Context()))
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			w.Error(err)
		}
		kube.CloseIdleConnections(c.loop.Client())
	})
	w.Cleanup(stop)
	return stop
}

// note records an Event.
func (w *world) note(o runtime.Object, kind, reason, message string, args ...any) {
	about, ok := o.(*corev1.ObjectReference)
	if !ok || kind != corev1.EventTypeWarning || about.Kind != "Gateway" || about.UID == "" {
		w.Errorf("an Event of type %s is about %#v", kind, o)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, fmt.Sprintf("%s %s: ", about.Name, reason)+fmt.Sprintf(message, args...))
}

// counted records writes.
type counted struct {
	next http.RoundTripper
	w    *world
}

func (c counted) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodGet {
		return c.next.RoundTrip(req)
	}
	one := call{verb: req.Method, path: req.URL.Path}
	if req.Header.Get("Content-Type") == string(types.ApplyPatchType) {
		one.verb = "APPLY"
	}
	c.w.mu.Lock()
	c.w.writes = append(c.w.writes, one)
	hook := c.w.onWrite
	c.w.mu.Unlock()
	if hook != nil {
		if err := hook(one); err != nil {
			return nil, err
		}
	}
	resp, err := c.next.RoundTrip(req)
	if err == nil && resp.StatusCode < http.StatusMultipleChoices {
		c.w.mu.Lock()
		defer c.w.mu.Unlock()
		c.w.accepted = append(c.w.accepted, one)
	}
	return resp, err
}

func (c counted) WrappedRoundTripper() http.RoundTripper { return c.next }

func (w *world) hook(f func(call) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.onWrite = f
}

// written returns the writes so far.
func (w *world) written() []call {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.writes)
}

// took returns the accepted writes so far.
func (w *world) took() []call {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.accepted)
}

// recorded returns the Events so far.
func (w *world) recorded() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.events)
}

func (w *world) until(what string, holds func() error) {
	w.Helper()
	var last error
	err := wait.PollUntilContextTimeout(w.Context(), 20*time.Millisecond, bound, true, func(context.Context) (bool, error) {
		last = holds()
		return last == nil, nil
	})
	if err != nil {
		w.Fatalf("waiting until %s: %v: %v; writes: %v; events: %q", what, err, last, w.written(), w.recorded())
	}
}

// event waits for an Event that contains all parts.
func (w *world) event(parts ...string) {
	w.Helper()
	w.until(fmt.Sprintf("Event with %q", parts), func() error {
		for _, event := range w.recorded() {
			if !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(event, part) }) {
				return nil
			}
		}
		return errors.New("not found")
	})
}

// create creates a Gateway with one listener.
func (w *world) create(name string, change ...func(*gateway.Gateway)) *gateway.Gateway {
	w.Helper()
	gw := &gateway.Gateway{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: gateway.GatewaySpec{
			GatewayClassName: DefaultClass,
			Listeners:        []gateway.Listener{{Name: "http", Port: 8080, Protocol: gateway.HTTPProtocolType}},
		},
	}
	for _, do := range change {
		do(gw)
	}
	made, err := w.gateways.Create(w.Context(), gw, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return made
}

// edit changes a Gateway.
func (w *world) edit(name, patch string) {
	w.Helper()
	if _, err := w.gateways.Patch(w.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		w.Fatal(err)
	}
}

// get returns an object, or nil.
func (w *world) get(kind Kind, name string) *unstructured.Unstructured {
	w.Helper()
	o, err := w.objects.Resource(kind.Resource()).Namespace(w.namespace).Get(w.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		w.Fatal(err)
	}
	return o
}

// patch changes an object as another client.
func (w *world) patch(kind Kind, name, patch string) {
	w.Helper()
	_, err := w.objects.Resource(kind.Resource()).Namespace(w.namespace).Patch(w.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "other"})
	if err != nil {
		w.Fatal(err)
	}
}

// deployed waits until all objects of this name exist.
func (w *world) deployed(name string) {
	w.Helper()
	w.until(name+" is deployed", func() error {
		for _, kind := range rendered {
			if w.get(kind, name) == nil {
				return fmt.Errorf("no %s", kind)
			}
		}
		return nil
	})
}

// ports waits until the Service has these port numbers.
func (w *world) ports(service string, want ...int32) {
	w.Helper()
	w.until(fmt.Sprintf("%s has the ports %v", service, want), func() error {
		o, err := w.admin.CoreV1().Services(w.namespace).Get(w.Context(), service, metav1.GetOptions{})
		if err != nil {
			return err
		}
		var numbers []int32
		for _, port := range o.Spec.Ports {
			numbers = append(numbers, port.Port)
		}
		if !slices.Equal(numbers, want) {
			return fmt.Errorf("it has %v", numbers)
		}
		return nil
	})
}
