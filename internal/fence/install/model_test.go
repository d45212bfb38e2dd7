package install

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"

	"k8s.io/client-go/kubernetes"

	"incumbent.dev/incumbent/internal/fence"
)

// upgradesVariable is the number of random upgrades, firstVariable the number of the first.
const (
	upgradesVariable = "FENCE_MODEL_UPGRADES"
	firstVariable    = "FENCE_MODEL_FIRST"
)

const (
	home, work = "home", "work"
	admin      = "admin"
	// perTrial is how many installations and removals one cluster sees.
	perTrial = 8
)

var (
	elections = []string{"one", "two"}
	sets      = []string{"home", "away"}
	users     = []string{"system:serviceaccount:home:p1", "system:serviceaccount:home:p2"}
)

// universe is all that is tried at each turn.
var universe = everything()

func everything() (all []asked) {
	for _, e := range elections {
		for _, user := range users {
			add := func(w asked) {
				w.user, w.election = user, e
				all = append(all, w)
			}
			label := map[string]string{"app": e}
			for _, op := range []string{"CREATE", "UPDATE", "DELETE"} {
				for _, name := range []string{"guarded-" + e, "another-" + e} {
					add(asked{op: op, resource: "configmaps", namespace: work, name: name, object: name})
				}
				add(asked{op: op, resource: "secrets", namespace: work, name: "x-" + e, object: "x-" + e, labels: label})
				add(asked{op: op, resource: "secrets", namespace: home, name: "y-" + e, object: "y-" + e})
				add(asked{op: op, group: "rbac.authorization.k8s.io", resource: "clusterroles", name: "r-" + e, object: "r-" + e, clusterScope: true})
			}
			add(asked{op: "DELETE", resource: "configmaps", namespace: work, object: "guarded-" + e})
			add(asked{op: "UPDATE", group: "apps", resource: "deployments/scale", namespace: work, name: "d-" + e, object: "d-" + e})
		}
		for group, resource := range map[string]string{"": "configmaps", "coordination.k8s.io": "leases"} {
			lock := asked{op: "UPDATE", group: group, resource: resource, namespace: home, name: e, object: e, election: e, user: users[0]}
			steals, renews, collection := lock, lock, lock
			steals.steals, renews.renews = true, true
			collection.everyone, collection.op, collection.name = true, "DELETE", ""
			all = append(all, steals, renews, collection)
		}
		all = append(all, asked{op: "DELETE", resource: "namespaces", name: home, object: home, user: admin, everyone: true, election: e, clusterScope: true})
	}
	for i := range all {
		all[i].place = i + 1
	}
	return all
}

// mayGuard reports whether a write of a follower must be rejected, from the declarations alone.
func mayGuard(ds []fence.Declaration, w asked) bool {
	for _, d := range ds {
		if d.Election != w.election || d.Mode != "" && d.Mode != fence.Deny {
			continue
		}
		kind := map[string]fence.LockKind{"configmaps": fence.ConfigMap, "leases": fence.Lease}[w.resource]
		switch {
		case w.op == "DELETE" && w.resource == "namespaces":
			return len(d.Guards) > 0
		case w.everyone: // a collection with the lock in it
			return d.Lock == kind && !slices.ContainsFunc(ds, func(d fence.Declaration) bool {
				return d.Lock == kind && !d.WithoutLockGuard && d.Mode != "" && d.Mode != fence.Deny
			}) && !d.WithoutLockGuard
		case w.steals:
			return d.Lock == kind && !d.WithoutLockGuard
		case w.renews:
			return false
		}
		account := map[string]string{users[0]: "home/p1", users[1]: "home/p2"}[w.user]
		if slices.Contains(d.ServiceAccounts, account) && slices.ContainsFunc(d.Guards, func(g fence.Guard) bool { return guards(g, w) }) {
			return true
		}
	}
	return false
}

func guards(g fence.Guard, w asked) bool {
	verbs := g.Verbs
	if len(verbs) == 0 {
		verbs = []string{"create", "update", "delete"}
	}
	verb := map[string]string{"CREATE": "create", "UPDATE": "update", "DELETE": "delete"}[w.op]
	for key, value := range g.Labels {
		if w.labels[key] != value {
			return false
		}
	}
	return slices.Contains(verbs, verb) && g.Group == w.group && slices.Contains(g.Resources, w.resource) &&
		(len(g.Names) == 0 || slices.Contains(g.Names, w.object)) &&
		(len(g.Namespaces) == 0 || slices.Contains(g.Namespaces, w.namespace))
}

// standing has, by election, the writes that the fence must reject unless the leader sends them, and the sets that may
// have guards of the election.
type standing map[string]*owned

type owned struct {
	writes map[int]bool
	by     map[string]bool
}

func (s standing) has(i int) bool {
	o := s[universe[i].election]
	return o != nil && o.writes[i]
}

// shrink keeps the guards that a set has before and after a change, and begun records that it runs.
func (s standing) shrink(set string, ds []fence.Declaration) {
	for e, o := range s {
		declared := slices.ContainsFunc(ds, func(d fence.Declaration) bool { return d.Election == e })
		if !declared && !o.by[set] {
			continue
		}
		o.by[set] = true
		for i := range o.writes {
			if !mayGuard(ds, universe[i]) {
				delete(o.writes, i)
			}
		}
	}
	for _, d := range ds {
		if s[d.Election] == nil {
			s[d.Election] = &owned{writes: map[int]bool{}, by: map[string]bool{set: true}}
		}
	}
}

// grow is called when a set is in effect.
func (s standing) grow(set string, ds []fence.Declaration) {
	for _, d := range ds {
		s[d.Election].by = map[string]bool{set: true}
	}
	for i, w := range universe {
		if mayGuard(ds, w) {
			s[w.election].writes[i] = true
		}
	}
}

// declared draws a declaration of an election.
func declared(r *rand.Rand, e string) fence.Declaration {
	some := func(all ...[]string) []string { return all[r.IntN(len(all))] }
	d := fence.Declaration{
		Election: e, Namespace: home, Lock: []fence.LockKind{fence.ConfigMap, fence.Lease}[r.IntN(2)], Multi: r.IntN(2) == 0,
		ServiceAccounts: some([]string{"home/p1"}, []string{"home/p1", "home/p2"}, []string{"home/p2", "home/p1"}), WithoutLockGuard: r.IntN(4) == 0,
	}
	if r.IntN(12) == 0 {
		d.Mode = []fence.Mode{fence.Audit, fence.Warn}[r.IntN(2)]
	}
	verbs := func() []string { return some(nil, nil, []string{"create"}, []string{"delete", "update"}) }
	kinds := []func() fence.Guard{
		func() fence.Guard {
			return fence.Guard{Resources: []string{"configmaps"}, Names: some([]string{"guarded-" + e}, []string{"another-" + e, "guarded-" + e}), Verbs: verbs()}
		},
		func() fence.Guard {
			return fence.Guard{Resources: []string{"secrets"}, Labels: map[string]string{"app": e}, Verbs: verbs()}
		},
		func() fence.Guard {
			return fence.Guard{Resources: []string{"secrets", "configmaps"}, Names: []string{"y-" + e, "guarded-" + e}, Namespaces: some([]string{home}, []string{home, work}), Verbs: verbs()}
		},
		func() fence.Guard {
			return fence.Guard{Group: "apps", Resources: []string{"deployments/scale"}, Names: []string{"d-" + e}, Namespaces: some(nil, []string{work})}
		},
		func() fence.Guard {
			return fence.Guard{Group: "rbac.authorization.k8s.io", Resources: []string{"clusterroles"}, Names: []string{"r-" + e}, Verbs: verbs()}
		},
	}
	for range r.IntN(5) {
		d.Guards = append(d.Guards, kinds[r.IntN(len(kinds))]())
	}
	if len(d.Guards) == 0 {
		d.WithoutLockGuard = false
	}
	return d
}

// trial plays installations, upgrades, removals and their interruptions in one cluster.
func trial(ctx context.Context, seed uint64, planted plant) (w *world, upgrades int, err error) {
	r := rand.New(rand.NewPCG(seed, 12))
	w = newWorld(r, 1+r.IntN(3))
	w.planted = planted
	several := r.IntN(3) == 0 // sets that take locks over from one another
	for range perTrial {
		set := sets[0]
		if several {
			set = sets[r.IntN(2)]
		}
		w.left, w.interrupted = -1, false
		if r.IntN(2) == 0 {
			w.left = r.IntN(40)
		}
		for _, s := range w.servers {
			s.stalled = r.IntN(60) == 0
		}
		if planted == oneBarrier {
			w.forget(set)
		}
		ds := []fence.Declaration{declared(r, elections[0])}
		if r.IntN(2) == 0 {
			ds = append(ds, declared(r, elections[1]))
		}
		if r.IntN(10) == 0 {
			ds = nil // it is removed
		}
		err := w.operation(ctx, set, ds, Options{Replace: several})
		upgrades++
		if len(w.wrong) > 0 {
			return w, upgrades, nil
		}
		if err != nil && !errors.Is(err, errInterrupted) && !errors.Is(err, ErrNotSeen) {
			return w, upgrades, err
		}
		if r.IntN(2) == 0 {
			for _, s := range w.servers {
				s.stalled = false
			}
			w.settle()
		}
	}
	return w, upgrades, nil
}

// forget leaves a barrier behind, as an installer does that is interrupted while it waits.
func (w *world) forget(set string) {
	p, _ := fence.Barrier(set, "0", barrierNamespace)
	left := w.left
	w.left = -1
	w.barrier(p.Policy)
	_, _ = w.policies.put(p.Name(), "", p.Policy) // nothing fails here
	_, _ = w.bindings.put(p.Name(), "", p.Binding)
	w.left = left
	w.settle()
}

// operation installs the declarations, or removes the set.
func (w *world) operation(ctx context.Context, set string, ds []fence.Declaration, o Options) error {
	clients := w.clients()
	if o.Servers = clients[1:]; w.planted == oneServer {
		o.Servers = nil
	}
	w.standing.shrink(set, ds)
	if len(ds) == 0 {
		_, err := Remove(ctx, clients[0], set, o)
		return err
	}
	rendered, err := fence.Render(set, ds...)
	if err != nil {
		return err
	}
	if err := applied(ctx, clients[0], rendered, o, w.planted); err != nil {
		return err
	}
	w.standing.grow(set, ds)
	w.judge(w.servers...)
	return nil
}

// applied installs a set as Apply does, but for a planted fault.
func applied(ctx context.Context, client kubernetes.Interface, set fence.Set, o Options, planted plant) error {
	switch planted {
	case oldFirst:
		_, err := remove(ctx, client, func(was object) bool {
			return was.of(set.Name) && !slices.ContainsFunc(set.All(), func(p fence.Pair) bool { return p.Name() == was.GetName() })
		})
		if err != nil {
			return err
		}
	case byPosition:
		for i, p := range set.Work {
			name := fmt.Sprintf("%s%s.work-%010d", fence.PolicyPrefix, set.Name, i)
			p.Policy.Name, p.Binding.Name, p.Binding.Spec.PolicyName = name, name, name
		}
	case noKeepers:
		set.Permanent = nil
	case none, noWait, oneServer, oneBarrier:
	}
	_, err := Apply(ctx, client, set, o)
	return err
}

func number(t *testing.T, variable string, otherwise int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		t.Fatalf("%s=%s: give a number", variable, text)
	}
	return n
}

func TestModel_Upgrades(t *testing.T) {
	trials, first := (number(t, upgradesVariable, 400)+perTrial-1)/perTrial, number(t, firstVariable, 0)
	lanes := runtime.GOMAXPROCS(0)
	for lane := range lanes {
		t.Run(strconv.Itoa(lane), func(t *testing.T) {
			t.Parallel()
			upgrades, judged := 0, 0
			for n := first + lane; n < first+trials; n += lanes {
				synctest.Test(t, func(t *testing.T) {
					w, played, err := trial(t.Context(), uint64(n), none)
					upgrades, judged = upgrades+played, judged+w.judged
					if err != nil || len(w.wrong) > 0 {
						t.Errorf("trial %d (%s=%[1]d %s=1 plays it alone): %v, %v", n, firstVariable, upgradesVariable, err, w.wrong[:min(3, len(w.wrong))])
					}
				})
			}
			t.Logf("figure: %d upgrades, %d writes judged", upgrades, judged)
		})
	}
}

func TestModel_FindsPlantedFaults(t *testing.T) {
	const most = 600 // trials
	for _, planted := range []plant{oldFirst, byPosition, noWait, oneServer, oneBarrier, noKeepers} {
		t.Run(string(planted), func(t *testing.T) {
			t.Parallel()
			for n := range most {
				var wrong []string
				synctest.Test(t, func(t *testing.T) {
					w, _, err := trial(t.Context(), uint64(n), planted)
					if wrong = w.wrong; err != nil {
						t.Error(err)
					}
				})
				if len(wrong) > 0 {
					t.Logf("convicted in trial %d: %s", n, wrong[0])
					return
				}
			}
			t.Errorf("not convicted in %d trials", most)
		})
	}
}
