package leaderelection

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// candidate is an elector for the predecessor's lock.
type candidate interface {
	Campaign(ctx context.Context) error
	Status() k8sleaderelection.Status
	SetDefaultRevision(d k8sleaderelection.DefaultRevision)
}

// win takes the lock as a candidate among those of earlier versions, by their rules, and
// hands it over to the successors. With giveWay it returns when somebody else has. uid is the object's as it was read
// before, if there was one.
//
// Without it, what is seen of the holder does not tell that another of the successors has
// written the note that was missing, so the lock is looked at.
func (k *keeper) win(parent context.Context, uid types.UID, giveWay bool) (held hold, ok bool) {
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	var witness atomic.Bool // this candidate has seen a holder, and goes by its end
	lead := func(leading context.Context) error {
		if held, ok = k.handOver(leading, &witness); ok {
			cancel()
		}
		return nil
	}
	var elector candidate
	elector, err := k.elect(lead, func(holder string) {
		if holder != "" && holder != k.lock.Identity() {
			witness.Store(true)
		}
		if s := elector.Status(); s.Holder == holder { // else there is a newer one already
			k.saw(holder, uid, s.Transitions)
		}
		if giveWay && holder == k8sresourcelock.Successors {
			cancel()
		}
	})
	if err != nil { // the same values made the election's own elector
		k.log.Error("no candidate for the predecessor's lock", "lock", k.lock.Describe(), "err", err)
		return hold{}, false
	}
	var helper sync.WaitGroup
	defer helper.Wait()
	defer cancel()
	helper.Go(func() {
		k.rank(ctx, elector, func() {
			if !giveWay && k.isKept(ctx) {
				cancel()
			}
		})
	})
	if err := elector.Campaign(ctx); err != nil {
		k.log.Warn("the candidate for the predecessor's lock ended with an error", "lock", k.lock.Describe(), "err", err)
	}
	return held, ok
}

// handOver makes the lock that this process leads by one that is kept; false: it leads no more. A holder from
// before that no witness has waited for may act until then.
func (k *keeper) handOver(leading context.Context, witness *atomic.Bool) (held hold, ok bool) {
	for fails := 0; leading.Err() == nil; {
		snap, err := k.read(leading)
		if err == nil && snap.Record.HolderIdentity != k.lock.Identity() {
			return hold{}, false // taken from us; the elector sees it too
		}
		if err == nil {
			if !witness.Load() {
				k.follows(snap)
			}
			// While somebody may act, the lock is none that others keep with us.
			if wait := k.former.actsFor(k.clock.Now()); wait > 0 {
				k.linger(leading, min(wait, k.retry))
				continue
			}
			if held, err = k.write(leading, snap); err == nil {
				return held, true
			}
		}
		k.backOff(leading, fails, k.retry)
		fails++
	}
	return hold{}, false
}

// saw notes a holder that is another than this process.
func (k *keeper) saw(holder string, uid types.UID, transitions int) {
	if holder != k.lock.Identity() {
		k.former.saw(holder, uid, transitions)
	}
}

// follows notes that the lock is as in snap, and whether that follows on the holder that was seen last.
func (k *keeper) follows(snap k8sresourcelock.Snapshot) {
	if k.former.rewound(snap.UID, snap.Record.LeaderTransitions, k.clock.Now(), k.lease+k.peerGrace) {
		k.log.Warn("the predecessor's lock was deleted, or went back to an earlier state; run functions wait for the holder that was seen in it",
			"lock", k.lock.Describe(), "wait", k.lease+k.peerGrace)
	}
}

// isKept reports whether the lock is known to be one that the successors keep.
func (k *keeper) isKept(ctx context.Context) bool {
	snap, err := k.read(ctx)
	return err == nil && snap.KeptForSuccessors()
}

// rank tells the candidate the default revision, again and again: a handler of the
// watcher's could not be taken back. also is called as often.
func (k *keeper) rank(ctx context.Context, elector candidate, also func()) {
	ticker := time.NewTicker(k.retry)
	defer ticker.Stop()
	for {
		elector.SetDefaultRevision(k.deflt())
		select {
		case <-ticker.C:
			also()
		case <-ctx.Done():
			return
		}
	}
}

// predecessorCandidate makes a candidate as earlier versions have them.
func (l *LeaderElection) predecessorCandidate(lock watchedLock, lead func(context.Context) error, seen func(string)) (candidate, error) {
	return k8sleaderelection.NewLeaderElector(k8sleaderelection.LeaderElectionConfig{
		Lock:          lock,
		LeaseDuration: l.cfg.LeaseDuration, RenewDeadline: l.cfg.RenewDeadline, RetryPeriod: l.cfg.RetryPeriod,
		PeerGrace:       l.cfg.PeerGrace,
		ReleaseOnCancel: true,
		Name:            l.cfg.lockName() + " (predecessor)",
		Work:            []func(context.Context) error{lead},
		Ranked:          true,
		Clock:           l.clock,
		Callbacks:       k8sleaderelection.LeaderCallbacks{OnNewLeader: seen},
		Logger:          l.cfg.Logger,
	})
}
