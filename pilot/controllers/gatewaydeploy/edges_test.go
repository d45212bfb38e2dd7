package gatewaydeploy

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	gateway "sigs.k8s.io/gateway-api/apis/v1"

	"incumbent.dev/incumbent/internal/testutil/harness"
)

// Each kind has the API's name, and its owner is the Gateway by name and UID.
func TestWhatIsWhatKind(t *testing.T) {
	for kind, want := range map[Kind]string{ServiceAccount: "/v1, Resource=serviceaccounts", Service: "/v1, Resource=services", Deployment: "apps/v1, Resource=deployments"} {
		if got := kind.Resource().String(); got != want {
			t.Errorf("%s is %s", kind, got)
		}
	}
	p := play(t)
	for _, step := range p.plan().Steps {
		owners := p.plan().document(step.Kind).GetOwnerReferences()
		if want := (metav1.OwnerReference{APIVersion: "gateway.networking.k8s.io/v1", Kind: "Gateway", Name: "web", UID: "uid-1"}); len(owners) != 1 || owners[0] != want {
			t.Errorf("the owners of the %s are %+v", step.Kind, owners)
		}
	}
}

// A name of nothing but separators is none; a port is called something all the same.
func TestPortsOfListenersWithoutAName(t *testing.T) {
	used := sets.New[string]()
	for _, want := range []string{"port-80", "port-80-1"} {
		if got := portName("..", 80, used); got != want {
			t.Errorf("the port is called %q, want %q", got, want)
		}
	}
}

// An empty name is none that was chosen.
func TestWhatIsAnEmptyName(t *testing.T) {
	if got := namesOf(play(t, annotated(accountOverride, "")).Gateway); got.chosenAccount || got.account != "web-istio" {
		t.Errorf("the names are %+v", got)
	}
}

// A Deployment without a selector has none to be kept.
func TestWhatIsNoSelector(t *testing.T) {
	document := map[string]any{"spec": map[string]any{"selector": "as wanted"}}
	keepSelector(&appsv1.Deployment{}, document)
	// One that can be changed is not.
	keepSelector(&appsv1.Deployment{Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}}}, document)
	if text := fmt.Sprint(document); text != "map[spec:map[selector:as wanted]]" {
		t.Error(text)
	}
}

// The template is that of the ConfigMap from the first look on, and the program's own when there is none any more.
func TestTheTemplateIsOfAConfigMap(t *testing.T) {
	with := corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: DefaultTemplateName}, Data: map[string]string{TemplateKey: embedded}}
	filled := func(items ...corev1.ConfigMap) *Controller {
		c := served(t, map[string]any{
			"gateways": listed(nil), "gatewayclasses": listed(nil), "configmaps": listed(items), "services": listed(nil),
			"namespaces": listed(nil), "serviceaccounts": listed(nil), "deployments": listed(nil),
		})
		if err := c.Warm(t.Context()); err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := filled(with)
	first, err := c.currentTemplate()
	again, _ := c.currentTemplate()
	if want := "key " + TemplateKey + " of ConfigMap system/" + DefaultTemplateName; err != nil || first.source != want || again != first {
		t.Errorf("%+v, %v, and then %+v", first, err, again)
	}
	with.Data = map[string]string{TemplateKey: "{{ .Name"}
	if got, err := filled(with).currentTemplate(); err == nil {
		t.Errorf("one that is none: %+v", got)
	}
	without := filled()
	without.template = c.template
	if got, err := without.currentTemplate(); err != nil || got.source != "the program's own template" {
		t.Errorf("after it has gone: %+v, %v", got, err)
	}
}

// What cannot be deployed is said by an Event and in the log, and so is that it is over.
func TestWhatIsSaidOfAProblem(t *testing.T) {
	var log harness.Log
	var events []string
	c := unstarted(t, Config{
		Namespace: "system", Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Event: func(about runtime.Object, _, reason, message string, args ...any) {
			if ref, _ := about.(*corev1.ObjectReference); ref == nil || ref.Kind != "Gateway" || ref.APIVersion != "gateway.networking.k8s.io/v1" || ref.Name != "web" {
				t.Errorf("the Event is about %+v", about)
			}
			events = append(events, reason+" "+fmt.Sprintf(message, args...))
		},
	})
	gw := play(t).Gateway
	c.problems.Report(keyOf(gw), reference(gw), problemf(ReasonInvalidName, "too long"))
	c.problems.Report(keyOf(gw), reference(gw))
	if len(events) != 1 || !strings.HasPrefix(events[0], ReasonInvalidName+" too long") {
		t.Errorf("Events: %q", events)
	}
	if log.Count("Gateway cannot be deployed as it is", "too long") != 1 || log.Count("Gateway can be deployed again") != 1 {
		t.Errorf("the log:\n%s", &log)
	}
	// Of one that has gone there is nobody to tell.
	c.failing(keyOf(gw), errors.New("no right"))
	if len(events) != 1 {
		t.Errorf("Events: %q", events)
	}
}

// An account that was chosen may be anybody's; that says nothing of a Service of the Gateway's name.
func TestWhatIsThereUnderAChosenAccount(t *testing.T) {
	p := play(t, annotated(accountOverride, "sa"))
	p.objects["Service/web-istio"] = &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-istio"}}
	p.objects["ServiceAccount/sa"] = &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "sa"}}
	if got := p.plan().actions(); got != "leave leave:"+ReasonNotManaged+" create" {
		t.Errorf("the plan is %s", got)
	}
}

// A template is read once, until its text changes.
func TestTheTemplateIsReadAgain(t *testing.T) {
	with := corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: DefaultTemplateName}, Data: map[string]string{TemplateKey: embedded}}
	c := served(t, map[string]any{
		"gateways": listed(nil), "gatewayclasses": listed(nil), "configmaps": listed([]corev1.ConfigMap{with}), "services": listed(nil),
		"namespaces": listed(nil), "serviceaccounts": listed(nil), "deployments": listed(nil),
	})
	if err := c.Warm(t.Context()); err != nil {
		t.Fatal(err)
	}
	other := "other"
	c.template = parsed{text: &other, template: DefaultTemplate(), problem: errors.New("of the other")}
	if got, err := c.currentTemplate(); err != nil || !strings.HasPrefix(got.source, "key ") {
		t.Errorf("%+v, %v", got, err)
	}
}

// Infrastructure without labels or annotations leaves the Gateway's own in force.
func TestWhatIsInfrastructureWithoutLabels(t *testing.T) {
	gw := play(t, func(gw *gateway.Gateway) {
		gw.Labels, gw.Annotations = map[string]string{"own": "label"}, map[string]string{"own": "annotation"}
		gw.Spec.Infrastructure = &gateway.GatewayInfrastructure{}
	}).Gateway
	if labels, annotations := infrastructure(gw); labels["own"] != "label" || annotations["own"] != "annotation" {
		t.Errorf("%v, %v", labels, annotations)
	}
}
