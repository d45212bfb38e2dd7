package leaderelection

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock/locktest"
)

// fault is what happens to one request of the process for one of the two objects.
func (p *process) fault(object int, v locktest.Verb) locktest.Fault {
	w := p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	p.asked = time.Since(w.began)
	if !p.dead && p.l != nil {
		p.verbs[object][v]++
		p.sent[object] = append(p.sent[object], time.Since(w.began))
	}
	f := locktest.Fault{Before: w.upTo(20 * time.Millisecond), After: w.upTo(20 * time.Millisecond)}
	switch {
	case p.dead || p.cut:
		return locktest.Fault{Hang: true}
	case p.refuse[v] != nil:
		f.Err = p.refuse[v]
		return f
	case w.calm:
		return f
	}
	switch n := w.rand.IntN(100); {
	case n < 3:
		f.Lose = locktest.TheRequest
	case n < 7:
		f.Lose = locktest.TheReply
	case n < 9:
		f.Lose, f.Hang = locktest.TheReply, true
	case n < 15:
		f.Before, f.Arrives = w.upTo(4*time.Second), true
	case n < 20:
		f.After = w.upTo(3 * time.Second)
	}
	return f
}

// upTo is some for those who hold mu.
func (w *world) upTo(most time.Duration) time.Duration {
	return time.Duration(w.rand.Int64N(int64(most)))
}

func (w *world) pick() *process { return w.processes[w.intn(len(w.processes))] }

// act does one thing to the processes, to their locks or to what is between them.
func (w *world) act() {
	switch w.intn(18) {
	case 0, 1: // one dies, and comes back under its name
		p := w.pick()
		w.kill(p)
		if w.intn(2) == 0 {
			w.wait(playLease / 2)
			w.startable()
			w.start(p.name, p.revision, w.kind())
		}
	case 2, 3: // a rollout replaces one
		w.startable()
		p := w.pick()
		w.quit(p)
		w.start(w.name(), p.revision, w.kind())
	case 4, 5:
		w.flip()
	case 6:
		w.oneIsCutOff()
	case 7:
		w.watchesEnd()
	case 8, 9, 10:
		w.oneSided()
	case 11, 12, 13:
		w.order()
	case 14:
		w.edit()
	case 15:
		w.store().Annotate("example.com/n", fmt.Sprint(w.intn(1000)))
	case 16:
		w.fitness()
	case 17:
		w.backUpOrRestore()
	}
	if len(w.processes) < 2 {
		w.startable()
		w.start(w.name(), w.revision(), w.kind())
	}
}

func (w *world) store() *locktest.Store {
	stores := w.stores()
	return stores[w.intn(len(stores))]
}

func (w *world) set(p *process, change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

func (w *world) kill(p *process) {
	w.logf("kill %s", p.name)
	w.set(p, func() {
		if p.running {
			p.runs[len(p.runs)-1].to = time.Now()
		}
		p.dead, p.running = true, false
	})
	for _, c := range p.clients {
		c.MuteWatches(true)
	}
	p.cancel()
	w.forget(p)
}

func (w *world) quit(p *process) {
	w.logf("quit %s", p.name)
	p.cancel()
	w.forget(p)
	began := time.Now()
	<-p.done
	if took := time.Since(began); took > 5*playLease {
		w.violate("%s took %v to end", p.name, took)
	}
}

func (w *world) forget(p *process) {
	for i, q := range w.processes {
		if q == p {
			w.processes = append(w.processes[:i:i], w.processes[i+1:]...)
			return
		}
	}
}

// startable waits until a process that starts is not one that promises exclude: one that has
// never seen a record whose holder may still act.
func (w *world) startable() {
	if d := time.Until(w.untouched); d > 0 {
		<-time.After(d)
	}
}

// flip changes the default revision; each process hears of it when its own watch has it.
func (w *world) flip() {
	w.set(nil, func() { w.deflt = playRevisions[w.rand.IntN(len(playRevisions))] })
	w.logf("default is %s", w.deflt)
	revision := w.deflt
	for _, p := range w.processes {
		watcher, late := p.watcher, w.some(3*time.Second)
		w.orders.Go(func() {
			<-time.After(late)
			watcher.set(revision)
		})
	}
}

func (w *world) oneIsCutOff() {
	p := w.pick()
	w.logf("cut %s", p.name)
	w.set(p, func() { p.cut = true })
	for _, c := range p.clients {
		c.MuteWatches(true)
	}
	w.wait(12 * time.Second)
	w.set(p, func() { p.cut = false })
	for _, c := range p.clients {
		c.MuteWatches(false)
	}
	w.logf("%s is back", p.name)
}

func (w *world) watchesEnd() {
	for _, c := range w.pick().clients {
		switch w.intn(4) {
		case 0:
			c.DropWatches()
		case 1:
			c.ExpireWatches()
		case 2:
			c.EndWatches(apierrors.NewInternalError(locktest.ErrConnection))
		case 3:
			c.SetWatchDelay(w.some(2 * time.Second))
		}
	}
}

// oneSided has some kinds of request refused for a while, of one process or of all.
func (w *world) oneSided() {
	gr := schema.GroupResource{Resource: "locks"}
	why := []error{
		apierrors.NewForbidden(gr, locktest.Name, nil), apierrors.NewInternalError(locktest.ErrConnection),
		apierrors.NewTooManyRequests("later", 1), apierrors.NewConflict(gr, locktest.Name, locktest.ErrConnection),
	}
	verbs := [][]locktest.Verb{{locktest.Get}, {locktest.Update, locktest.Create}, {locktest.Watch}, {locktest.Update, locktest.Watch}}[w.intn(4)]
	err := why[w.intn(len(why))]
	some := w.processes
	if w.intn(2) == 0 {
		some = []*process{w.pick()}
	}
	w.logf("refused to %d: %v: %v", len(some), verbs, err)
	set := func(err error) {
		for _, p := range some {
			w.set(p, func() {
				for _, v := range verbs {
					p.refuse[v] = err
				}
			})
		}
	}
	set(err)
	if w.intn(2) == 0 {
		for _, p := range some {
			for _, c := range p.clients {
				c.DropWatches()
			}
		}
	}
	w.wait(4 * playLease)
	set(nil)
	w.logf("refused no more")
}

// order gives an operator's order, which has to come back by itself.
func (w *world) order() {
	m := w.cast[w.intn(len(w.cast))]
	for m == istiodPeer || m == clientGoPeer {
		m = w.cast[0]
	}
	revision := w.revision()
	to := "nobody"
	if w.intn(4) > 0 {
		to = w.pick().name
	}
	k := playKube{configMaps: w.objects.Client("operator"), leases: w.leases[revision].Client("operator")}
	o, err := w.election("operator", revision, m, k, &playWatcher{}, nil).Operator("play")
	if err != nil {
		w.t.Fatal(err)
	}
	for _, c := range []*locktest.Client{k.configMaps, k.leases} {
		p := &process{w: w}
		c.SetFault(func(v locktest.Verb) locktest.Fault { return p.fault(0, v) })
	}
	length := time.Second + w.some(2*playLease)
	which := w.intn(4)
	w.ordered++
	w.orders.Go(func() {
		began := time.Now()
		err := []func() error{
			func() error { return o.Transfer(w.ctx, to, revision, "", length) },
			func() error { return o.StepDown(w.ctx, "", length) },
			func() error { return o.Pause(w.ctx, "", length) },
			func() error { return o.Resume(w.ctx) },
		}[which]()
		w.logf("order %d (%v) to %s: %v", which, m, to, err)
		// A drain, a nomination that runs out and the nominee's settling: each a lease or so.
		if took := time.Since(began); took > 12*playLease {
			w.violate("order %d to %s took %v: %v", which, to, took, err)
		}
	})
}

// edit changes a lock object by hand. A process that starts now would know of nothing before.
func (w *world) edit() {
	<-time.After(8 * time.Second)
	if !w.allKnow() {
		return // a promise excludes who never saw the record before it was gone
	}
	s, what := w.store(), w.intn(3)
	w.logf("edit %d on %s", what, s.Kind())
	[]func(){func() { s.Delete() }, s.Empty, s.Corrupt}[what]()
	w.untouched = time.Now().Add(2*playLease + 5*time.Second)
}

func (w *world) fitness() {
	p := w.pick()
	err := context.DeadlineExceeded
	w.set(p, func() {
		if p.unfit == nil {
			p.unfit = err
		} else {
			p.unfit = nil
		}
	})
	w.logf("%s is unfit: %v", p.name, p.unfit != nil)
}

// backUpOrRestore takes the etcd's state, or puts an earlier one back.
func (w *world) backUpOrRestore() {
	if len(w.backups) == 0 || w.intn(2) == 0 {
		backup := map[*locktest.Store]locktest.Backup{}
		for _, s := range w.stores() {
			backup[s] = s.Backup()
		}
		w.backups = append(w.backups, backup)
		return
	}
	<-time.After(8 * time.Second)
	if !w.allKnow() {
		return
	}
	n := w.intn(len(w.backups))
	w.logf("restore %d", n)
	w.takeEvents()
	w.set(nil, func() {
		w.restored = time.Now()
		clear(w.tokens)
	})
	for _, s := range w.stores() {
		s.Restore(w.backups[n][s])
	}
	w.backups = w.backups[:n]
	w.untouched = time.Now().Add(2*playLease + 5*time.Second)
}

// allKnow reports whether every process of ours has seen who holds its lock, and in which term.
func (w *world) allKnow() bool {
	for _, p := range w.processes {
		if p.l == nil {
			continue
		}
		s := p.l.Status()
		if s.Holder == "" && s.Phase != "leading" {
			return false
		}
		record := w.objects.Snapshot().Record
		if p.make == leaseOnly || p.make == withPredecessor {
			record = w.leases[p.revision].Snapshot().Record
		}
		if p.make == bothLocks && record.HolderIdentity != s.Holder {
			record = w.leases[p.revision].Snapshot().Record
		}
		if s.Holder != record.HolderIdentity || s.Transitions != record.LeaderTransitions {
			return false
		}
	}
	return true
}
