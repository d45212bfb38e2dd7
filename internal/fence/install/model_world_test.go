package install

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"incumbent.dev/incumbent/internal/fence"
	"incumbent.dev/incumbent/internal/testutil/apiserver"
)

// errInterrupted is the error of an installer's requests once it is interrupted.
var errInterrupted = errors.New("interrupted")

// plant is a defect of the installer or its inputs that the model must find.
type plant string

const (
	none       plant = ""
	byPosition plant = "policies are named by their position"
	oneServer  plant = "it waits for the first API server alone"
	noKeepers  plant = "nothing keeps the API servers' view of locks alive"
)

// world is a cluster reduced to fences: stored objects, the objects that each API server has
// loaded, and the objects that must be guarded at all times. Tests on a real API server show what a policy rejects.
type world struct {
	*apiserver.Server
	r *rand.Rand
	// policies and bindings are the changes so far, in order. received is the number of both.
	policies []event[*admissionv1.ValidatingAdmissionPolicy]
	bindings []event[*admissionv1.ValidatingAdmissionPolicyBinding]
	received int
	servers  []*server
	planted  plant
	// before is called before each deletion, if it is not nil.
	before func(apiserver.Request)

	// left are the installer's writes until it is interrupted; below 0 it is not.
	left        int
	interrupted bool
	// lazy is how many of a hundred chances to take something in an API server lets pass.
	lazy int
	// required has the objects that must be guarded now.
	required required
	wrong    []string
}

// server is one API server. It receives policies and bindings, each kind in order and independent of the other. Sometimes it
// loads them; then they are in effect.
type server struct {
	w               *world
	toldOf, boundTo int // events taken in
	policies        map[string]*admissionv1.ValidatingAdmissionPolicy
	bindings        map[string]*admissionv1.ValidatingAdmissionPolicyBinding
	guarded         map[string]string // policies in effect, by the resources and names in their rules
	params          map[string]bool   // kinds of locks that it watches
	stalled         bool
}

func newWorld(r *rand.Rand, servers int) *world {
	w := &world{Server: apiserver.New(), r: r, left: -1, lazy: []int{10, 60, 90}[r.IntN(3)], required: required{}}
	for range servers {
		s := &server{w: w}
		s.restart()
		w.servers = append(w.servers, s)
	}
	return w
}

// clients returns a client per API server.
func (w *world) clients() (all []kubernetes.Interface) {
	for _, s := range w.servers {
		client := w.NewClient("installer")
		client.On(func(r apiserver.Request) apiserver.Fault { return w.answer(s, r) })
		all = append(all, client.Kube())
	}
	return all
}

var documents = discovery(map[string][]string{
	"v1": {"configmaps", "secrets", "-islands"}, "c.example/v1": {"buoys", "-beacons", "-beacons/status"}, "rbac.authorization.k8s.io/v1": {"-clusterroles"},
})

// answer is the response of an API server to an installer. Before it, API servers load a random part of the objects.
func (w *world) answer(s *server, r apiserver.Request) apiserver.Fault {
	if r.Resource == "" || r.Name == "" && r.Verb == "get" {
		return apiserver.Fault{Object: documents[r.URL.Path]} // concurrent requests
	}
	w.steps()
	barrier := r.Resource == "configmaps"
	reads := r.Verb == "get" || r.Verb == "list" || barrier
	if !reads && w.left >= 0 {
		w.left--
		w.interrupted = w.interrupted || w.left < 0
	}
	switch {
	case w.interrupted:
		return apiserver.Fault{Err: errInterrupted}
	case barrier:
		return s.tryBarrier(r)
	case r.Verb == "delete" && w.before != nil:
		w.before(r)
	case !reads && r.Verb != "delete" && r.URL.Query().Get("fieldManager") != fieldManager:
		return apiserver.Fault{Err: apierrors.NewBadRequest("an installer writes as a field manager")}
	case r.Verb == "update":
		if version, _, _ := unstructured.NestedString(r.Body, "metadata", "resourceVersion"); version == "" {
			return apiserver.Fault{Err: apierrors.NewBadRequest("an installer updates one version")}
		}
	}
	return apiserver.Fault{}
}

// tryBarrier is the dry run of a write that the barrier rejects.
func (s *server) tryBarrier(r apiserver.Request) apiserver.Fault {
	if r.URL.Query().Get("dryRun") == "" {
		return apiserver.Fault{Err: errors.New("an installer creates ConfigMaps only as dry runs")}
	}
	name, _, _ := unstructured.NestedString(r.Body, "metadata", "name")
	if by := s.guarded["configmaps/"+name]; by != "" {
		return apiserver.Fault{Err: apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, name, fmt.Errorf("ValidatingAdmissionPolicy '%s' with binding '%s' denied request", by, by))}
	}
	return apiserver.Fault{}
}

// receive reads the new changes.
func (w *world) receive() {
	for _, e := range w.Changes(w.received) {
		w.received++
		if e.Object.GetKind() == policyKind {
			w.policies = append(w.policies, eventOf(e, &admissionv1.ValidatingAdmissionPolicy{}))
		} else {
			w.bindings = append(w.bindings, eventOf(e, &admissionv1.ValidatingAdmissionPolicyBinding{}))
		}
	}
}

// event is one change of an object.
type event[T any] struct {
	object T
	gone   bool
}

func eventOf[T apiserver.Object](e apiserver.Event, object T) event[T] {
	e.Decode(object)
	return event[T]{object, e.Kind == watch.Deleted}
}

// steps performs a few random events.
func (w *world) steps() {
	w.receive()
	for range w.r.IntN(6) {
		w.step()
	}
}

// step performs one random event.
func (w *world) step() {
	s := w.servers[w.r.IntN(len(w.servers))]
	if w.r.IntN(100) < w.lazy || s.stalled {
		return
	}
	switch n := w.r.IntN(1000); {
	case n < 300:
		for range 1 + w.r.IntN(4) {
			s.tellOfPolicy()
		}
	case n < 600:
		for range 1 + w.r.IntN(4) {
			s.tellOfBinding()
		}
	case n < 995:
		s.refresh()
	default:
		s.restart()
	}
}

// settle lets all API servers take in all that there is.
func (w *world) settle() {
	w.receive()
	for _, s := range w.servers {
		s.catchUp()
	}
}

// restart: an API server that starts has all that there is.
func (s *server) restart() {
	s.toldOf, s.boundTo = 0, 0
	s.policies = map[string]*admissionv1.ValidatingAdmissionPolicy{}
	s.bindings = map[string]*admissionv1.ValidatingAdmissionPolicyBinding{}
	s.params = nil
	s.catchUp()
}

func (s *server) catchUp() {
	for s.tellOfPolicy() {
	}
	for s.tellOfBinding() {
	}
	s.refresh()
}

func (s *server) tellOfPolicy() bool  { return tell(s.w.policies, &s.toldOf, s.policies) }
func (s *server) tellOfBinding() bool { return tell(s.w.bindings, &s.boundTo, s.bindings) }

// tell passes the next event on, if there is one.
func tell[T metav1.Object](events []event[T], told *int, into map[string]T) bool {
	if *told == len(events) {
		return false
	}
	e := events[*told]
	*told++
	if e.gone {
		delete(into, e.object.GetName())
	} else {
		into[e.object.GetName()] = e.object
	}
	return true
}

// refresh loads the received policies and bindings together. If no policy has a kind of lock as parameter any more, the server stops its
// watch of these locks, and does not start it again.
func (s *server) refresh() {
	before := s.params
	s.guarded = map[string]string{}
	s.params = map[string]bool{}
	for _, b := range s.bindings {
		policy := s.policies[b.Spec.PolicyName]
		if policy == nil {
			continue
		}
		if k := policy.Spec.ParamKind; k != nil {
			if b.Spec.ParamRef == nil {
				continue // half an update in place
			}
			s.params[k.Kind] = true
		}
		for _, rule := range policy.Spec.MatchConstraints.ResourceRules {
			for _, name := range rule.ResourceNames {
				s.guarded[rule.Resources[0]+"/"+name] = policy.Name
			}
		}
	}
	for kind := range before {
		if !s.params[kind] {
			s.w.wrong = append(s.w.wrong, "an API server stops its watch of the locks of kind "+kind)
		}
	}
	s.judge()
}

// judge compares the guarded objects of the server with the required ones.
func (s *server) judge() {
	for _, o := range s.w.required {
		for object := range o.objects {
			if s.guarded[object] == "" {
				s.w.wrong = append(s.w.wrong, object+" is not guarded")
			}
		}
	}
}

// required has, by election, the objects that must be guarded, and the sets that may have guards of the election.
type required map[string]*owned

type owned struct{ objects, by map[string]bool }

// objects returns the objects that declarations guard.
func objects(ds []fence.Declaration) map[string]bool {
	all := map[string]bool{}
	for _, d := range ds {
		if !d.WithoutLockGuard {
			all[string(d.Lock)+"s/"+d.Election] = true
		}
		for _, g := range d.Guards {
			for _, name := range g.Names {
				all[g.Resources[0]+"/"+name] = true
			}
		}
	}
	return all
}

// shrink keeps the objects that a set guards before and after a change, and records that the change has begun.
func (s required) shrink(set string, ds []fence.Declaration) {
	for e, o := range s {
		declared := slices.ContainsFunc(ds, func(d fence.Declaration) bool { return d.Election == e })
		if !declared && !o.by[set] {
			continue
		}
		o.by[set] = true
		after := objects(ds)
		maps.DeleteFunc(o.objects, func(object string, _ bool) bool { return !after[object] })
	}
}

// grow is called when a set is in effect.
func (s required) grow(set string, ds []fence.Declaration) {
	for _, d := range ds {
		s[d.Election] = &owned{objects: objects([]fence.Declaration{d}), by: map[string]bool{set: true}}
	}
}
