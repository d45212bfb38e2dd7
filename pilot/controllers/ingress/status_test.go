package ingress

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/atomic"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	k8stesting "k8s.io/client-go/testing"

	"incumbent.dev/incumbent/pilot/controllers/reconcile"
)

// patches are those that were tried.
func (s *stub) patches() (all []string) {
	for _, action := range s.clientset.Actions() {
		if patch, ok := action.(k8stesting.PatchAction); ok {
			all = append(all, patch.GetName()+" "+patch.GetSubresource()+" "+string(patch.GetPatch()))
		}
	}
	return all
}

// changedIngress is the world's Ingress after a change.
func changedIngress(change func(*networkingv1.Ingress)) *networkingv1.Ingress {
	class := "ours"
	i := &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "one", UID: "u", ResourceVersion: "2"}, Spec: networkingv1.IngressSpec{IngressClassName: &class},
	}
	change(i)
	return i
}

// Which Ingresses get a status: one patch, of that version of that Ingress, with the addresses.
func TestTheStatusOfWhich(t *testing.T) {
	now, other := metav1.NewTime(time.Unix(1, 0)), "other"
	for name, x := range map[string]struct {
		change func(*networkingv1.Ingress)
		want   int
	}{
		"ours":      {func(*networkingv1.Ingress) {}, 1},
		"deleted":   {func(i *networkingv1.Ingress) { i.DeletionTimestamp = &now }, 0},
		"another's": {func(i *networkingv1.Ingress) { i.Spec.IngressClassName = &other }, 0},
		"nobody's":  {func(i *networkingv1.Ingress) { i.Spec.IngressClassName = nil }, 0},
		"as wanted": {func(i *networkingv1.Ingress) { i.Status.LoadBalancer.Ingress = []address{ip("192.0.2.1")} }, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newStub(t)
			s.put(changedIngress(x.change))
			s.put(&networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: other, ResourceVersion: "1"}, Spec: networkingv1.IngressClassSpec{Controller: "example.com/x"}})
			s.answers(errForbidden)
			s.run(s.controller(), func() {})
			patches := s.patches()
			if len(patches) != x.want {
				t.Errorf("%s: %q", name, patches)
			}
			for _, patch := range patches {
				if want := `one status {"metadata":{"resourceVersion":"2","uid":"u"},"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.1"}]}}}`; patch != want {
					t.Errorf("%s: %s, want %s", name, patch, want)
				}
			}
		})
	}
}

// Without the Service every status stays as it is, which is said once; when it is there, they are written.
func TestTheStatusWithoutAService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		if err := s.clientset.Tracker().Delete(schema.GroupVersionResource{Version: "v1", Resource: "services"}, "home", "gateway"); err != nil {
			t.Fatal(err)
		}
		s.put(changedIngress(func(i *networkingv1.Ingress) { i.Status.LoadBalancer.Ingress = []address{ip("192.0.2.9")} }))
		s.answers(errForbidden)
		s.run(s.controller(), func() {
			s.put(changedIngress(func(i *networkingv1.Ingress) {
				i.ResourceVersion, i.Status.LoadBalancer.Ingress = "3", []address{ip("192.0.2.8")}
			}))
			synctest.Wait()
			if n := s.tries.Load(); n != 0 || s.log.Count("Service does not exist") != 1 || s.log.Count("Service exists now") != 0 {
				t.Errorf("%d tries, and the log says\n%s", n, &s.log)
			}
			s.put(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "home", Name: "gateway", UID: "u", ResourceVersion: "4"}, Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "gateway"}}})
			synctest.Wait()
			time.Sleep(time.Minute)
			if n := s.tries.Load(); n < 2 || s.log.Count("Service does not exist") != 1 || s.log.Count("Service exists now") != 1 {
				t.Errorf("%d tries, and the log says\n%s", n, &s.log)
			}
		})
	})
}

// That a status cannot be written is said in the log and on the Ingress; a second Run beside the first is an error.
func TestTheStatusThatCannotBeWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		s.answers(errForbidden)
		c := s.controller()
		s.run(c, func() {
			if err := c.Run(t.Context()); !errors.Is(err, reconcile.ErrRunning) {
				t.Errorf("a second Run: %v", err)
			}
			time.Sleep(time.Minute)
			want := "one Warning StatusNotWritten writing the status of Ingress apps/one: "
			if got := s.events.list(); len(got) != 1 || !strings.HasPrefix(got[0], want) {
				t.Errorf("Events: %q", got)
			}
			if s.tries.Load() < 3 || s.log.Count("reconcile failed", "writing the status of Ingress apps/one") != 1 {
				t.Errorf("%d tries, the log says\n%s", s.tries.Load(), &s.log)
			}
		})
	})
}

// After a conflict nothing is tried before the cache shows the Ingress anew, whatever else changes.
func TestTheStatusThatIsBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		s.answers(errConflict)
		s.run(s.controller(), func() {
			s.put(&corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: "one", UID: "u", ResourceVersion: "2"},
				Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeExternalIP, Address: "192.0.2.2"}}},
			})
			synctest.Wait()
			if n := s.tries.Load(); n != 1 {
				t.Errorf("%d tries", n)
			}
		})
	})
}

// So many Ingresses are looked at at once as there are workers.
func TestTheStatusOfSeveral(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		later, at, most := "later", atomic.Int32{}, 0
		var lost []runtime.Object
		for n := range 9 {
			lost = append(lost, changedIngress(func(i *networkingv1.Ingress) { i.Name, i.Spec.IngressClassName = fmt.Sprint("lost-", n), &later }))
		}
		s, goOn := newStub(t, lost...), make(chan struct{})
		c, err := New(s, Config{
			Mode: Strict, Class: "istio", Service: key{Namespace: "home", Name: "gateway"}, Workers: 3, Logger: slog.New(slog.NewTextHandler(&s.log, nil)),
			Event: func(runtime.Object, string, string, string, ...any) {
				at.Inc()
				<-goOn
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		synctest.Wait()
		most = int(at.Load())
		close(goOn)
		synctest.Wait()
		cancel()
		if err := <-ended; err != nil || most != 3 || at.Load() != 9 || s.log.Count("Ingress gets no status") != 9 {
			t.Errorf("%v, %d at once, %d of them, and the log says\n%s", err, most, at.Load(), &s.log)
		}
	})
}
