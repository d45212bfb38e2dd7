package gatewaydeploy

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	gateway "sigs.k8s.io/gateway-api/apis/v1"

	"incumbent.dev/incumbent/pkg/kube"
)

func TestAGatewayIsDeployedByFourWritesAndNoMore(t *testing.T) {
	w := newWorld(t)
	w.create("web")
	w.controller()
	w.deployed("web-istio")
	w.settled()
	// Changes that are none of the controller's.
	gw, err := w.gateways.Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := gw.Annotations[versionAnnotation]; got != "5" {
		t.Errorf("the controller version on the Gateway is %q", got)
	}
	gw.Status.Conditions = []metav1.Condition{{Type: "Accepted", Status: "True", Reason: "Accepted", LastTransitionTime: metav1.Now()}}
	if _, err := w.gateways.UpdateStatus(t.Context(), gw, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.patch(Service, "web-istio", `{"metadata":{"annotations":{"others":"say"}}}`)
	w.patch(Deployment, "web-istio", `{"spec":{"replicas":3}}`)
	w.settled()
	writes := w.took()
	if want := 1 + 3 + 2*sentinelWrites; len(writes) != want {
		t.Errorf("%d writes, want %d: %v", len(writes), want, writes)
	}
	if said := w.said(); len(said) > 0 {
		t.Errorf("there are Events: %q", said)
	}
}

// A Gateway without its objects is looked at before those that have theirs.
func TestWhichGatewaysComeFirst(t *testing.T) {
	w := newWorld(t)
	w.create("web")
	_, stop := w.controller()
	w.deployed("web-istio")
	w.settled()
	stop()
	w.create("late")
	c := w.new()
	defer kube.CloseIdleConnections(c.loop.Client())
	defer c.Close()
	if err := c.Warm(w.Context()); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"web": false, "late": true, "unknown": false} {
		if first := c.incomplete(key{Namespace: w.namespace, Name: name}); first != want {
			t.Errorf("%s comes first: %v", name, first)
		}
	}
}

func TestChangesAreAppliedAndOthersFieldsStay(t *testing.T) {
	w := newWorld(t)
	w.create("web")
	w.controller()
	w.deployed("web-istio")
	w.ports("web-istio", 15021, 8080)
	w.patch(Service, "web-istio", `{"metadata":{"annotations":{"others":"say"}}}`)
	w.patch(Deployment, "web-istio", `{"spec":{"replicas":3}}`)
	w.edit("web", `{"spec":{"listeners":[{"name":"http","port":9090,"protocol":"HTTP"}]}}`)
	// The port that was created is not wanted any more, and goes.
	w.ports("web-istio", 15021, 9090)
	w.listens("9090")
	w.edit("web", `{"spec":{"listeners":[{"name":"http","port":9091,"protocol":"HTTP"}]}}`)
	w.ports("web-istio", 15021, 9091)
	w.listens("9091")
	service, deployment := w.get(Service, "web-istio"), w.get(Deployment, "web-istio")
	if got := service.GetAnnotations()["others"]; got != "say" {
		t.Errorf("another's annotation is %q", got)
	}
	if replicas, _, _ := unstructured.NestedInt64(deployment.Object, "spec", "replicas"); replicas != 3 {
		t.Errorf("another's replicas are %d", replicas)
	}
	w.settled()
	// version, 3 creates; twice Service and Deployment, the first time each with a claim.
	if writes, want := w.took(), 4+2*2+2+sentinelWrites; len(writes) != want {
		t.Errorf("%d writes, want %d: %v", len(writes), want, writes)
	}
	// What somebody changes of ours comes back.
	w.patch(Service, "web-istio", `{"spec":{"type":"NodePort"}}`)
	w.until("it is a LoadBalancer again", func() error {
		if kind, _, _ := unstructured.NestedString(w.get(Service, "web-istio").Object, "spec", "type"); kind != "LoadBalancer" {
			return fmt.Errorf("it is a %s", kind)
		}
		return nil
	})
	before := w.get(ServiceAccount, "web-istio").GetUID()
	if err := w.admin.CoreV1().ServiceAccounts(w.namespace).Delete(t.Context(), "web-istio", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.until("the account is there again", func() error {
		if o := w.get(ServiceAccount, "web-istio"); o == nil || o.GetUID() == before {
			return errors.New("it is not")
		}
		return nil
	})
}

// listens waits until the Deployment has its Pods listen on a port.
func (w *world) listens(port string) {
	w.Helper()
	w.until("the Pods listen on "+port, func() error {
		if content, _ := toJSON(w.get(Deployment, "web-istio").Object); !strings.Contains(content, `"`+port+`"`) {
			return errors.New("they do not")
		}
		return nil
	})
}

// foreign makes a Service that is somebody's.
func (w *world) foreign(name string) *corev1.Service {
	w.Helper()
	made, err := w.admin.CoreV1().Services(w.namespace).Create(w.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"whose": "somebody's"}},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1}}},
	}, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return made
}

// untouched checks that an object is as it was.
func (w *world) untouched(before *corev1.Service) {
	w.Helper()
	after, err := w.admin.CoreV1().Services(w.namespace).Get(w.Context(), before.Name, metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	if after.UID != before.UID || after.ResourceVersion != before.ResourceVersion {
		w.Errorf("Service %s was touched: %+v", before.Name, after)
	}
}

func TestAForeignServiceOfOurNameStaysUntouched(t *testing.T) {
	w := newWorld(t)
	before := w.foreign("web-istio")
	w.create("web")
	w.controller()
	w.event("web "+ReasonNotManaged, "Service", "web-istio")
	w.until("the others are made", func() error {
		if w.get(ServiceAccount, "web-istio") == nil || w.get(Deployment, "web-istio") == nil {
			return errors.New("they are not")
		}
		return nil
	})
	w.edit("web", `{"metadata":{"labels":{"a":"b"}}}`)
	w.settled()
	w.untouched(before)
	if said := w.said(); len(said) != 1 {
		t.Errorf("the Events are %q", said)
	}
	if err := w.admin.CoreV1().Services(w.namespace).Delete(t.Context(), "web-istio", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.ports("web-istio", 15021, 8080)
}

// What somebody makes, replaces or deletes between our read and our write is not taken over.
func TestWhatChangesBetweenReadAndWriteIsNotTakenOver(t *testing.T) {
	services := func(verb string) func(call) bool {
		return func(c call) bool { return c.verb == verb && strings.Contains(c.path, "/services") }
	}
	t.Run("made before a create", func(t *testing.T) {
		w := newWorld(t)
		var before *corev1.Service
		is := services("POST")
		w.hook(func(c call) error {
			if is(c) && before == nil {
				before = w.foreign("web-istio")
			}
			return nil
		})
		w.create("web")
		w.controller()
		w.event("web "+ReasonNotManaged, "Service", "web-istio")
		w.hook(nil)
		w.settled()
		w.untouched(before)
	})
	for name, remake := range map[string]bool{"replaced before an apply": true, "deleted before an apply": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.create("web")
			w.controller()
			w.deployed("web-istio")
			w.edit("web", `{"spec":{"listeners":[{"name":"http","port":9090,"protocol":"HTTP"}]}}`)
			w.ports("web-istio", 15021, 9090) // claimed by now
			old := w.get(Service, "web-istio").GetUID()
			var before *corev1.Service
			applies, done := 0, false
			is := services("APPLY")
			w.hook(func(c call) error {
				if !is(c) {
					return nil
				}
				applies++
				if done {
					return nil
				}
				done = true
				if err := w.admin.CoreV1().Services(w.namespace).Delete(t.Context(), "web-istio", metav1.DeleteOptions{}); err != nil {
					return err
				}
				if remake {
					before = w.foreign("web-istio")
				}
				return nil
			})
			w.edit("web", `{"spec":{"listeners":[{"name":"http","port":9091,"protocol":"HTTP"}]}}`)
			if remake {
				w.event("web "+ReasonNotManaged, "Service", "web-istio")
				w.settled()
				w.untouched(before)
				return
			}
			w.ports("web-istio", 15021, 9091)
			w.settled()
			last := w.written()
			posts := 0
			for _, c := range last {
				if services("POST")(c) {
					posts++
				}
			}
			if o := w.get(Service, "web-istio"); o.GetUID() == old || posts != 3 { // at first, the sentinel's, and this one
				t.Errorf("the Service was not made by a create: %v", last)
			}
		})
	}
}

// Of two versions of the controller that come to a new Gateway at once, the larger one serves it, alone.
func TestALargerVersionThatComesBetweenReadAndWriteWins(t *testing.T) {
	w := newWorld(t)
	var mu sync.Mutex
	claimed := false
	w.hook(func(c call) error {
		mu.Lock()
		defer mu.Unlock()
		if c.verb == http.MethodPatch && strings.HasSuffix(c.path, "/gateways/web") && !claimed {
			claimed = true
			w.edit("web", `{"metadata":{"annotations":{"`+versionAnnotation+`":"6"}}}`)
		}
		return nil
	})
	w.create("web")
	w.controller()
	w.until("it tries to write its version", func() error {
		mu.Lock()
		defer mu.Unlock()
		if !claimed {
			return errors.New("it does not")
		}
		return nil
	})
	w.settled()
	if writes := w.took(); len(writes) != sentinelWrites || w.get(Service, "web-istio") != nil {
		t.Errorf("the smaller version has written: %v", writes)
	}
}

func TestBadInputIsSaidOnceAndHarmsNothing(t *testing.T) {
	w := newWorld(t)
	w.create("web")
	w.controller()
	w.deployed("web-istio")
	configMaps := w.admin.CoreV1().ConfigMaps(w.namespace)
	put := func(name string, data map[string]string) {
		t.Helper()
		o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: data}
		_, err := configMaps.Update(t.Context(), o, metav1.UpdateOptions{})
		if err != nil {
			_, err = configMaps.Create(t.Context(), o, metav1.CreateOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	put("rename", map[string]string{"service": "metadata: {name: kube-dns}"})
	refer := func(name string) func(*gateway.Gateway) {
		return func(gw *gateway.Gateway) {
			gw.Spec.Infrastructure = &gateway.GatewayInfrastructure{ParametersRef: &gateway.LocalParametersReference{Kind: "ConfigMap", Name: name}}
		}
	}
	w.create(strings.Repeat("long", 15))
	w.create("renaming", refer("rename"))
	w.create("missing", refer("nowhere"))
	w.create("taken", annotated(NameOverride, "web-istio"))
	w.create("refused", annotated(serviceTypeOverride, "Nonsense"))
	w.event(strings.Repeat("long", 15)+" "+ReasonInvalidName, "66 characters")
	w.event("renaming "+ReasonInvalidParameters, "metadata.name")
	w.event("missing "+ReasonInvalidParameters, "nowhere")
	w.event("taken "+ReasonNameTaken, "Gateway web:")
	w.event("refused "+ReasonWriteFailed, "Nonsense")

	before := w.get(Deployment, "web-istio").GetResourceVersion()
	put(DefaultTemplateName, map[string]string{TemplateKey: "rubbish"})
	w.event("web "+ReasonInvalidTemplate, "no object")
	if after := w.get(Deployment, "web-istio").GetResourceVersion(); after != before {
		t.Error("a template that renders rubbish has changed what is deployed")
	}
	put(DefaultTemplateName, map[string]string{TemplateKey: strings.Replace(embedded, "name: istio-proxy", "name: proxy", 1)})
	w.until("the new template is in force", func() error {
		if content, _ := toJSON(w.get(Deployment, "web-istio").Object); strings.Contains(content, "istio-proxy") {
			return errors.New("it is not")
		}
		return nil
	})
	put("nowhere", map[string]string{"deployment": "spec: {replicas: 0}"})
	w.deployed("missing-istio")
	w.settled()
	said := map[string]int{}
	for _, event := range w.said() {
		said[event]++
	}
	for event, n := range said {
		if n > 2 { // the rubbish template came in between, for all
			t.Errorf("it was said %d times: %s", n, event)
		}
	}
}

func TestARightThatIsTakenAwayStopsOneKindAlone(t *testing.T) {
	w := newWorld(t)
	w.create("web")
	w.controller()
	w.deployed("web-istio")
	var without = ClusterRules()
	for i := range without {
		if without[i].Resources[0] == "services" {
			without[i].Verbs = []string{"list", "watch"}
		}
	}
	started := time.Now()
	w.allow("two", without)
	before := len(w.written())
	w.create("two")
	w.event("two "+ReasonWriteFailed, "services", "forbidden")
	w.until("the others are made", func() error {
		if w.get(ServiceAccount, "two-istio") == nil || w.get(Deployment, "two-istio") == nil {
			return errors.New("they are not")
		}
		return nil
	})
	w.until("there are some tries", func() error {
		if n := len(w.written()) - before; n < 7 {
			return fmt.Errorf("there are %d", n)
		}
		return nil
	})
	// Each wait is twice the one before, from a tenth of a second on.
	most := 8
	for d := 100 * time.Millisecond; d < time.Since(started); d *= 2 {
		most++
	}
	if n := len(w.written()) - before; n > most {
		t.Errorf("%d writes, want at most %d: %v", n, most, w.written())
	}
	w.allow("three", ClusterRules())
	w.deployed("two-istio")
}
