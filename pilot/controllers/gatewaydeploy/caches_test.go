package gatewaydeploy

import (
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	gateway "sigs.k8s.io/gateway-api/apis/v1"

	"incumbent.dev/incumbent/internal/testutil/apiserver"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/controllers/reconcile"
	"incumbent.dev/incumbent/pkg/kube"
)

// served returns a controller whose caches are filled from lists by plural name. There are no objects of kinds that are missing in lists.
func served(t *testing.T, lists map[string]any) *Controller {
	t.Helper()
	c, _ := servedBy(t, lists, func(r apiserver.Request) apiserver.Fault {
		t.Error(r)
		return apiserver.Fault{}
	}, Config{Logger: slog.New(slog.DiscardHandler)})
	return c
}

// servedBy is like served, with a function that answers writes. Objects that the test puts in the server are changes.
func servedBy(t *testing.T, lists map[string]any, write func(apiserver.Request) apiserver.Fault, config Config) (*Controller, *apiserver.Server) {
	t.Helper()
	server := apiserver.New()
	server.On(func(r apiserver.Request) apiserver.Fault {
		switch list, some := lists[r.Resource]; {
		case r.Verb == "watch" && r.URL.Query().Get("sendInitialEvents") == "true":
			return apiserver.Fault{Err: apierrors.NewInvalid(schema.GroupKind{}, "", nil)}
		case r.Verb == "watch":
			return apiserver.Fault{}
		case r.Verb != "list":
			return write(r)
		case some:
			return apiserver.Fault{Object: list}
		default:
			return apiserver.Fault{Object: listed(nil)}
		}
	})
	client, err := kube.NewClient(server.Config(), kube.WithRateLimit(-1, 0))
	harness.Must(t, err)
	config.Namespace = "system"
	c, err := New(client, config)
	harness.Must(t, err)
	t.Cleanup(c.Close)
	return c, server
}

func listed(items any) map[string]any {
	return map[string]any{"metadata": map[string]any{"resourceVersion": "9"}, "items": items}
}

func TestCaches_Lookup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := func(namespace, name, class string, created int64) corev1.ConfigMap {
			return corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, CreationTimestamp: metav1.Unix(created, 0), Labels: map[string]string{ClassDefaultsLabel: class}},
				Data:       map[string]string{"service": name, "else": "long"},
			}
		}
		web := play(t, annotated(NameOverride, "edge"), parameters("params"), named(strings.Repeat("a", 80))).Gateway
		same := play(t, named(LabelValue(web.Name))).Gateway
		other := play(t, named("other"), func(gw *gateway.Gateway) { gw.Namespace = "store" }).Gateway
		c := served(t, map[string]any{
			"gateways": listed([]*gateway.Gateway{web, other, same}), "gatewayclasses": listed([]gateway.GatewayClass{{ObjectMeta: metav1.ObjectMeta{Name: "istio"}}}),
			"configmaps": listed([]corev1.ConfigMap{
				config("system", "newer", "istio", 200), config("system", "b", "istio", 100), config("system", "a", "istio", 100),
				config("shop", "elsewhere", "istio", 1), config("shop", "params", "", 1),
			}),
			"namespaces": listed([]corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}}),
		})
		harness.Must(t, c.Warm(t.Context()))
		if got := c.defaults("other"); got != nil {
			t.Errorf("defaults of a class without defaults: %+v", got)
		}
		gw := c.gateways.Get("shop", web.Name)
		view, seen := c.view(keyOf(gw), gw)
		if view.Gateway != gw || !*seen || view.Existing(Service, "edge") != nil || !*seen || view.Defaults == nil || view.Defaults.Name != "a" || view.Class == nil ||
			view.Parameters("a") != nil || view.Parameters("params") == nil || view.Parameters("params").Data["else"] != "" || len(view.SameLabel) != 2 {
			t.Errorf("the view is %+v, %v", view, *seen)
		}
		if !c.isMine(gw.ObjectMeta) || c.isMine(other.ObjectMeta) || !c.incomplete(keyOf(gw)) || c.incomplete(key{Namespace: "shop", Name: "none"}) {
			t.Error("wrong result of isMine or incomplete")
		}
		if c.config.IsMine = func(metav1.ObjectMeta) bool { return false }; c.isMine(gw.ObjectMeta) {
			t.Error("isMine is true for another revision")
		}
	})
}

// meta returns metadata with more fields than are kept.
func meta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: "uid", ResourceVersion: "3", Generation: 9, CreationTimestamp: metav1.Unix(100, 0),
		Labels: map[string]string{"istio.io/rev": "canary", "other": "label"}, Annotations: map[string]string{"an": "annotation"},
		ManagedFields: []metav1.ManagedFieldsEntry{
			{Manager: reconcile.GatewayController, Operation: metav1.ManagedFieldsOperationApply},
			{Manager: reconcile.GatewayController, Operation: metav1.ManagedFieldsOperationUpdate, Subresource: "status"},
			{Manager: "kubectl", Operation: metav1.ManagedFieldsOperationUpdate},
		},
	}
}

// slim returns the metadata that is always kept.
func slim(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "uid", ResourceVersion: "3"}
}

func TestCaches_Keep(t *testing.T) {
	c := unstarted(t, Config{Namespace: "system"})
	labelled := slim("shop", "web")
	labelled.Labels, labelled.Annotations, labelled.Generation = meta("", "").Labels, meta("", "").Annotations, 9
	labelled.CreationTimestamp = metav1.Unix(100, 0)
	spec := gateway.GatewaySpec{GatewayClassName: "a"}
	revision := slim("", "shop")
	revision.Labels = map[string]string{"istio.io/rev": "canary"}
	data := map[string]string{"deployment": "a", "service": "b", "serviceAccount": "c", templateKey: "d", "other": "e"}
	defaults, kept := meta("shop", "web"), slim("shop", "web")
	defaults.Labels = map[string]string{ClassDefaultsLabel: "istio", "other": "label"}
	kept.Labels, kept.CreationTimestamp = map[string]string{ClassDefaultsLabel: "istio"}, metav1.Unix(100, 0)
	parameters := gateway.ParametersReference{Name: "a"}
	overlays := map[string]string{"deployment": "a", "service": "b", "serviceAccount": "c", templateKey: "", "other": ""}
	for name, c := range map[string]struct{ got, want any }{
		"Gateway": {
			keepGateway(&gateway.Gateway{ObjectMeta: meta("shop", "web"), Spec: spec, Status: gateway.GatewayStatus{Conditions: []metav1.Condition{{Type: "a"}, {Type: "Programmed", Status: "True", Reason: "a", ObservedGeneration: 9}}}}),
			&gateway.Gateway{ObjectMeta: labelled, Spec: spec, Status: gateway.GatewayStatus{Conditions: []metav1.Condition{{Type: "Programmed", Status: "True", ObservedGeneration: 9}}}},
		},
		"class": {
			keepClass(&gateway.GatewayClass{ObjectMeta: meta("", "a"), Spec: gateway.GatewayClassSpec{ControllerName: "c", ParametersRef: &parameters, Description: new(string)}}),
			&gateway.GatewayClass{ObjectMeta: slim("", "a"), Spec: gateway.GatewayClassSpec{ControllerName: "c", ParametersRef: &parameters}},
		},
		"namespace": {
			keepNamespace(&corev1.Namespace{ObjectMeta: meta("", "shop"), Spec: corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{"a"}}}),
			&corev1.Namespace{ObjectMeta: revision},
		},
		"ConfigMap": {
			c.keepConfigMap(&corev1.ConfigMap{ObjectMeta: meta("shop", "web"), Data: data, BinaryData: map[string][]byte{"a": nil}}),
			&corev1.ConfigMap{ObjectMeta: slim("shop", "web"), Data: overlays},
		},
		"class defaults": {
			c.keepConfigMap(&corev1.ConfigMap{ObjectMeta: defaults, Data: data}), &corev1.ConfigMap{ObjectMeta: kept, Data: overlays},
		},
		"template": {
			c.keepConfigMap(&corev1.ConfigMap{ObjectMeta: meta("system", defaultTemplateName), Data: data}),
			&corev1.ConfigMap{ObjectMeta: slim("system", defaultTemplateName), Data: data},
		},
		"template name in another namespace": {
			c.keepConfigMap(&corev1.ConfigMap{ObjectMeta: meta("shop", defaultTemplateName), Data: data}),
			&corev1.ConfigMap{ObjectMeta: slim("shop", defaultTemplateName), Data: overlays},
		},
	} {
		if !reflect.DeepEqual(c.got, c.want) {
			t.Errorf("%s: kept\n%+v, want\n%+v", name, c.got, c.want)
		}
	}
}

func TestCurrentTemplate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		filled := func(items ...corev1.ConfigMap) *Controller {
			c := served(t, map[string]any{"configmaps": listed(items)})
			harness.Must(t, c.Warm(t.Context()))
			return c
		}
		configMap := corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: defaultTemplateName}, Data: map[string]string{templateKey: embedded}}
		c := filled(configMap)
		first, err := c.currentTemplate()
		again, _ := c.currentTemplate()
		if want := "key " + templateKey + " of ConfigMap system/" + defaultTemplateName; err != nil || first.source != want || again != first {
			t.Errorf("%+v, %v, then %+v", first, err, again)
		}
		configMap.Data = map[string]string{templateKey: "{{ .Name"}
		if got, err := filled(configMap).currentTemplate(); err == nil {
			t.Errorf("invalid template: %+v", got)
		}
		unused := unstarted(t, Config{Namespace: "system"})
		first, err = unused.currentTemplate()
		again, _ = unused.currentTemplate()
		if err != nil || first == nil || first.source != "built-in template" || first != again {
			t.Errorf("without a ConfigMap: %+v, %v, then %+v", first, err, again)
		}
	})
}
