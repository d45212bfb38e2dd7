package gatewaydeploy

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	gateway "sigs.k8s.io/gateway-api/apis/v1"

	"incumbent.dev/incumbent/internal/testutil/apiserver"
	"incumbent.dev/incumbent/internal/testutil/controllertest"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/controllers/reconcile"
)

// sending is a controller with filled caches whose API server accepts or rejects writes and sends no events.
type sending struct {
	*Controller
	*played
	log harness.Log

	mu sync.Mutex
	// rejects returns the error of a write, or nil.
	rejects func(verb, resource string) *apierrors.StatusError
	sent    []string
	bodies  map[string]*unstructured.Unstructured
	events  []string
}

func newSending(t *testing.T, p *played) *sending {
	t.Helper()
	s := &sending{played: p, rejects: func(string, string) *apierrors.StatusError { return nil }, bodies: map[string]*unstructured.Unstructured{}}
	lists := map[string]any{
		"gateways": listed([]*gateway.Gateway{p.Gateway}), "configmaps": listed(slices.Collect(maps.Values(p.configs))),
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
	s.Controller, _ = servedBy(t, lists, s.write, Config{
		Logger: slog.New(slog.NewTextHandler(&s.log, nil)),
		Event: func(about runtime.Object, _, reason, message string, args ...any) {
			ref, _ := about.(*corev1.ObjectReference)
			s.events = append(s.events, ref.Name+" "+reason+": "+fmt.Sprintf(message, args...))
		},
	})
	harness.Must(t, s.Warm(t.Context()))
	return s
}

func (s *sending) write(r apiserver.Request) apiserver.Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	verb := r.Verb
	if r.Header.Get("Content-Type") == string(types.ApplyPatchType) {
		verb = "apply"
	}
	what := strings.TrimSuffix(verb+" "+r.Resource+"/"+r.Name, "/")
	if r.Subresource != "" {
		what += "/" + r.Subresource
	}
	if by := r.URL.Query().Get("fieldManager"); by != reconcile.GatewayController {
		s.t.Errorf("%s is by %q", what, by)
	}
	s.sent = append(s.sent, what)
	if rejected := s.rejects(verb, r.Resource); rejected != nil {
		return apiserver.Fault{Err: rejected}
	}
	o := &unstructured.Unstructured{Object: r.Body}
	s.bodies[what] = o.DeepCopy()
	if r.Resource == "gateways" {
		changed := s.Gateway.DeepCopy()
		changed.ResourceVersion = "77"
		for key, value := range o.GetAnnotations() {
			annotated(key, value)(changed)
		}
		s.Gateway = changed
		return apiserver.Fault{Object: changed}
	}
	if verb == "create" {
		return apiserver.Fault{Object: s.put(Kind(o.GetKind()), write{reconcile.GatewayController, false, o.Object})}
	}
	o.SetResourceVersion("77")
	return apiserver.Fault{Object: o}
}

// takes returns the writes of one reconcile.
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

func TestReconcile_NewGateway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
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
			t.Errorf("the Gateway patch is %v", noted)
		}
		for i, kind := range rendered {
			if o := s.bodies[creation[i+1]]; o.GetKind() != string(kind) || o.GetName() != "web-istio" || o.GetLabels()[gateway.GatewayNameLabelKey] != "web" {
				t.Errorf("created %v", o)
			}
		}
		if sent, err := s.takes(t, key{Namespace: "shop", Name: "none"}); err != nil || len(sent) > 0 {
			t.Errorf("for a missing Gateway: sent %q, %v", sent, err)
		}
	})
}

// After a rejection that shows a stale cache, the controller waits for an event. Other errors are returned.
func TestReconcile_RejectedWrite(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{}, "x", nil)
	exists := apierrors.NewAlreadyExists(schema.GroupResource{}, "x")
	forbidden := apierrors.NewForbidden(schema.GroupResource{}, "x", nil)
	ends := apierrors.NewForbidden(schema.GroupResource{}, "x", nil)
	ends.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for name, x := range map[string]struct {
		verb, resource string
		with           *apierrors.StatusError
		first, again   int
		errs           []string
	}{
		"Gateway changed":       {"patch", "gateways", conflict, 1, 0, nil},
		"Gateway forbidden":     {"patch", "gateways", forbidden, 1, 1, []string{"write annotations of Gateway shop/web"}},
		"objects exist":         {"create", "", exists, 3, 0, nil},
		"objects forbidden":     {"create", "", forbidden, 4, 3, []string{"create ServiceAccount shop/web-istio", "create Service shop/web-istio"}},
		"account exists":        {"create", "serviceaccounts", exists, 3, 0, nil},
		"account forbidden":     {"create", "serviceaccounts", forbidden, 4, 2, []string{"create ServiceAccount shop/web-istio"}},
		"Deployment forbidden":  {"create", "deployments", forbidden, 5, 2, []string{"create Deployment shop/web-istio"}},
		"namespace terminating": {"create", "", ends, 3, 3, nil},
		"one object exists":     {"create", "services", exists, 4, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSending(t, play(t))
				s.rejects = func(verb, resource string) *apierrors.StatusError {
					if verb == x.verb && (x.resource == "" || x.resource == resource) {
						return x.with
					}
					return nil
				}
				for attempt, want := range []int{x.first, x.again} {
					sent, err := s.takes(t, web)
					if x.resource != "gateways" && attempt == 1 && want > 0 {
						want-- // the version was written before
					}
					if len(sent) != want || (err != nil) != (len(x.errs) > 0) {
						t.Errorf("reconcile %d: sent %q, %v", attempt+1, sent, err)
					}
					for _, want := range x.errs {
						if err == nil || !strings.Contains(err.Error(), want) {
							t.Errorf("%v lacks %q", err, want)
						}
					}
				}
			})
		})
	}
}

func TestReconcile_Change(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := play(t, annotated(versionAnnotation, "5"))
		p.Defaults = &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: "defaults", Labels: map[string]string{ClassDefaultsLabel: reconcile.GatewayClass}}, Data: map[string]string{"serviceAccount": "{imagePullSecrets: [{name: registry}], automountServiceAccountToken: false}"},
		}
		p.configs["defaults"] = p.Defaults
		p.Revision = "default" // as in the controller
		for _, step := range p.plan().Steps {
			p.put(step.Kind, write{reconcile.GatewayController, true, step.Document}).SetUID("uid-2")
		}
		complete := newSending(t, p)
		if sent, err := complete.takes(t, web); err != nil || len(sent) > 0 || complete.incomplete(web) {
			t.Errorf("without changes: sent %q, %v", sent, err)
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
	})
}

func TestReconcile_ProblemEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSending(t, play(t))
		gone := key{Namespace: "shop", Name: "gone"}
		s.problems.Report(gone, reference(play(t, named("gone")).Gateway), problemf(reasonInvalidName, "too long"))
		if _, err := s.takes(t, gone); err != nil || s.log.Count("Gateway can be deployed again") != 1 {
			t.Errorf("%v, the log:\n%s", err, &s.log)
		}
		denied := apierrors.NewForbidden(schema.GroupResource{}, "x", errors.New("no right"))
		s.failing(gone, denied)
		s.failing(web, denied)
		s.failing(web, errors.New("no connection"))
		if want := []string{"gone " + reasonInvalidName + ": too long", "web " + reasonWriteFailed + ": " + denied.Error()}; !slices.Equal(s.events, want) {
			t.Errorf("Events: %q", s.events)
		}
		// A stale cache does not end a problem.
		s.problems.Report(web, reference(s.Gateway), problemf(reasonInvalidName, "too long"))
		s.rejects = func(string, string) *apierrors.StatusError {
			return apierrors.NewConflict(schema.GroupResource{}, "x", nil)
		}
		for range 2 {
			if _, err := s.takes(t, web); err != nil || s.log.Count("Gateway can be deployed again") != 1 {
				t.Errorf("stale cache: %v, the log:\n%s", err, &s.log)
			}
		}
	})
}

func TestReconcile_ProblemEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSending(t, play(t, annotated(versionAnnotation, "5"), parameters("none")))
		sent, err := s.takes(t, web)
		if err != nil || !slices.Equal(sent, creation[:1]) || len(s.events) != 1 || !strings.HasPrefix(s.events[0], "web "+ReasonInvalidParameters+": ") {
			t.Errorf("sent %q, %v, Events: %q", sent, err, s.events)
		}
		self := s.gateways.At(web, reconcile.Ref{Namespace: web.Namespace, Name: web.Name})
		gw, _ := self.Latest()
		if p := ProblemOf(gw); p == nil || p.Reason != ReasonInvalidParameters || !strings.Contains(p.Message, "ConfigMap shop/none") {
			t.Errorf("recorded problem: %v", p)
		}
		if sent, err := s.takes(t, web); err != nil || len(sent) > 0 {
			t.Errorf("again: sent %q, %v", sent, err)
		}
		if err := s.recordProblems(t.Context(), self, nil); err != nil {
			t.Error(err)
		}
		if annotations := s.bodies[creation[0]].Object["metadata"].(map[string]any)["annotations"]; fmt.Sprint(annotations) != "map["+ProblemAnnotation+":<nil>]" {
			t.Errorf("end of the problem: %v", annotations)
		}
	})
}

// Each change of a related object causes a reconcile.
func TestReconcile_CausedByChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := make(chan string, 100) // writes to Gateways, and Events
		var checked atomic.Bool
		c, server := servedBy(t, watchedLists(t), func(r apiserver.Request) apiserver.Fault {
			seen <- "namespaces/" + r.Namespace + "/" + r.Resource + "/" + r.Name
			switch r.Name {
			case "made":
				changed := play(t, named("made"), annotated(versionAnnotation, "5")).Gateway
				changed.ResourceVersion = "60"
				return apiserver.Fault{Object: changed}
			case "denied":
				return apiserver.Fault{Err: apierrors.NewForbidden(schema.GroupResource{}, r.Name, nil)}
			default: // the controller waits for an event
				return apiserver.Fault{Err: apierrors.NewConflict(schema.GroupResource{}, r.Name, nil)}
			}
		}, Config{
			IsMine: func(meta metav1.ObjectMeta) bool {
				if checked.Load() && meta.Name == "made" {
					seen <- "made is checked"
				}
				return true
			},
			Logger: slog.New(slog.DiscardHandler),
			Event: func(about runtime.Object, _, reason, _ string, _ ...any) {
				ref, _ := about.(*corev1.ObjectReference)
				seen <- ref.Name + " " + reason
			},
		})
		since := func() (all []string) {
			synctest.Wait()
			for len(seen) > 0 {
				all = append(all, <-seen)
			}
			return all
		}
		expect := func(of string, want ...string) {
			t.Helper()
			if got := since(); !slices.Equal(got, want) {
				t.Errorf("%s: got %q, want %q", of, got, want)
			}
		}
		controllertest.Run(t, c, func() {
			expect("start", "namespaces/shop/gateways/first")
			for _, x := range []struct {
				kind string
				o    runtime.Object
				want []string
			}{
				{"gateways", newer(play(t, named("late")).Gateway, "gateway.networking.k8s.io/v1", "Gateway"), []string{"namespaces/shop/gateways/late"}},
				{"namespaces", newer(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "store"}}, "v1", "Namespace"), []string{"namespaces/store/gateways/web"}},
				{"gatewayclasses", newer(&gateway.GatewayClass{
					ObjectMeta: metav1.ObjectMeta{Name: "own"}, Spec: gateway.GatewayClassSpec{ControllerName: reconcile.GatewayController},
				}, "gateway.networking.k8s.io/v1", "GatewayClass"), []string{"namespaces/shop/gateways/web"}},
				{"services", newer(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "made-istio"}}, "v1", "Service"), []string{"made " + ReasonNotManaged, "namespaces/shop/gateways/made"}},
				{"configmaps", newer(&corev1.ConfigMap{
					ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: defaultTemplateName}, Data: map[string]string{templateKey: "text"},
				}, "v1", "ConfigMap"), []string{"made " + ReasonInvalidTemplate, "namespaces/shop/gateways/made"}},
				{"gateways", newer(play(t, named("denied")).Gateway, "gateway.networking.k8s.io/v1", "Gateway"), []string{"namespaces/shop/gateways/denied", "denied " + reasonWriteFailed}},
			} {
				server.Put(x.o)
				expect("event of "+x.kind, x.want...)
			}
			if err := c.Run(t.Context()); !errors.Is(err, reconcile.ErrRunning) {
				t.Errorf("second Run: %v", err)
			}
			checked.Store(true)
			overlay := func(namespace, name, class string) *corev1.ConfigMap {
				labels := map[string]string{ClassDefaultsLabel: class}
				o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}, Data: map[string]string{"service": ""}}
				return newer(o, "v1", "ConfigMap")
			}
			account := newer(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "account", UID: "new"}}, "v1", "ServiceAccount")
			for name, x := range map[string]struct {
				cause func()
				want  bool
			}{
				"EnqueueAll":                    {func() { c.EnqueueAll() }, true},
				"parameters":                    {func() { server.Put(overlay("shop", "params", "")) }, true},
				"other ConfigMap":               {func() { server.Put(overlay("shop", "other", "")) }, false},
				"defaults of the class":         {func() { server.Put(overlay("system", "defaults", "istio")) }, true},
				"defaults of another class":     {func() { server.Put(overlay("system", "others", "other")) }, false},
				"defaults in another namespace": {func() { server.Put(overlay("shop", "defaults", "istio")) }, false},
				"ServiceAccount":                {func() { server.Put(account) }, true},
			} {
				x.cause()
				if got := since(); slices.Contains(got, "made is checked") != x.want {
					t.Errorf("%s caused %q", name, got)
				}
			}
		})
	})
}

// watchedLists returns the initial objects.
func watchedLists(t *testing.T) map[string]any {
	t.Helper()
	made := play(t, named("made"), annotated(versionAnnotation, "5"), annotated(accountOverride, "account"), parameters("params"))
	made.Revision = "default" // as in the controller
	made.configs["params"] = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "params"}}
	lists := map[string]any{
		"gateways": listed([]*gateway.Gateway{
			play(t, func(gw *gateway.Gateway) { gw.Namespace = "store" }).Gateway,
			play(t, func(gw *gateway.Gateway) { gw.Spec.GatewayClassName = "own" }).Gateway,
			play(t, named("first")).Gateway, made.Gateway,
		}),
		"namespaces": listed([]corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}}),
		"configmaps": listed([]*corev1.ConfigMap{made.configs["params"]}),
	}
	for _, step := range made.plan().Steps {
		lists[step.Kind.Resource().Resource] = listed([]metav1.Object{made.put(step.Kind, write{reconcile.GatewayController, true, step.Document})})
	}
	// The chosen account has no owner.
	lists["serviceaccounts"] = listed([]corev1.ServiceAccount{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "account"}}})
	return lists
}

// newer prepares an object for a watch event.
func newer[T interface {
	runtime.Object
	metav1.Object
}](o T, apiVersion, kind string) T {
	o.GetObjectKind().SetGroupVersionKind(schema.FromAPIVersionAndKind(apiVersion, kind))
	o.SetResourceVersion("50")
	return o
}

// Gateways of one namespace with an overlay that is rejected do not delay Gateways of another namespace.
func TestNamespaces_TakeTurns(t *testing.T) {
	controllertest.CheckTurns(t, func(t *testing.T) (controllertest.Controller, *controllertest.Stub) {
		s := controllertest.NewStub(t)
		for _, namespace := range []string{"many", "few"} {
			s.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
		}
		s.Put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "many", Name: "params"}, Data: map[string]string{
			"deployment": "spec: {template: {spec: {tolerations: [" + strings.Repeat("{},", maxElements+1) + "]}}}",
		}})
		c, err := New(s.Client, Config{Namespace: "system", Logger: slog.New(slog.DiscardHandler)})
		harness.Must(t, err)
		return c, s
	}, func(s *controllertest.Stub, namespace, name string) {
		gw := play(t, named(name), parameters("params")).Gateway
		gw.Namespace = namespace
		s.Put(gw)
	})
}
