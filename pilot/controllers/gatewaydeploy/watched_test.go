package gatewaydeploy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	gateway "sigs.k8s.io/gateway-api/apis/v1"

	"incumbent.dev/incumbent/pilot/controllers/reconcile"
)

// A Gateway is looked at when it is new, and when its class, its namespace or an object of its is: nobody else has it
// looked at again.
func TestWhatIsNewHasGatewaysLookedAt(t *testing.T) {
	seen := make(chan string, 100) // writes onto Gateways, and Events
	var asked atomic.Bool
	lists, added := watchedLists(t)
	c := servedBy(t, lists, func(w http.ResponseWriter, r *http.Request) {
		_, what, _ := strings.Cut(r.URL.Path, "/v1/")
		seen <- what
		status := metav1.Status{Status: "Failure", Reason: metav1.StatusReasonConflict, Code: http.StatusConflict} // which has it wait for the cache
		if strings.HasSuffix(what, "/denied") {
			status.Reason, status.Code = metav1.StatusReasonForbidden, http.StatusForbidden
		}
		w.WriteHeader(int(status.Code))
		_ = json.NewEncoder(w).Encode(status)
	}, Config{
		IsMine: func(meta metav1.ObjectMeta) bool {
			if asked.Load() && meta.Name == "made" {
				seen <- "made is asked for"
			}
			return true
		},
		Logger: slog.New(slog.DiscardHandler), Workers: 1, // one after the other, in the order in which they come
		Event: func(about runtime.Object, _, reason, _ string, _ ...any) {
			ref, _ := about.(*corev1.ObjectReference)
			seen <- ref.Name + " " + reason
		},
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	limit := time.After(bound)
	expect := func(of, want string) {
		t.Helper()
		select {
		case got := <-seen:
			if got != want {
				t.Errorf("with %s there is %q, want %q", of, got, want)
			}
		case <-limit:
			t.Errorf("with %s there is nothing, want %q", of, want)
		}
	}
	// From here on what was there at first waits to be looked at, and after the new Gateway all of it was.
	expect("what was there at first", "namespaces/shop/gateways/first")
	for _, x := range []struct {
		kind string
		o    runtime.Object
		want string
	}{
		{"gateways", newer(play(t, named("late")).Gateway, "gateway.networking.k8s.io/v1", "Gateway"), "namespaces/shop/gateways/late"},
		{"namespaces", newer(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "store"}}, "v1", "Namespace"), "namespaces/store/gateways/web"},
		{"gatewayclasses", newer(&gateway.GatewayClass{
			ObjectMeta: metav1.ObjectMeta{Name: "own"}, Spec: gateway.GatewayClassSpec{ControllerName: ControllerName},
		}, "gateway.networking.k8s.io/v1", "GatewayClass"), "namespaces/shop/gateways/web"},
		{"services", newer(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "made-istio"}}, "v1", "Service"), "made " + ReasonNotManaged},
		{"configmaps", newer(&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: DefaultTemplateName}, Data: map[string]string{TemplateKey: "text"},
		}, "v1", "ConfigMap"), "made " + ReasonInvalidTemplate},
		{"gateways", newer(play(t, named("denied")).Gateway, "gateway.networking.k8s.io/v1", "Gateway"), "namespaces/shop/gateways/denied"},
	} {
		select {
		case added[x.kind] <- x.o:
		case <-limit:
			t.Fatalf("nobody watches %s", x.kind)
		}
		expect("one of "+x.kind, x.want)
	}
	expect("a refusal", "denied "+ReasonWriteFailed)
	if err := c.Run(ctx); !errors.Is(err, reconcile.ErrRunning) {
		t.Errorf("run twice: %v", err)
	}
	asked.Store(true)
	c.Refresh()
	for got := range seen { // among further tries of what was refused
		if got == "made is asked for" {
			break
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// watchedLists are what is there at first, and what each watch will show.
func watchedLists(t *testing.T) (lists map[string]any, added map[string]chan runtime.Object) {
	t.Helper()
	made := play(t, named("made"), annotated(versionAnnotation, "5"))
	made.Image, made.Revision = "auto", "default" // as the controller's
	lists, added = map[string]any{
		"gateways": listed([]*gateway.Gateway{
			play(t, func(gw *gateway.Gateway) { gw.Namespace = "store" }).Gateway,
			play(t, func(gw *gateway.Gateway) { gw.Spec.GatewayClassName = "own" }).Gateway,
			play(t, named("first")).Gateway, made.Gateway,
		}),
		"namespaces":     listed([]corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}}),
		"gatewayclasses": listed(nil), "configmaps": listed(nil),
	}, map[string]chan runtime.Object{}
	for _, step := range made.plan().Steps {
		lists[step.Kind.Resource().Resource] = listed([]metav1.Object{made.put(step.Kind, write{ControllerName, true, step.Document})})
	}
	for _, kind := range []string{"gateways", "gatewayclasses", "configmaps", "namespaces", "services"} {
		added[kind] = make(chan runtime.Object)
		lists["watch "+kind] = added[kind]
	}
	return lists, added
}

// newer is an object as a watch shows it after a list.
func newer[T interface {
	runtime.Object
	metav1.Object
}](o T, apiVersion, kind string) T {
	o.GetObjectKind().SetGroupVersionKind(schema.FromAPIVersionAndKind(apiVersion, kind))
	o.SetResourceVersion("50")
	return o
}

// Of many Gateways the one for which something is missing is looked at first.
func TestWhatIsLookedAtFirst(t *testing.T) {
	incomplete := play(t, named("first"), annotated(versionAnnotation, "5"))
	all, objects := []*gateway.Gateway{incomplete.Gateway}, map[string][]metav1.Object{}
	for i := range 200 {
		made := play(t, named(fmt.Sprintf("made-%d", i))).Gateway
		all = append(all, made)
		for _, kind := range Kinds {
			o := known[kind].empty()
			o.SetNamespace(made.Namespace)
			o.SetName(namesOf(made).of(kind))
			objects[kind.Resource().Resource] = append(objects[kind.Resource().Resource], o)
		}
	}
	lists := map[string]any{
		"gateways": listed(all), "gatewayclasses": listed(nil), "configmaps": listed(nil),
		"namespaces": listed([]corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}}),
	}
	for kind, items := range objects {
		lists[kind] = listed(items)
	}
	looked := make(chan string, 1000)
	c := servedBy(t, lists, nil, Config{Logger: slog.New(slog.DiscardHandler), Workers: 1, IsMine: func(meta metav1.ObjectMeta) bool {
		looked <- meta.Name
		return false // nothing is to be written
	}})
	if err := c.Warm(t.Context()); err != nil { // else each is looked at as it comes
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	select {
	case first := <-looked:
		if first != "first" {
			t.Errorf("%s is looked at first", first)
		}
	case <-time.After(bound):
		t.Error("nothing is looked at")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
