package namespace

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/pkg/kube"
)

// api is the two kinds of an API server that the controller knows, with versions that count as
// etcd's do, behind a transport that notes each request. Watches may lag behind it.
type api struct {
	t *testing.T
	// answer is asked before a write is carried out; what it returns is the answer.
	answer func(call) error

	// old: it knows no watches that begin with a list.
	old bool

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
