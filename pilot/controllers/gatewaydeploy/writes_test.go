package gatewaydeploy

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Fields of other clients stay.
func TestController_AppliesChanges(t *testing.T) {
	w := newWorld(t)
	w.create("web")
	stop := w.controller()
	w.deployed("web-istio")
	w.ports("web-istio", 15021, 8080)
	w.patch(Service, "web-istio", `{"metadata":{"annotations":{"other":"value"}}}`)
	w.patch(Deployment, "web-istio", `{"spec":{"replicas":3}}`)
	w.edit("web", `{"spec":{"listeners":[{"name":"http","port":9090,"protocol":"HTTP"}]}}`)
	// The port of the create is removed.
	w.ports("web-istio", 15021, 9090)
	w.listens("9090")
	w.edit("web", `{"spec":{"listeners":[{"name":"http","port":9091,"protocol":"HTTP"}]}}`)
	w.ports("web-istio", 15021, 9091)
	w.listens("9091")
	service, deployment := w.get(Service, "web-istio"), w.get(Deployment, "web-istio")
	if got := service.GetAnnotations()["other"]; got != "value" {
		t.Errorf("annotation of another client is %q", got)
	}
	if replicas, _, _ := unstructured.NestedInt64(deployment.Object, "spec", "replicas"); replicas != 3 {
		t.Errorf("replicas of another client: %d", replicas)
	}
	stop()
	// version, 3 creates; twice Service and Deployment, the first time each with a claim.
	if writes, want := w.took(), 4+2*2+2; len(writes) != want {
		t.Errorf("%d writes, want %d: %v", len(writes), want, writes)
	}
	w.controller()
	// A managed field that another client changes is restored.
	w.patch(Service, "web-istio", `{"spec":{"type":"NodePort"}}`)
	w.until("LoadBalancer again", func() error {
		if kind, _, _ := unstructured.NestedString(w.get(Service, "web-istio").Object, "spec", "type"); kind != "LoadBalancer" {
			return fmt.Errorf("type is %s", kind)
		}
		return nil
	})
	before := w.get(ServiceAccount, "web-istio").GetUID()
	if err := w.admin.CoreV1().ServiceAccounts(w.namespace).Delete(t.Context(), "web-istio", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.until("ServiceAccount exists again", func() error {
		if o := w.get(ServiceAccount, "web-istio"); o == nil || o.GetUID() == before {
			return errors.New("not yet")
		}
		return nil
	})
}

// listens waits until Pods listen on a port.
func (w *world) listens(port string) {
	w.Helper()
	w.until("Pods listen on "+port, func() error {
		if content, _ := toJSON(w.get(Deployment, "web-istio").Object); !strings.Contains(content, `"`+port+`"`) {
			return errors.New("not yet")
		}
		return nil
	})
}

// foreign creates a Service that is not managed.
func (w *world) foreign(name string) *corev1.Service {
	w.Helper()
	made, err := w.admin.CoreV1().Services(w.namespace).Create(w.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"owner": "other"}},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1}}},
	}, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return made
}

// untouched checks that a Service has not changed.
func (w *world) untouched(before *corev1.Service) {
	w.Helper()
	after, err := w.admin.CoreV1().Services(w.namespace).Get(w.Context(), before.Name, metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	if after.UID != before.UID || after.ResourceVersion != before.ResourceVersion {
		w.Errorf("Service %s was changed: %+v", before.Name, after)
	}
}

// An object that another client creates, replaces or deletes between read and write is not adopted.
func TestController_ChangedBetweenReadAndWrite(t *testing.T) {
	services := func(verb string) func(call) bool {
		return func(c call) bool { return c.verb == verb && strings.Contains(c.path, "/services") }
	}
	t.Run("created before a create", func(t *testing.T) {
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
		stop := w.controller()
		w.event("web "+ReasonNotManaged, "Service", "web-istio")
		stop()
		w.untouched(before)
	})
	for name, remake := range map[string]bool{"replaced before an apply": true, "deleted before an apply": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.create("web")
			stop := w.controller()
			w.deployed("web-istio")
			w.edit("web", `{"spec":{"listeners":[{"name":"http","port":9090,"protocol":"HTTP"}]}}`)
			w.ports("web-istio", 15021, 9090) // claimed
			old := w.get(Service, "web-istio").GetUID()
			var before *corev1.Service
			done := false
			is := services("APPLY")
			w.hook(func(c call) error {
				if !is(c) || done {
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
				stop()
				w.untouched(before)
				return
			}
			w.ports("web-istio", 15021, 9091)
			stop()
			creates := slices.DeleteFunc(w.took(), func(c call) bool { return !services("POST")(c) })
			if o := w.get(Service, "web-istio"); o.GetUID() == old || len(creates) != 2 {
				t.Errorf("the Service was not created again: %v", w.written())
			}
		})
	}
}

// After an interruption before or after any write, the next controller completes the deployment.
func TestController_Interrupted(t *testing.T) {
	errInterrupted := errors.New("interrupted")
	for n := 1; n <= 8; n++ {
		for _, sent := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d,sent=%v", n, sent), func(t *testing.T) {
				w := newWorld(t)
				w.create("web")
				stop := w.controller()
				if n > 4 { // otherwise the creates are interrupted
					w.deployed("web-istio")
				}
				stop()
				w.edit("web", `{"spec":{"listeners":[{"name":"http","port":9090,"protocol":"HTTP"}]}}`)
				at, count := (n-1)%4+1, 0
				w.hook(func(call) error {
					w.mu.Lock()
					defer w.mu.Unlock()
					if count++; count < at || count == at && sent {
						return nil
					}
					return errInterrupted
				})
				stop = w.controller()
				w.until("interrupted or done", func() error {
					w.mu.Lock()
					interrupted := count >= at
					w.mu.Unlock()
					if interrupted {
						return nil
					}
					return w.upToDate()
				})
				stop()
				w.hook(nil)
				stop = w.controller()
				w.until("all objects are up to date", w.upToDate)
				stop()
				for _, c := range w.written() {
					if c.verb == "DELETE" || c.verb == "PUT" {
						t.Errorf("there was a %v", c)
					}
				}
			})
		}
	}
}

// upToDate returns an error unless all objects are deployed for one listener on port 9090.
func (w *world) upToDate() error {
	service, deployment, account := w.get(Service, "web-istio"), w.get(Deployment, "web-istio"), w.get(ServiceAccount, "web-istio")
	if service == nil || deployment == nil || account == nil {
		return errors.New("an object is missing")
	}
	ports, _, _ := unstructured.NestedSlice(service.Object, "spec", "ports")
	text, _ := toJSON(deployment.Object)
	if last, _ := ports[len(ports)-1].(map[string]any); len(ports) != 2 || last["port"] != int64(9090) || !strings.Contains(text, `"9090"`) {
		return errors.New("a port is missing")
	}
	return nil
}
