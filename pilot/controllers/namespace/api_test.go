package namespace

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/pkg/kube"
)

// api is the two kinds of an API server that the controller knows, with versions that count as
// etcd's do, behind a transport that notes each request. Watches may lag behind it.
type api struct {
	t *testing.T
	// answer is asked before a write is carried out; what it returns is the answer.
	answer func(call) error

	mu      sync.Mutex
	lag     time.Duration // from a change of a ConfigMap to its event
	version int
	objects map[string]metav1.Object // by path
	watches map[*watching]struct{}
	calls   []call
}

// call is one request.
type call struct {
	at                 time.Time
	verb, kind, object string
	selector           string
}

// watching is one watch; its events come when they are due.
type watching struct {
	kind, selector string
	events         chan due
	cut            chan struct{}
}

type due struct {
	at    time.Time
	event []byte
}

func newAPI(t *testing.T, objects ...metav1.Object) *api {
	a := &api{t: t, objects: map[string]metav1.Object{}, watches: map[*watching]struct{}{}}
	for _, o := range objects {
		a.put(o)
	}
	return a
}

// client is one whose requests all come here.
func (a *api) client() kube.Client {
	a.t.Helper()
	c, err := kube.NewClient(&rest.Config{Host: "http://127.0.0.1:1"}, kube.WithRateLimit(-1, 0),
		kube.WithWrapTransport(func(http.RoundTripper) http.RoundTripper { return a }))
	if err != nil {
		a.t.Fatal(err)
	}
	return c
}

// writes are the requests that wrote, or tried to.
func (a *api) writes() []call { return a.made("create", "patch") }

func (a *api) made(verbs ...string) (all []call) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range a.calls {
		if slices.Contains(verbs, c.verb) {
			all = append(all, c)
		}
	}
	return all
}

func kindOf(o metav1.Object) string {
	if _, ok := o.(*corev1.Namespace); ok {
		return "namespaces"
	}
	return "configmaps"
}

func pathOf(o metav1.Object) string {
	if kindOf(o) == "namespaces" {
		return "namespaces/" + o.GetName()
	}
	return "configmaps/" + o.GetNamespace() + "/" + o.GetName()
}

// put makes or changes an object, as others do.
func (a *api) put(o metav1.Object) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.store(o)
}

// bundle is what a namespace's ConfigMap carries, "" when there is none.
func (a *api) bundle(namespace string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if m, ok := a.objects["configmaps/"+namespace+"/"+ConfigMapName].(*corev1.ConfigMap); ok {
		return m.Data[BundleKey]
	}
	return ""
}

// remove deletes an object; its namespace stays.
func (a *api) remove(path string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	o := a.objects[path]
	if o == nil {
		a.t.Errorf("there is no %s to delete", path)
		return
	}
	delete(a.objects, path)
	a.version++
	o.SetResourceVersion(strconv.Itoa(a.version))
	a.tell(watch.Deleted, o)
}

// setLag changes how late events are from now on.
func (a *api) setLag(d time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lag = d
}

// open are the watches that nobody has ended.
func (a *api) open() (open []*watching) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Collect(maps.Keys(a.watches))
}

// deafTo is a client whose writes are never answered.
func deafTo(a *api) kube.Client {
	a.t.Helper()
	c, err := kube.Derive(a.client(), kube.WithWrapTransport(func(next http.RoundTripper) http.RoundTripper {
		return deaf{next, a}
	}))
	if err != nil {
		a.t.Fatal(err)
	}
	return c
}

type deaf struct {
	next http.RoundTripper
	a    *api
}

func (d deaf) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodGet {
		return d.next.RoundTrip(req)
	}
	d.a.mu.Lock()
	d.a.calls = append(d.a.calls, call{at: time.Now(), verb: "create"})
	d.a.mu.Unlock()
	<-req.Context().Done()
	return nil, req.Context().Err()
}

// cut ends all watches; what they had not shown they never will.
func (a *api) cut() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for w := range a.watches {
		close(w.cut)
		delete(a.watches, w)
	}
}

func (a *api) store(o metav1.Object) {
	kind := watch.Added
	if before := a.objects[pathOf(o)]; before != nil {
		kind = watch.Modified
		o.SetUID(before.GetUID())
	}
	a.version++
	if o.GetUID() == "" {
		o.SetUID(types.UID("uid-" + strconv.Itoa(a.version)))
	}
	o.SetResourceVersion(strconv.Itoa(a.version))
	a.objects[pathOf(o)] = o
	a.tell(kind, o)
}

func (a *api) tell(kind watch.EventType, o metav1.Object) {
	event, at := frame(kind, withKind(o)), time.Now()
	if kindOf(o) == "configmaps" {
		at = at.Add(a.lag)
	}
	for w := range a.watches {
		if w.kind == kindOf(o) && selected(w.selector, o) {
			w.events <- due{at, event}
		}
	}
}

func selected(selector string, o metav1.Object) bool {
	return selector == "" || selector == "metadata.name="+o.GetName()
}

func frame(kind watch.EventType, o any) []byte {
	content, err := json.Marshal(map[string]any{"type": kind, "object": o})
	if err != nil {
		panic(err)
	}
	return append(content, '\n')
}

// RoundTrip answers a request.
func (a *api) RoundTrip(req *http.Request) (*http.Response, error) {
	c := call{at: time.Now(), verb: map[string]string{"GET": "list", "POST": "create", "PATCH": "patch"}[req.Method]}
	parts := strings.Split(strings.TrimPrefix(req.URL.Path, "/api/v1/"), "/")
	query := req.URL.Query()
	c.kind, c.selector = parts[len(parts)-1], query.Get("fieldSelector")
	if query.Get("watch") == "true" {
		c.verb = "watch"
	}
	var body []byte
	if req.Body != nil {
		var err error
		if body, err = io.ReadAll(req.Body); err != nil {
			return nil, err
		}
		_ = req.Body.Close()
	}
	if c.verb == "create" || c.verb == "patch" {
		c.kind, c.object = parts[2], parts[1]+"/"+ConfigMapName
	}
	a.mu.Lock()
	a.calls = append(a.calls, c)
	a.mu.Unlock()
	if a.answer != nil {
		if err := a.answer(c); err != nil {
			return failed(req, err)
		}
	}
	if err := req.Context().Err(); err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch c.verb {
	case "list":
		return answered(req, http.StatusOK, a.listed(c)), nil
	case "watch":
		return a.watch(req, c)
	case "create":
		return a.create(req, body)
	default:
		return a.patch(req, c, body)
	}
}

// failed is a refusal by the server or, with another error, no answer.
func failed(req *http.Request, err error) (*http.Response, error) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return nil, err
	}
	s := status.Status()
	s.Kind, s.APIVersion = "Status", "v1"
	return answered(req, int(s.Code), s), nil
}

func answered(req *http.Request, code int, what any) *http.Response {
	content, err := json.Marshal(what)
	if err != nil {
		panic(err)
	}
	return response(req, code, io.NopCloser(strings.NewReader(string(content))))
}

func response(req *http.Request, code int, body io.ReadCloser) *http.Response {
	return &http.Response{StatusCode: code, Request: req, Header: http.Header{"Content-Type": {"application/json"}}, Body: body}
}

func (a *api) all(kind, selector string) (found []metav1.Object) {
	for _, path := range slices.Sorted(maps.Keys(a.objects)) {
		if o := a.objects[path]; kindOf(o) == kind && selected(selector, o) {
			found = append(found, o)
		}
	}
	return found
}

func (a *api) listed(c call) any {
	kind := map[string]string{"namespaces": "NamespaceList", "configmaps": "ConfigMapList"}[c.kind]
	return map[string]any{
		"kind": kind, "apiVersion": "v1", "metadata": map[string]any{"resourceVersion": strconv.Itoa(a.version)}, "items": a.all(c.kind, c.selector),
	}
}

// watch answers with what there is, where it is asked for that, and each change from now on.
// Who asks has listed at the present version, or else a list comes first.
func (a *api) watch(req *http.Request, c call) (*http.Response, error) {
	query := req.URL.Query()
	initial := query.Get("sendInitialEvents") == "true"
	if from := query.Get("resourceVersion"); !initial && from != strconv.Itoa(a.version) {
		return failed(req, apierrors.NewResourceExpired("list again"))
	}
	w := &watching{kind: c.kind, selector: c.selector, events: make(chan due, 10_000), cut: make(chan struct{})}
	if initial {
		for _, o := range a.all(c.kind, c.selector) {
			w.events <- due{event: frame(watch.Added, withKind(o))}
		}
		w.events <- due{event: frame(watch.Bookmark, map[string]any{
			"kind": map[string]string{"namespaces": "Namespace", "configmaps": "ConfigMap"}[c.kind], "apiVersion": "v1",
			"metadata": map[string]any{"resourceVersion": strconv.Itoa(a.version), "annotations": map[string]string{metav1.InitialEventsAnnotationKey: "true"}},
		})}
	}
	a.watches[w] = struct{}{}
	reader, writer := io.Pipe()
	go a.show(req.Context(), w, writer)
	return response(req, http.StatusOK, reader), nil
}

func (a *api) show(ctx context.Context, w *watching, to *io.PipeWriter) {
	defer to.Close()
	defer func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.watches, w)
	}()
	defer context.AfterFunc(ctx, func() { _ = to.CloseWithError(ctx.Err()) })()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.cut:
			return
		case next := <-w.events:
			select {
			case <-w.cut:
				return
			case <-time.After(time.Until(next.at)):
			}
			if _, err := to.Write(next.event); err != nil {
				return
			}
		}
	}
}

func (a *api) create(req *http.Request, body []byte) (*http.Response, error) {
	decoded, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		return nil, err
	}
	m := decoded.(*corev1.ConfigMap)
	gr := schema.GroupResource{Resource: "configmaps"}
	if a.objects["namespaces/"+m.Namespace] == nil {
		return failed(req, apierrors.NewNotFound(gr, m.Name))
	}
	if a.objects[pathOf(m)] != nil {
		return failed(req, apierrors.NewAlreadyExists(gr, m.Name))
	}
	a.store(m)
	return answered(req, http.StatusCreated, withKind(m)), nil
}

func withKind(o metav1.Object) any {
	if n, ok := o.(*corev1.Namespace); ok {
		n = n.DeepCopy()
		n.Kind, n.APIVersion = "Namespace", "v1"
		return n
	}
	m := o.(*corev1.ConfigMap).DeepCopy()
	m.Kind, m.APIVersion = "ConfigMap", "v1"
	return m
}

func (a *api) patch(req *http.Request, c call, body []byte) (*http.Response, error) {
	before, _ := a.objects["configmaps/"+c.object].(*corev1.ConfigMap)
	if before == nil {
		return failed(req, apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, c.object))
	}
	if req.Header.Get("Content-Type") != string(types.MergePatchType) {
		return nil, fmt.Errorf("a patch of type %q", req.Header.Get("Content-Type"))
	}
	var change map[string]any
	if err := json.Unmarshal(body, &change); err != nil {
		return nil, err
	}
	have, err := runtime.DefaultUnstructuredConverter.ToUnstructured(before)
	if err != nil {
		return nil, err
	}
	merge(have, change)
	after := &corev1.ConfigMap{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(have, after); err != nil {
		return nil, err
	}
	for key := range after.Data {
		if _, twice := after.BinaryData[key]; twice {
			return failed(req, apierrors.NewInternalError(errors.New("a key stands in data and in binaryData")))
		}
	}
	if !maps.Equal(after.Data, before.Data) || len(after.BinaryData) != len(before.BinaryData) {
		a.store(after)
	}
	return answered(req, http.StatusOK, withKind(after)), nil
}

func merge(into, change map[string]any) {
	for key, value := range change {
		inner, isMap := value.(map[string]any)
		have, wasMap := into[key].(map[string]any)
		switch {
		case value == nil:
			delete(into, key)
		case isMap && wasMap:
			merge(have, inner)
		case isMap:
			fresh := map[string]any{}
			merge(fresh, inner)
			into[key] = fresh
		default:
			into[key] = value
		}
	}
}
