package leaderelection

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock/locktest"
)

// predecessorSeeds is how many random runs an ordinary test plays.
const predecessorSeeds = 150

// takeover counts who works: an old replica must be alone.
type takeover struct {
	mu         sync.Mutex
	rand       *rand.Rand
	old        map[*part]bool
	live       map[*part]bool
	terms      int
	violations []string
	began      time.Time
	plant      func(*k8sleaderelection.LeaderElectionConfig)
}

func (o *takeover) watched(p *part, works bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.live, p)
	if !works {
		return
	}
	o.live[p] = true
	o.terms++
	for other := range o.live {
		if other != p && (o.old[p] || o.old[other]) {
			o.violations = append(o.violations, fmt.Sprintf("%v: %s started while %s works", time.Since(o.began), p.name, other.name))
		}
	}
}

func (o *takeover) intn(n int) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.rand.IntN(n)
}

func (o *takeover) faults(locktest.Verb) locktest.Fault {
	o.mu.Lock()
	defer o.mu.Unlock()
	some := func(d time.Duration) time.Duration { return time.Duration(o.rand.Int64N(int64(d))) }
	f := locktest.Fault{Before: some(20 * time.Millisecond), After: some(20 * time.Millisecond)}
	switch n := o.rand.IntN(100); {
	case n < 4:
		f.Lose = locktest.TheRequest
	case n < 8:
		f.Lose = locktest.TheReply
	case n < 10:
		f.Lose, f.Hang = locktest.TheReply, true
	case n < 15:
		f.Before, f.Arrives = some(6*time.Second), true
	case n < 20:
		f.After = some(6 * time.Second)
	}
	return f
}

// play has old and new replicas come and go, and be cut off, at random.
func (o *takeover) play(t *testing.T, store *locktest.Store) {
	var parts []*part
	entered := 0
	enter := func() {
		setup := func(p *part) {
			p.watched, p.faults, p.plant = o.watched, o.faults, o.plant
			p.drain = time.Duration(o.intn(8000)) * time.Millisecond
		}
		entered++ // no two processes of one name: those are outside the promise
		name := fmt.Sprintf("p%d", entered)
		if o.intn(2) == 0 {
			parts = append(parts, old(t, store, name, setup, func(p *part) {
				o.mu.Lock()
				defer o.mu.Unlock()
				o.old[p] = true
			}))
			return
		}
		parts = append(parts, successor(t, store, name, setup))
	}
	enter()
	enter()
	for range 25 {
		<-time.After(time.Duration(o.intn(40000)) * time.Millisecond)
		if len(parts) == 0 {
			enter()
		}
		i := o.intn(len(parts))
		p := parts[i]
		switch o.intn(4) {
		case 0:
			if len(parts) < 5 {
				enter()
			}
		case 1:
			p.quit()
			parts = append(parts[:i:i], parts[i+1:]...)
		case 2:
			p.client.MuteWatches(true)
			p.client.SetFault(func(locktest.Verb) locktest.Fault { return locktest.Fault{Hang: true} })
			<-time.After(time.Duration(o.intn(40000)) * time.Millisecond)
			p.client.MuteWatches(false)
			p.client.SetFault(o.faults)
		case 3:
			p.client.DropWatches()
		}
	}
	for _, p := range parts { // nothing is lost or late any more
		p.client.SetFault(nil)
	}
	<-time.After(5 * oldLease)
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(parts) > 0 && len(o.live) == 0 {
		o.violations = append(o.violations, fmt.Sprintf("nobody works in the end: %+v", store.Snapshot()))
	}
}

// playSeeds returns what went wrong, seed by seed, until enough has.
func playSeeds(t *testing.T, seeds uint64, plant func(*k8sleaderelection.LeaderElectionConfig)) (terms int, violations []string) {
	for seed := uint64(0); seed < seeds && len(violations) == 0; seed++ {
		synctest.Test(t, func(t *testing.T) {
			o := &takeover{rand: rand.New(rand.NewPCG(seed, 9)), old: map[*part]bool{}, live: map[*part]bool{}, began: time.Now(), plant: plant}
			o.play(t, locktest.NewStore(locktest.ConfigMap))
			terms += o.terms
			for _, v := range o.violations {
				violations = append(violations, fmt.Sprintf("seed %d: %s", seed, v))
			}
		})
	}
	return terms, violations
}

// Old replicas never work beside anybody, whatever comes and goes.
func TestOldReplicasAreAloneAtRandom(t *testing.T) {
	terms, violations := playSeeds(t, predecessorSeeds, nil)
	for _, v := range violations {
		t.Error(v)
	}
	t.Logf("%d seeds, %d spans of work", predecessorSeeds, terms)
}

// Bugs that are planted in the keeper have to show.
func TestRandomTakeoversShowPlantedBugs(t *testing.T) {
	for name, plant := range map[string]func(*k8sleaderelection.LeaderElectionConfig){
		"takes each write for stored": func(c *k8sleaderelection.LeaderElectionConfig) {
			if lock, ok := c.Lock.(k8sresourcelock.Versioned); ok {
				c.Lock = hopeful{lock}
			}
		},
		"takes any holder for a successor": func(c *k8sleaderelection.LeaderElectionConfig) {
			if lock, ok := c.Lock.(k8sresourcelock.Versioned); ok {
				c.Lock = believer{lock}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			if _, violations := playSeeds(t, predecessorSeeds, plant); len(violations) == 0 {
				t.Errorf("nothing shows within %d seeds", predecessorSeeds)
			}
		})
	}
}

// believer takes whoever holds the lock for somebody that keeps it for the successors.
type believer struct{ k8sresourcelock.Versioned }

func (b believer) Read(ctx context.Context) (k8sresourcelock.Snapshot, error) {
	snap, err := b.Versioned.Read(ctx)
	if snap.Exists && snap.Unreadable == nil && snap.Record.HolderIdentity != "" && snap.Record.HolderIdentity != b.Identity() {
		snap.Record.HolderIdentity = k8sresourcelock.Successors
		snap.Notes = map[string]string{k8sresourcelock.PredecessorAnnotation: k8sresourcelock.SuccessorsNote(snap.Record, "believer")}
	}
	return snap, err
}

// hopeful takes a write that nobody has answered in time for one that was stored.
type hopeful struct{ k8sresourcelock.Versioned }

func (h hopeful) Write(ctx context.Context, base k8sresourcelock.Snapshot, r k8sresourcelock.LeaderElectionRecord, notes map[string]string) (k8sresourcelock.Snapshot, error) {
	snap, err := h.Versioned.Write(ctx, base, r, notes)
	if version, bad := strconv.ParseUint(base.ResourceVersion, 10, 64); err != nil && ctx.Err() != nil && bad == nil {
		base.Record, base.Notes, base.Raw, base.ResourceVersion = r, notes, []byte(r.RenewTime.String()), strconv.FormatUint(version+1, 10)
		return base, nil
	}
	return snap, err
}
