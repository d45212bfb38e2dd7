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
	// perTrial is how many installations and removals one cluster sees.
	perTrial = 8
)

var (
	elections = []string{"one", "two"}
	sets      = []string{"home", "away"}
)

// declared draws a declaration of an election.
func declared(r *rand.Rand, e string) fence.Declaration {
	accounts := [][]string{{"home/p1"}, {"home/p1", "home/p2"}, {"home/p2", "home/p1"}}
	d := fence.Declaration{
		Election: e, Namespace: home, Lock: []fence.LockKind{fence.ConfigMap, fence.Lease}[r.IntN(2)], Multi: r.IntN(2) == 0,
		ServiceAccounts: accounts[r.IntN(len(accounts))], WithoutLockGuard: r.IntN(4) == 0,
	}
	for range r.IntN(5) {
		names := []string{"x-" + e, "y-" + e}
		d.Guards = append(d.Guards, fence.Guard{Resources: []string{[]string{"configmaps", "secrets"}[r.IntN(2)]}, Names: names[r.IntN(2):]})
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
	w.required.shrink(set, ds)
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
	w.required.grow(set, ds)
	for _, s := range w.servers {
		s.judge()
	}
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
			t.Logf("figure: %d upgrades, %d objects judged", upgrades, judged)
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
