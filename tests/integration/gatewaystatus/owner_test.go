package gatewaystatus

import (
	"context"
	"fmt"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gateway "sigs.k8s.io/gateway-api/apis/v1"

	"incumbent.dev/incumbent/internal/testutil/harness"
)

// rivals are two revisions in one cell. Their tag default can move.
type rivals struct {
	*cell
	sent  [2]*harness.Log // requests of each revision
	names [2]string
}

func newRivals(t *testing.T) *rivals {
	r := &rivals{cell: newCell(t)}
	r.names = [2]string{r.namespace, r.namespace + "-next"}
	r.label(r.namespace, "")
	hooks := r.admin.Kube().AdmissionregistrationV1().MutatingWebhookConfigurations()
	_, err := hooks.Create(t.Context(), &admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{
		Name: r.namespace, Labels: map[string]string{"istio.io/tag": "default", "istio.io/rev": r.names[0]},
	}}, metav1.CreateOptions{})
	r.must(err)
	t.Cleanup(func() { r.must(hooks.Delete(context.WithoutCancel(t.Context()), r.namespace, metav1.DeleteOptions{})) })
	for i, name := range r.names {
		r.sent[i] = &harness.Log{}
		r.serve(name, r.sent[i])
	}
	return r
}

// flip moves the tag default.
func (r *rivals) flip(to int) {
	r.t.Helper()
	_, err := r.admin.Kube().AdmissionregistrationV1().MutatingWebhookConfigurations().Patch(r.t.Context(), r.namespace, types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"istio.io/rev":"`+r.names[to]+`"}}}`), metav1.PatchOptions{})
	r.must(err)
}

// patch changes an object of the Gateway API.
func (r *rivals) patch(resource, namespace, name, change string) {
	r.t.Helper()
	r.must(r.api.RESTClient().Patch(types.MergePatchType).Namespace(namespace).Resource(resource).Name(name).Body([]byte(change)).Do(r.t.Context()).Error())
}

// relabel sets the revision of an object, or removes its label for "".
func (r *rivals) relabel(resource, namespace, name, revision string) {
	value := `"` + revision + `"`
	if revision == "" {
		value = "null"
	}
	r.patch(resource, namespace, name, `{"metadata":{"labels":{"istio.io/rev":`+value+`}}}`)
}

// entries returns the states of the entries of a route, in the order of its parents.
func entries(o *gateway.HTTPRoute) (all []string) {
	for _, ref := range o.Spec.ParentRefs {
		state := "none"
		for _, p := range o.Status.Parents {
			if p.ParentRef.Name != ref.Name {
				continue
			}
			for _, c := range p.Conditions {
				if c.Type == "Accepted" {
					state = string(c.Status)
				}
			}
		}
		all = append(all, state)
	}
	return all
}

// An accepted route never loses an entry while the revisions of its parents, its namespace or the default change.
func TestOwner_RouteKeepsEntries(t *testing.T) {
	r := newRivals(t)
	elsewhere := r.c.Namespace(t)
	const open = `{"gatewayClassName":"istio","listeners":[{"name":"http","port":80,"protocol":"HTTP","allowedRoutes":{"namespaces":{"from":"All"}}}]}`
	r.put("Gateway", "free", open)
	r.put("Gateway", "pinned", open)
	r.relabel("gateways", r.namespace, "pinned", r.names[0])
	r.must(r.api.RESTClient().Post().Namespace(elsewhere).Resource("httproutes").Body([]byte(`{"apiVersion":"gateway.networking.k8s.io/v1","kind":"HTTPRoute","metadata":{"name":"route"},
		"spec":{"parentRefs":[{"name":"free","namespace":"` + r.namespace + `"},{"name":"pinned","namespace":"` + r.namespace + `"}]}}`)).Do(t.Context()).Error())
	bound := int64(20 * harness.Patience.Seconds()) // longer than the bounds of all steps together
	w, err := r.api.HTTPRoutes(elsewhere).Watch(t.Context(), metav1.ListOptions{TimeoutSeconds: &bound})
	r.must(err)
	settled := make(chan struct{})
	ended := make(chan struct{})
	t.Cleanup(func() { w.Stop(); <-ended })
	go func() {
		defer close(ended)
		complete := false
		for event := range w.ResultChan() {
			o, ok := event.Object.(*gateway.HTTPRoute)
			if !ok {
				t.Errorf("the watch reports %v", event)
				return
			}
			got := strings.Join(entries(o), " ")
			if !complete && got == "True True" {
				complete = true
				close(settled)
			}
			if complete && got != "True True" {
				t.Errorf("entries of generation %d are %s", o.Generation, got)
			}
			if o.Annotations["last"] != "" {
				return
			}
		}
		t.Error("the watch ended")
	}()
	select {
	case <-settled:
	case <-ended:
		t.FailNow()
	}
	for i, step := range []func(){
		func() { r.flip(1) },
		func() { r.relabel("gateways", r.namespace, "free", r.names[0]) },
		func() { r.relabel("gateways", r.namespace, "pinned", r.names[1]) },
		func() { r.relabel("gateways", r.namespace, "free", "") },
		func() { r.relabel("httproutes", elsewhere, "route", r.names[0]) },
		func() { r.label(elsewhere, r.names[0]) },
		func() { r.label(r.namespace, r.names[0]) },
		func() { r.relabel("httproutes", elsewhere, "route", "") },
		func() { r.label(r.namespace, r.names[1]) },
		func() { r.label(r.namespace, "") },
		func() { r.flip(0) },
		func() { r.relabel("gateways", r.namespace, "pinned", "misspelt") },
		func() { r.label(elsewhere, "misspelt") },
	} {
		step()
		r.patch("gateways", r.namespace, "free", fmt.Sprintf(`{"spec":{"infrastructure":{"labels":{"step":"%d"}}}}`, i))
		r.patch("httproutes", elsewhere, "route", fmt.Sprintf(`{"spec":{"hostnames":["step-%d.example"]}}`, i))
		r.await(fmt.Sprintf("the owner of the free Gateway has written after step %d", i), func() bool {
			g := r.gateway("free")
			o, err := r.api.HTTPRoutes(elsewhere).Get(t.Context(), "route", metav1.GetOptions{})
			r.must(err)
			return observed(g.Status.Conditions, g.Generation) && observed(parentOf(o, "free").Conditions, o.Generation)
		})
	}
	r.patch("httproutes", elsewhere, "route", `{"metadata":{"annotations":{"last":"1"}}}`)
	<-ended
	if strings.Contains(r.log.String(), "keeps reverting") {
		t.Error("changes of owners count as reverts")
	}
}

// observed reports whether all conditions are of a generation.
func observed(conditions []metav1.Condition, generation int64) bool {
	for _, c := range conditions {
		if c.ObservedGeneration != generation {
			return false
		}
	}
	return len(conditions) > 0
}

func parentOf(o *gateway.HTTPRoute, name string) gateway.RouteParentStatus {
	for _, p := range o.Status.Parents {
		if string(p.ParentRef.Name) == name {
			return p
		}
	}
	return gateway.RouteParentStatus{}
}

// A Gateway that is created right after its namespace was labelled belongs to no other revision, not even briefly.
func TestOwner_NewNamespace(t *testing.T) {
	r := newRivals(t)
	r.flip(1)
	r.put("Gateway", "unlabelled", listening)
	r.await("the default revision writes", func() bool { return r.sent[1].Count("PATCH", "unlabelled") > 0 })
	home := r.namespace
	for i := range 20 {
		r.namespace = r.c.Namespace(t)
		r.label(r.namespace, r.names[0])
		r.put("Gateway", "gw", listening)
		r.put("HTTPRoute", "route", routing)
		r.awaitCondition(fmt.Sprint("Gateway ", i), r.ofGateway("gw"), "Accepted", "True/Accepted")
		r.awaitCondition(fmt.Sprint("route ", i), r.ofRoute("route", "gw"), "Accepted", "True/Accepted")
		if n := r.sent[1].Count("PATCH", "/namespaces/"+r.namespace+"/"); n != 0 {
			t.Errorf("the other revision wrote %d times", n)
		}
	}
	r.namespace = home
}
