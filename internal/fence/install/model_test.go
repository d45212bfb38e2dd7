package install

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"testing/synctest"

	"incumbent.dev/incumbent/internal/fence"
	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/internal/testutil/harness"
)

// upgradesVariable is the number of random upgrades.
const upgradesVariable = "FENCE_MODEL_UPGRADES"

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
		Election: e, Namespace: home, Lock: []record.Kind{record.ConfigMap, record.Lease}[r.IntN(2)],
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
func trial(ctx context.Context, seed uint64, planted plant) (*world, error) {
	r := rand.New(rand.NewPCG(seed, 12))
	w := newWorld(r, 1+r.IntN(3))
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
		ds := []fence.Declaration{declared(r, elections[0])}
		if r.IntN(2) == 0 {
			ds = append(ds, declared(r, elections[1]))
		}
		if r.IntN(10) == 0 {
			ds = nil // it is removed
		}
		err := w.operation(ctx, set, ds, Options{Replace: several})
		if len(w.wrong) > 0 {
			return w, nil
		}
		if err != nil && !errors.Is(err, errInterrupted) && !errors.Is(err, ErrNotSeen) {
			return w, err
		}
		if r.IntN(2) == 0 {
			for _, s := range w.servers {
				s.stalled = false
			}
			w.settle()
		}
	}
	return w, nil
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
	switch w.planted {
	case byPosition:
		for i, p := range rendered.Work {
			name := fmt.Sprintf("%s%s.work-%010d", fence.PolicyPrefix, set, i)
			p.Policy.Name, p.Binding.Name, p.Binding.Spec.PolicyName = name, name, name
		}
	case noKeepers:
		rendered.Permanent = nil
	case none, oneServer:
	}
	if _, err := Apply(ctx, clients[0], rendered, o); err != nil {
		return err
	}
	w.required.grow(set, ds)
	for _, s := range w.servers {
		s.judge()
	}
	return nil
}

func TestModel_Upgrades(t *testing.T) {
	upgrades, err := strconv.Atoi(cmp.Or(os.Getenv(upgradesVariable), "400"))
	harness.Must(t, err)
	for n := range (upgrades + perTrial - 1) / perTrial {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, err := trial(t.Context(), uint64(n), none)
				if err != nil || len(w.wrong) > 0 {
					t.Errorf("%v, %v", err, w.wrong[:min(3, len(w.wrong))])
				}
			})
		})
	}
}

func TestModel_FindsPlantedFaults(t *testing.T) {
	const most = 600 // trials
	for _, planted := range []plant{byPosition, oneServer, noKeepers} {
		t.Run(string(planted), func(t *testing.T) {
			t.Parallel()
			for n := range most {
				var wrong []string
				synctest.Test(t, func(t *testing.T) {
					w, err := trial(t.Context(), uint64(n), planted)
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
