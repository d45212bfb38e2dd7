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
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
)

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
	if a.old && initial {
		return failed(req, apierrors.NewInvalid(schema.GroupKind{Kind: "ListOptions"}, "", nil))
	}
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
			case <-ctx.Done():
				return
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
