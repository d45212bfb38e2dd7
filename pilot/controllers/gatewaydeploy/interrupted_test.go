package gatewaydeploy

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	gateway "sigs.k8s.io/gateway-api/apis/v1"

	"incumbent.dev/incumbent/pkg/kube"
)

// The definitions of the Gateway API may come later, and may go.
func TestTheKindsMayBeMissing(t *testing.T) {
	w := newWorld(t)
	definitions := w.objects.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	remove := func() {
		t.Helper()
		for _, name := range []string{"gateways", "gatewayclasses"} {
			if err := definitions.Delete(t.Context(), name+"."+gateway.GroupName, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		w.until("the kinds are gone", func() error {
			if _, err := w.gateways.List(t.Context(), metav1.ListOptions{}); !apierrors.IsNotFound(err) {
				return fmt.Errorf("listing Gateways: %w", err)
			}
			return nil
		})
	}
	install := func() {
		t.Helper()
		w.until("the old definitions are gone", func() error {
			for _, name := range []string{"gateways", "gatewayclasses"} {
				if _, err := definitions.Get(t.Context(), name+"."+gateway.GroupName, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
					return fmt.Errorf("%s: %w", name, err)
				}
			}
			return nil
		})
		if err := w.cluster.LoadGatewayAPI(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	remove()
	c, _ := w.controller()
	w.until("it says what is missing", func() error {
		if p := c.Problem(); p == nil || !strings.Contains(p.Error(), "gateways") || !strings.Contains(p.Error(), "gatewayclasses") {
			return fmt.Errorf("it says %w", p)
		}
		return nil
	})
	install()
	w.create("web")
	w.deployed("web-istio")
	w.until("with all kinds there it says nothing", func() error { // each is asked for again after a wait of its own
		return c.Problem()
	})
	reads, writes, began := w.reads.Load(), len(w.written()), time.Now()
	remove()
	w.until("it says what is missing", func() error {
		if p := c.Problem(); p == nil || !strings.Contains(p.Error(), "gateways") {
			return fmt.Errorf("it says %w", p)
		}
		return nil
	})
	most := 0 // of each kind: its watch ends, and then a watch and a list after each wait, which are about doubled
	for d := 400 * time.Millisecond; d < time.Since(began); d *= 2 {
		most += 2
	}
	if n := int(w.reads.Load() - reads); n > 2*(2+most)+1 {
		t.Errorf("%d reads within %v", n, time.Since(began))
	}
	if n := len(w.written()) - writes; n > 0 {
		t.Errorf("%d writes: %v", n, w.written()[writes:])
	}
	install()
	w.create("again")
	w.deployed("again-istio")
}

// Whatever write it was interrupted before or after, the next controller goes on, and ends with the same.
func TestInterruptedBetweenAnyTwoWrites(t *testing.T) {
	errInterrupted := errors.New("interrupted")
	for n := 1; n <= 8; n++ {
		for _, sent := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d,sent=%v", n, sent), func(t *testing.T) {
				w := newWorld(t)
				w.create("web")
				run := func(at int) (interrupted bool) {
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					count := 0
					w.hook(func(call) error {
						w.mu.Lock()
						defer w.mu.Unlock()
						if count++; count < at {
							return nil
						}
						interrupted = true
						cancel()
						if sent && count == at {
							return nil
						}
						return errInterrupted
					})
					c := w.new()
					defer kube.CloseIdleConnections(c.loop.Client())
					done := make(chan error, 1)
					go func() { done <- c.Run(ctx) }()
					w.until("it is interrupted, or done", func() error {
						if ctx.Err() != nil || w.as(9090) {
							return nil
						}
						return errors.New("neither")
					})
					cancel()
					if err := <-done; err != nil {
						t.Error(err)
					}
					return interrupted
				}
				_, stop := w.controller()
				if n <= 4 {
					stop() // the creates are what is interrupted
				} else {
					w.deployed("web-istio")
					stop()
				}
				w.edit("web", `{"spec":{"listeners":[{"name":"http","port":9090,"protocol":"HTTP"}]}}`)
				run((n-1)%4 + 1)
				w.hook(nil)
				w.controller()
				w.until("all is as wanted", func() error {
					if !w.as(9090) {
						return errors.New("it is not")
					}
					return nil
				})
				w.settled()
				for _, c := range w.written() {
					if c.verb == "DELETE" || c.verb == "PUT" {
						t.Errorf("there was a %v", c)
					}
				}
			})
		}
	}
}

// as tells whether all is deployed for one listener, on this port, and by nobody's fields but ours.
func (w *world) as(port int64) bool {
	service, deployment, account := w.get(Service, "web-istio"), w.get(Deployment, "web-istio"), w.get(ServiceAccount, "web-istio")
	if service == nil || deployment == nil || account == nil {
		return false
	}
	ports, _, _ := unstructured.NestedSlice(service.Object, "spec", "ports")
	text, _ := toJSON(deployment.Object)
	last, ok := ports[len(ports)-1].(map[string]any)
	return ok && len(ports) == 2 && last["port"] == port && strings.Contains(text, fmt.Sprintf(`"%d"`, port))
}
