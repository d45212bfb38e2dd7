package install

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/client-go/kubernetes"

	"incumbent.dev/incumbent/internal/fence"
)

// plant is a defect of the installer or its inputs that the model must find.
type plant string

const (
	none       plant = ""
	oldFirst   plant = "deletes obsolete policies before new ones are in effect"
	byPosition plant = "policies are named by their position"
	noWait     plant = "it does not wait until the API servers have seen it"
	oneServer  plant = "it waits for the first API server alone"
	oneBarrier plant = "a barrier that was left behind will do"
	noKeepers  plant = "nothing keeps the API servers' view of locks alive"
)

// barrierOfAll is refused by each barrier, with the fault oneBarrier.
const barrierOfAll = "the-barrier"

// lockChange is a new holder of an election's lock; it has one of each kind, held together.
type lockChange struct{ election, holder string }

// world is a cluster reduced to fences: stored objects, the objects that each API server has
// loaded, and the writes that must be rejected at all times.
type world struct {
	r        *rand.Rand
	version  int
	policies *shelf[*admissionv1.ValidatingAdmissionPolicy]
	bindings *shelf[*admissionv1.ValidatingAdmissionPolicyBinding]
	locks    []lockChange
	servers  []*server
	newest   string // barrier
	about    map[about][]bool

	planted plant

	// left are the installer's writes until it is interrupted; below 0 it is not.
	left        int
	interrupted bool
	// lazy is how many of a hundred chances to take something in an API server lets pass.
	lazy int
	// standing has the writes that must be refused now.
	standing standing
	wrong    []string
	judged   int
}

func newWorld(r *rand.Rand, servers int) *world {
	w := &world{r: r, left: -1, lazy: []int{10, 60, 90}[r.IntN(3)], standing: standing{}, about: map[about][]bool{}}
	w.policies = newPolicies(w)
	w.bindings = newBindings(w)
	for _, e := range elections {
		w.locks = append(w.locks, lockChange{e, "a." + e})
	}
	for range servers {
		s := &server{w: w}
		s.restart()
		w.servers = append(w.servers, s)
	}
	return w
}

func (w *world) holder(election string) string {
	for _, change := range slices.Backward(w.locks) {
		if change.election == election {
			return change.holder
		}
	}
	return ""
}

// clients returns a client per API server.
func (w *world) clients() (all []kubernetes.Interface) {
	for _, s := range w.servers {
		all = append(all, w.client(s))
	}
	return all
}

// request is a request of the installer. Before it, API servers load a random part of the objects.
func (w *world) request(write bool) error {
	for range w.r.IntN(6) {
		w.step()
	}
	if write && w.left >= 0 {
		w.left--
		w.interrupted = w.interrupted || w.left < 0
	}
	if w.interrupted {
		return errInterrupted
	}
	return nil
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
		return // nothing is judged by it yet
	case n < 600:
		for range 1 + w.r.IntN(4) {
			s.tellOfBinding()
		}
		return
	case n < 800:
		s.refresh()
	case n < 880:
		s.follow(fence.ConfigMap)
	case n < 960:
		s.follow(fence.Lease)
	case n < 996:
		e := elections[w.r.IntN(len(elections))]
		w.locks = append(w.locks, lockChange{e, []string{"a.", "c."}[w.r.IntN(2)] + e})
		w.judge(w.servers...)
		return
	default:
		s.restart()
	}
	w.judge(s)
}

// settle lets all API servers take in all that there is.
func (w *world) settle() {
	for _, s := range w.servers {
		for s.tellOfPolicy() {
		}
		for s.tellOfBinding() {
		}
		s.refresh()
		for range len(w.locks) + 1 {
			s.follow(fence.ConfigMap)
			s.follow(fence.Lease)
		}
	}
	w.judge(w.servers...)
}

// judge has everyone write everything.
func (w *world) judge(servers ...*server) {
	for _, s := range servers {
		for i := range universe {
			w.tries(s, i)
		}
	}
}

func (w *world) tries(s *server, i int) {
	try := universe[i]
	stands := w.standing.has(i)
	fails := func(v verdict, refused bool) {
		w.judged++
		if v.waits || refused == (v.by != "") || !refused && try.name == "" {
			return
		}
		w.wrong = append(w.wrong, fmt.Sprintf("%s %s %s %s/%s as pod %q of %s: refused by %q, to be refused: %v", try.op, try.group, try.resource, try.namespace, try.object, try.pod, try.user, v.by, refused))
	}
	switch {
	case try.everyone, try.steals:
		if stands {
			fails(s.verdict(try), true)
		}
	case try.renews:
		fails(s.verdict(try), false)
	default:
		leader := s.settled(try.election)
		for _, pod := range []string{"a." + try.election, "c." + try.election, "b"} {
			try.pod = pod
			switch {
			case pod == leader:
				fails(s.verdict(try), false)
			case stands && (pod == "b" || leader != ""):
				fails(s.verdict(try), true)
			}
		}
	}
}

// barrier records the newest barrier.
func (w *world) barrier(object any) {
	p, ok := object.(*admissionv1.ValidatingAdmissionPolicy)
	if !ok || !strings.Contains(p.Name, ".barrier-") {
		return
	}
	w.newest = p.Name
	if w.planted == oneBarrier {
		p.Spec.MatchConstraints.ResourceRules[0].ResourceNames = []string{barrierOfAll}
	}
}
