package gatewaydeploy

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	gateway "sigs.k8s.io/gateway-api/apis/v1"

	"incumbent.dev/incumbent/internal/testutil/harness"
)

// sending is an API server that answers writes and shows nothing of them, with a controller whose caches are filled.
type sending struct {
	*Controller
	*played
	log harness.Log

	mu sync.Mutex
	// refuses says why a write is refused, nil where it is not.
	refuses func(verb, resource string) *apierrors.StatusError
	sent    []string
	bodies  map[string]*unstructured.Unstructured
	events  []string
}

func newSending(t *testing.T, p *played) *sending {
	t.Helper()
	s := &sending{played: p, refuses: func(string, string) *apierrors.StatusError { return nil }, bodies: map[string]*unstructured.Unstructured{}}
	lists := map[string]any{
		"gateways": listed([]*gateway.Gateway{p.Gateway}), "gatewayclasses": listed(nil), "configmaps": listed(slices.Collect(maps.Values(p.configs))),
		"namespaces": listed([]corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}}),
	}
	for _, kind := range Kinds {
		var items []metav1.Object
		for name, o := range p.objects {
			if strings.HasPrefix(name, string(kind)+"/") {
				items = append(items, o)
			}
		}
		lists[kind.Resource().Resource] = listed(items)
	}
	s.Controller = servedBy(t, lists, s.write, Config{
		Logger: slog.New(slog.NewTextHandler(&s.log, nil)),
		Event: func(about runtime.Object, _, reason, message string, args ...any) {
			ref, _ := about.(*corev1.ObjectReference)
			s.events = append(s.events, ref.Name+" "+reason+": "+fmt.Sprintf(message, args...))
		},
	})
	if err := s.Warm(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *sending) write(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	verb := map[string]string{http.MethodPost: "create", http.MethodPatch: "patch"}[r.Method]
	if r.Header.Get("Content-Type") == string(types.ApplyPatchType) {
		verb = "apply"
	}
	_, path, _ := strings.Cut(r.URL.Path, "/namespaces/shop/")
	resource, _, _ := strings.Cut(path, "/")
	what := verb + " " + path
	if by := r.URL.Query().Get("fieldManager"); by != ControllerName {
		s.t.Errorf("%s is by %q", what, by)
	}
	s.sent = append(s.sent, what)
	if refused := s.refuses(verb, resource); refused != nil {
		status := refused.Status()
		status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
		w.WriteHeader(int(status.Code))
		_ = json.NewEncoder(w).Encode(status)
		return
	}
	body, _ := io.ReadAll(r.Body)
	o := &unstructured.Unstructured{}
	_ = json.Unmarshal(body, &o.Object)
	s.bodies[what] = o.DeepCopy()
	if resource == "gateways" {
		changed := s.Gateway.DeepCopy()
		changed.Annotations, changed.ResourceVersion = o.GetAnnotations(), "77"
		_ = json.NewEncoder(w).Encode(changed)
		return
	}
	if verb == "create" {
		_ = json.NewEncoder(w).Encode(s.put(Kind(o.GetKind()), write{ControllerName, false, o.Object}))
		return
	}
	o.SetResourceVersion("77")
	_ = json.NewEncoder(w).Encode(o.Object)
}

// takes are the writes of one look at a Gateway.
func (s *sending) takes(t *testing.T, of key) (sent []string, err error) {
	t.Helper()
	s.mu.Lock()
	s.sent = nil
	s.mu.Unlock()
	err = s.reconcile(t.Context(), of)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sent, err
}

var (
	web      = key{Namespace: "shop", Name: "web"}
	creation = []string{"patch gateways/web", "create serviceaccounts", "create services", "create deployments"}
)

// A new Gateway takes four writes, each of what is wanted; before a cache shows them there are no further ones.
func TestWhatIsSentForANewGateway(t *testing.T) {
	p := play(t)
	s := newSending(t, p)
	if sent, err := s.takes(t, web); err != nil || !slices.Equal(sent, creation) {
		t.Errorf("sent %q, %v", sent, err)
	}
	if sent, err := s.takes(t, web); err != nil || len(sent) > 0 {
		t.Errorf("and then %q, %v", sent, err)
	}
	noted := s.bodies[creation[0]]
	if noted.GetAnnotations()[versionAnnotation] != "5" || noted.GetResourceVersion() != "7" || noted.GetUID() != "uid-1" {
		t.Errorf("onto the Gateway it writes %v", noted)
	}
	for i, kind := range Kinds {
		if o := s.bodies[creation[i+1]]; o.GetKind() != string(kind) || o.GetName() != "web-istio" || o.GetLabels()[GatewayLabel] != "web" {
			t.Errorf("it creates %v", o)
		}
	}
	if sent, err := s.takes(t, key{Namespace: "shop", Name: "none"}); err != nil || len(sent) > 0 {
		t.Errorf("for one that has gone it sends %q, %v", sent, err)
	}
}

// What was refused because the caches are behind waits for them; any other refusal is said, of each object.
func TestWhatIsSentAfterARefusal(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{}, "x", nil)
	exists := apierrors.NewAlreadyExists(schema.GroupResource{}, "x")
	forbidden := apierrors.NewForbidden(schema.GroupResource{}, "x", nil)
	ends := apierrors.NewForbidden(schema.GroupResource{}, "x", nil)
	ends.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for name, x := range map[string]struct {
		verb, resource string
		with           *apierrors.StatusError
		first, again   int
		says           []string
	}{
		"a Gateway that has changed":   {"patch", "gateways", conflict, 1, 0, nil},
		"a Gateway that may not be":    {"patch", "gateways", forbidden, 1, 1, []string{"writing the controller version onto Gateway shop/web"}},
		"objects that are there":       {"create", "", exists, 4, 0, nil},
		"objects that have changed":    {"create", "", conflict, 4, 0, nil},
		"objects that may not be":      {"create", "", forbidden, 4, 4, []string{"create ServiceAccount shop/web-istio", "create Service shop/web-istio", "create Deployment shop/web-istio"}},
		"a namespace that is going":    {"create", "", ends, 4, 4, nil},
		"objects that have gone":       {"create", "", apierrors.NewNotFound(schema.GroupResource{}, "x"), 4, 0, nil},
		"one object that has appeared": {"create", "services", exists, 4, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSending(t, play(t))
			s.refuses = func(verb, resource string) *apierrors.StatusError {
				if verb == x.verb && (x.resource == "" || x.resource == resource) {
					return x.with
				}
				return nil
			}
			for look, want := range []int{x.first, x.again} {
				sent, err := s.takes(t, web)
				if x.resource != "gateways" && look == 1 && want > 0 {
					want-- // its version was written before
				}
				if len(sent) != want || (err != nil) != (len(x.says) > 0) {
					t.Errorf("look %d: sent %q, %v", look+1, sent, err)
				}
				for _, says := range x.says {
					if err == nil || !strings.Contains(err.Error(), says) {
						t.Errorf("%v does not say %q", err, says)
					}
				}
			}
		})
	}
}

// What is there is applied where it is not as wanted, at the version that was read, and left alone where it is.
func TestWhatIsSentForAChange(t *testing.T) {
	p := play(t, annotated(versionAnnotation, "5"), func(gw *gateway.Gateway) {
		gw.Spec.Infrastructure = &gateway.GatewayInfrastructure{ParametersRef: &gateway.LocalParametersReference{Kind: "ConfigMap", Name: "params"}}
	})
	p.configs["params"] = &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "params"}, Data: map[string]string{"serviceAccount": "{imagePullSecrets: [{name: registry}], automountServiceAccountToken: false}"},
	}
	p.Image, p.Revision = "auto", "default" // as the controller's
	for _, step := range p.plan().Steps {
		p.put(step.Kind, write{ControllerName, true, step.Document}).SetUID("uid-2")
	}
	complete := newSending(t, p)
	if sent, err := complete.takes(t, web); err != nil || len(sent) > 0 || complete.incomplete(web) {
		t.Errorf("where all is as wanted it sends %q, %v", sent, err)
	}
	p.Gateway.Spec.Listeners[0].Port = 9090
	s, want := newSending(t, p), []string{"apply services/web-istio", "apply deployments/web-istio"}
	if sent, err := s.takes(t, web); err != nil || !slices.Equal(sent, want) {
		t.Errorf("sent %q, %v\n%s", sent, err, &s.log)
	}
	for _, what := range want {
		o := s.bodies[what]
		text, err := toJSON(o.Object)
		if err != nil || o.GetResourceVersion() != "42" || o.GetUID() != "uid-2" || !strings.Contains(text, "9090") {
			t.Errorf("%s: %v, %v", what, o, err)
		}
	}
	// What has changed meanwhile is not tried again before a cache shows it.
	s = newSending(t, p)
	s.refuses = func(string, string) *apierrors.StatusError {
		return apierrors.NewConflict(schema.GroupResource{}, "x", nil)
	}
	for _, writes := range []int{2, 0} {
		if sent, err := s.takes(t, web); err != nil || len(sent) != writes {
			t.Errorf("after a conflict it sends %q, %v", sent, err)
		}
	}
}

// That a Gateway has gone ends what was said of it.
func TestWhatIsGoneHasNoProblem(t *testing.T) {
	s := newSending(t, play(t))
	gone := key{Namespace: "shop", Name: "gone"}
	s.problems.Report(gone, reference(play(t, named("gone")).Gateway), problemf(ReasonInvalidName, "too long"))
	if _, err := s.takes(t, gone); err != nil || s.log.Count("Gateway can be deployed again") != 1 {
		t.Errorf("%v, the log:\n%s", err, &s.log)
	}
	s.failing(gone, errors.New("no right"))
	s.failing(web, errors.New("no right"))
	if want := []string{"gone " + ReasonInvalidName + ": too long", "web " + ReasonWriteFailed + ": no right"}; !slices.Equal(s.events, want) {
		t.Errorf("Events: %q", s.events)
	}
	// One of which the cache is behind has not gone.
	s.problems.Report(web, reference(s.Gateway), problemf(ReasonInvalidName, "too long"))
	s.refuses = func(string, string) *apierrors.StatusError {
		return apierrors.NewConflict(schema.GroupResource{}, "x", nil)
	}
	for range 2 {
		if _, err := s.takes(t, web); err != nil || s.log.Count("Gateway can be deployed again") != 1 {
			t.Errorf("behind: %v, the log:\n%s", err, &s.log)
		}
	}
}

// What keeps a Gateway from being deployed is said by an Event about it.
func TestWhatIsSaidOfAPlanWithAProblem(t *testing.T) {
	s := newSending(t, play(t, annotated(versionAnnotation, "5"), func(gw *gateway.Gateway) {
		gw.Spec.Infrastructure = &gateway.GatewayInfrastructure{ParametersRef: &gateway.LocalParametersReference{Kind: "ConfigMap", Name: "none"}}
	}))
	sent, err := s.takes(t, web)
	if err != nil || len(sent) > 0 || len(s.events) != 1 || !strings.HasPrefix(s.events[0], "web "+ReasonInvalidParameters+": ") {
		t.Errorf("sent %q, %v, Events: %q", sent, err, s.events)
	}
}

// The fields of our create are claimed by us, of the object that was read and no later one.
func TestWhatIsClaimed(t *testing.T) {
	p := play(t)
	p.settle()
	present := p.objects["Service/web-istio"]
	var patches []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodPatch {
			patches = append(patches, r.Header.Get("Content-Type")+" by "+r.URL.Query().Get("fieldManager"))
		}
		document, _ := runtime.DefaultUnstructuredConverter.ToUnstructured(present)
		o := unstructured.Unstructured{Object: document}
		o.SetGroupVersionKind(known[Service].gvk)
		_ = json.NewEncoder(w).Encode(o.Object)
	}))
	defer server.Close()
	client, err := dynamic.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	services := client.Resource(Service.Resource()).Namespace("shop")
	if got, err := claim(t.Context(), services, "web-istio", "42"); err != nil || got.GetName() != "web-istio" || !slices.Equal(patches, []string{"application/json-patch+json by " + ControllerName}) {
		t.Errorf("%v, %v, patches %q", got, err, patches)
	}
	if got, err := claim(t.Context(), services, "web-istio", "41"); !apierrors.IsConflict(err) || len(patches) != 1 {
		t.Errorf("of another version: %v, %v, patches %q", got, err, patches)
	}
}
