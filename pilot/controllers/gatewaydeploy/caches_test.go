package gatewaydeploy

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	gateway "sigs.k8s.io/gateway-api/apis/v1"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pkg/kube"
)

// served is a controller whose caches are filled from lists, by the plural of the kind; nothing changes afterwards. A
// kind that is not in it is not known. What a channel under "watch " and the plural gives is shown as new.
func served(t *testing.T, lists map[string]any) *Controller {
	t.Helper()
	return servedBy(t, lists, func(w http.ResponseWriter, r *http.Request) { t.Errorf("%s %s", r.Method, r.URL) }, Config{Logger: slog.New(slog.DiscardHandler)})
}

// servedBy is served with what answers writes.
func servedBy(t *testing.T, lists map[string]any, write http.HandlerFunc, config Config) *Controller {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			w.Header().Set("Content-Type", "application/json")
			write(w, r)
			return
		}
		_, kind, _ := strings.Cut(r.URL.Path, "/v1/")
		list, known := lists[kind]
		w.Header().Set("Content-Type", "application/json")
		switch {
		case !known:
			w.WriteHeader(http.StatusNotFound)
			list = metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound}
		case r.URL.Query().Get("sendInitialEvents") != "":
			w.WriteHeader(http.StatusUnprocessableEntity)
			list = metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Reason: metav1.StatusReasonInvalid, Code: http.StatusUnprocessableEntity}
		case r.URL.Query().Get("watch") != "":
			_ = http.NewResponseController(w).Flush() // fails when the test has ended
			added, _ := lists["watch "+kind].(chan runtime.Object)
			for {
				select {
				case <-r.Context().Done():
					return
				case o := <-added:
					_ = json.NewEncoder(w).Encode(metav1.WatchEvent{Type: "ADDED", Object: runtime.RawExtension{Object: o}})
					_ = http.NewResponseController(w).Flush()
				}
			}
		}
		_ = json.NewEncoder(w).Encode(list)
	}))
	t.Cleanup(server.Close)
	client, err := kube.NewClient(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	config.Namespace = "system"
	c, err := New(client, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		kube.CloseIdleConnections(c.loop.Client())
		server.CloseClientConnections()
	})
	return c
}

func listed(items any) map[string]any {
	return map[string]any{"metadata": map[string]any{"resourceVersion": "9"}, "items": items}
}

// Which Gateways a change concerns, which defaults are in force, and what is seen of one Gateway.
func TestWhatIsFoundInTheCaches(t *testing.T) {
	config := func(namespace, name, class string, created int64) corev1.ConfigMap {
		meta := metav1.ObjectMeta{Namespace: namespace, Name: name, CreationTimestamp: metav1.Unix(created, 0)}
		if class != "" {
			meta.Labels = map[string]string{ClassDefaultsLabel: class}
		}
		return corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"service": name, "else": "long"}}
	}
	configs := map[string]corev1.ConfigMap{}
	var all []corev1.ConfigMap
	for _, one := range []corev1.ConfigMap{
		config("system", "newer", "istio", 200), config("system", "b", "istio", 100), config("system", "a", "istio", 100),
		config("shop", "elsewhere", "istio", 1), config("shop", "params", "", 1), config("system", "params", "", 1),
		config("shop", DefaultTemplateName, "", 1),
	} {
		configs[one.Namespace+"/"+one.Name] = one
		all = append(all, one)
	}
	configs["the template"] = config("system", DefaultTemplateName, "", 1)
	web := play(t, annotated(NameOverride, "edge"), annotated(accountOverride, "sa"), func(gw *gateway.Gateway) {
		gw.Spec.Infrastructure = &gateway.GatewayInfrastructure{ParametersRef: &gateway.LocalParametersReference{Kind: "ConfigMap", Name: "params"}}
	}).Gateway
	web.Status.Conditions = []metav1.Condition{{Type: "Accepted"}}
	other := play(t, named("other"), func(gw *gateway.Gateway) { gw.Namespace, gw.Spec.GatewayClassName = "store", "other" }).Gateway
	c := served(t, map[string]any{
		"gateways": listed([]*gateway.Gateway{web, other}), "gatewayclasses": listed([]gateway.GatewayClass{{ObjectMeta: metav1.ObjectMeta{Name: "istio", Annotations: map[string]string{"long": "text"}}}}), "configmaps": listed(all), "services": listed(nil),
		"namespaces": listed([]corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{"long": "text"}}}}), "serviceaccounts": listed(nil), "deployments": listed(nil),
	})
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	if err := c.Warm(ctx); err != nil {
		t.Fatal(err)
	}
	if err := wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, bound, true, func(context.Context) (bool, error) { return c.Problem() == nil, nil }); err != nil {
		t.Errorf("%v: %v", err, c.Problem())
	}
	names := func(keys []key) string {
		var all []string
		for _, k := range keys {
			all = append(all, k.String())
		}
		slices.Sort(all)
		return strings.Join(all, " ")
	}
	for name, want := range map[string]string{
		"the template": "shop/web store/other", "shop/" + DefaultTemplateName: "", "shop/params": "shop/web", "system/params": "",
		"system/a": "shop/web", "system/newer": "shop/web", "shop/elsewhere": "",
	} {
		one := configs[name]
		if got := names(c.concerned(&one)); got != want {
			t.Errorf("ConfigMap %s concerns %q, want %q", name, got, want)
		}
	}
	for value, want := range map[[2]string]string{
		{byNamespace, "shop"}: "shop/web", {byNamespace, "store"}: "store/other", {byClass, "istio"}: "shop/web", {byClass, "other"}: "store/other",
		{byWanted, "Service/shop/edge"}: "shop/web", {byWanted, "Deployment/shop/edge"}: "shop/web", {byWanted, "ServiceAccount/shop/sa"}: "shop/web",
		{byWanted, "Service/shop/web-istio"}: "", {byParameters, "shop/params"}: "shop/web", {byParameters, "store/"}: "",
	} {
		if got := names(c.indexed(value[0], value[1])); got != want {
			t.Errorf("by %v there is %q, want %q", value, got, want)
		}
	}
	if got := c.defaults("istio"); got == nil || got.Name != "a" {
		t.Errorf("the defaults are %+v, want those of a", got)
	}
	if got := c.defaults("other"); got != nil {
		t.Errorf("a class without has the defaults %+v", got)
	}
	gw := c.gateways.Get("shop", "web")
	view, seen := c.view(keyOf(gw), gw)
	if view.Gateway != gw || !*seen || view.Existing(Service, "edge") != nil || view.Parameters("params") == nil || view.Parameters("a") != nil || view.Defaults.Name != "a" ||
		view.Class == nil || view.Class.Annotations != nil || view.Image != "auto" || view.Parameters("params").Data["else"] != "" || !*seen {
		t.Errorf("what is seen is %+v, %v", view, *seen)
	}
	if !c.isMine(gw.ObjectMeta) || c.isMine(other.ObjectMeta) || !c.incomplete(keyOf(gw)) || c.incomplete(key{Namespace: "shop", Name: "none"}) {
		t.Error("whose namespace is known, or what is incomplete, is wrong")
	}
	if c.config.IsMine = func(metav1.ObjectMeta) bool { return false }; c.isMine(gw.ObjectMeta) {
		t.Error("one of another revision is ours")
	}
	if len(gw.Status.Conditions) > 0 || len(c.namespaces.Get("", "shop").Labels) > 0 {
		t.Errorf("of a Gateway %+v is kept, and of its namespace %+v", gw.Status, c.namespaces.Get("", "shop").Labels)
	}
}

// A kind that the API server does not know is the controller's problem, by its name.
func TestWhatIsFoundOfAKindThatIsMissing(t *testing.T) {
	kinds := []string{"configmaps", "namespaces", "services", "serviceaccounts", "deployments", "gateways", "gatewayclasses"}
	for _, missing := range kinds {
		lists := map[string]any{}
		for _, kind := range kinds {
			if kind != missing {
				lists[kind] = listed(nil)
			}
		}
		var log harness.Log
		c := servedBy(t, lists, nil, Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		ctx, cancel := context.WithCancel(t.Context())
		warm := make(chan error, 1)
		go func() { warm <- c.Warm(ctx) }()
		var problem error
		err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, bound, true, func(context.Context) (bool, error) {
			problem = c.Problem()
			return problem != nil && strings.HasPrefix(problem.Error(), missing+": "), nil
		})
		cancel()
		if warmed := <-warm; err != nil || warmed == nil {
			t.Errorf("without %s the problem is %v, and it was warmed with %v", missing, problem, warmed)
		} else if !strings.HasPrefix(warmed.Error(), "gateway deployment controller: filling caches: ") {
			t.Errorf("it does not say who: %v", warmed)
		}
		if log.Count("does not know a kind", "kind="+missing, `instead="no Gateway is deployed"`) != 1 {
			t.Errorf("the log:\n%s", &log)
		}
	}
}
