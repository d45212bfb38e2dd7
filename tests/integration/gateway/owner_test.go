package gateway

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
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
	r.names = [2]string{r.home, r.home + "-next"}
	r.label(r.home, "")
	r.claim(r.home, r.names[0])
	for i, name := range r.names {
		r.sent[i] = &harness.Log{}
		r.control(name, r.sent[i])
	}
	return r
}

// flip moves the tag default.
func (r *rivals) flip(to int) {
	r.Helper()
	hooks := schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingwebhookconfigurations"}
	r.patch(hooks, "", r.home, `{"metadata":{"labels":{"istio.io/rev":"`+r.names[to]+`"}}}`)
}

// relabel sets the revision of an object, or removes its label for "".
func (r *rivals) relabel(resource, namespace, name, revision string) {
	value := `"` + revision + `"`
	if revision == "" {
		value = "null"
	}
	r.patch(gatewayAPI(resource), namespace, name, `{"metadata":{"labels":{"istio.io/rev":`+value+`}}}`)
}

// entries returns the states of the entries of a route, in the order of its parents.
func entries(o *gateway.HTTPRoute) (all []string) {
	for _, ref := range o.Spec.ParentRefs {
		accepted := meta.FindStatusCondition(parentOf(o, string(ref.Name)).Conditions, "Accepted")
		all = append(all, string(ptr.Deref(accepted, metav1.Condition{}).Status))
	}
	return all
}

// An accepted route never loses an entry while the revisions of its parents, its namespace or the default change.
func TestOwner_RouteKeepsEntries(t *testing.T) {
	r := newRivals(t)
	elsewhere := r.cluster.Namespace(t)
	const open = `{"gatewayClassName":"istio","listeners":[{"name":"http","port":80,"protocol":"HTTP","allowedRoutes":{"namespaces":{"from":"All"}}}]}`
	r.put("Gateway", "free", open)
	r.put("Gateway", "pinned", open)
	r.relabel("gateways", r.home, "pinned", r.names[0])
	r.must(r.create(elsewhere, "HTTPRoute", "route", `{"parentRefs":[{"name":"free","namespace":"`+r.home+`"},{"name":"pinned","namespace":"`+r.home+`"}]}`))
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
		func() { r.relabel("gateways", r.home, "free", r.names[0]) },
		func() { r.relabel("gateways", r.home, "pinned", r.names[1]) },
		func() { r.relabel("gateways", r.home, "free", "") },
		func() { r.relabel("httproutes", elsewhere, "route", r.names[0]) },
		func() { r.label(elsewhere, r.names[0]) },
		func() { r.label(r.home, r.names[0]) },
		func() { r.relabel("httproutes", elsewhere, "route", "") },
		func() { r.label(r.home, r.names[1]) },
		func() { r.label(r.home, "") },
		func() { r.flip(0) },
		func() { r.relabel("gateways", r.home, "pinned", "misspelt") },
		func() { r.label(elsewhere, "misspelt") },
	} {
		step()
		r.patch(gatewaysResource, r.home, "free", fmt.Sprintf(`{"spec":{"infrastructure":{"labels":{"step":"%d"}}}}`, i))
		r.patch(gatewayAPI("httproutes"), elsewhere, "route", fmt.Sprintf(`{"spec":{"hostnames":["step-%d.example"]}}`, i))
		r.until(fmt.Sprintf("the owner of the free Gateway has written after step %d", i), func() bool {
			g := r.read("free")
			o, err := r.api.HTTPRoutes(elsewhere).Get(t.Context(), "route", metav1.GetOptions{})
			r.must(err)
			return observed(g.Status.Conditions, g.Generation) && observed(parentOf(o, "free").Conditions, o.Generation)
		})
	}
	r.patch(gatewayAPI("httproutes"), elsewhere, "route", `{"metadata":{"annotations":{"last":"1"}}}`)
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
