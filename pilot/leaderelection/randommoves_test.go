package leaderelection

import (
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"incumbent.dev/incumbent/internal/testutil/apiserver"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/internal/testutil/locktest"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/admin"
)

// fault is the kind of failure of one request of the process for one of the two objects.
func (p *process) fault(object int, v string) apiserver.Fault {
	w := p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	p.asked = time.Since(w.began)
	if !p.dead && p.l != nil {
		p.verbs[object][v]++
		p.sent[object] = append(p.sent[object], time.Since(w.began))
	}
	f := apiserver.Fault{Before: w.upTo(20 * time.Millisecond), After: w.upTo(20 * time.Millisecond)}
	switch {
	case p.dead || p.cut || w.bug.givesUp && w.calm && (v == locktest.Update || v == locktest.Create):
		f.Lose = apiserver.TheRequest
		return p.hang(f)
	case p.poor && object == 1 && (v == locktest.Update || v == locktest.Create):
		f.Err = errForbidden
		return f
	case p.refuse[v] != nil:
		f.Err = p.refuse[v]
		return f
	case w.calm:
		return f
	}
	switch n := w.rand.IntN(100); {
	case n < 3:
		f.Lose = apiserver.TheRequest
	case n < 7:
		f.Lose = apiserver.TheReply
	case n < 9:
		f.Lose = apiserver.TheReply
		return p.hang(f)
	case n < 15:
		f.Before, f.Arrives = w.upTo(4*time.Second), true
	case n < 20:
		f.After = w.upTo(3 * time.Second)
	}
	return f
}

// hang returns a fault without a response. The elector of client-go does not bound requests while it campaigns. Its requests end as
// with the Timeout of a rest.Config.
func (p *process) hang(f apiserver.Fault) apiserver.Fault {
	if f.Hang = p.kind != clientGoPeer; !f.Hang {
		f.Before, f.After = playRenew/2, playRenew/2
	}
	return f
}

var locks = schema.GroupResource{Resource: "locks"}

var errForbidden = apierrors.NewForbidden(locks, locktest.Name, nil)

// upTo returns a random duration. The caller holds mu.
func (w *world) upTo(most time.Duration) time.Duration {
	return time.Duration(w.rand.Int64N(int64(most)))
}

func (w *world) pick() *process { return w.processes[w.intn(len(w.processes))] }

// act makes one random move.
func (w *world) act() {
	makeMove(w)
	if len(w.processes) < 2 {
		w.awaitUntouched()
		w.start(w.newName(), w.anyRevision(), w.anyKind())
	}
}

// crash ends a process. It may start again with the same name.
func (w *world) crash() {
	p := w.pick()
	w.kill(p)
	if w.intn(2) == 0 {
		w.wait(playLease / 2)
		w.awaitUntouched()
		w.start(p.name, p.revision, w.anyKind())
	}
}

// replace stops a process and starts another of the same revision, as a rollout does.
func (w *world) replace() {
	w.awaitUntouched()
	p := w.pick()
	w.quit(p)
	w.start(w.newName(), p.revision, w.anyKind())
}

// note writes an annotation of another program on a lock.
func (w *world) note() {
	w.store().Annotate("example.com/n", fmt.Sprint(w.intn(1000)))
}

func (w *world) store() *locktest.Store {
	stores := w.stores()
	return stores[w.intn(len(stores))]
}

func (w *world) kill(p *process) {
	w.logf("kill %s", p.name)
	w.locked(func() {
		if p.running {
			p.record(false)
		}
		p.dead = true
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
	w.processes = slices.DeleteFunc(slices.Clone(w.processes), func(q *process) bool { return q == p })
}

// flip changes the default revision. Each process receives the change when its own watch delivers it.
func (w *world) flip() {
	w.locked(func() { w.defaultRevision = playRevisions[w.rand.IntN(len(playRevisions))] })
	w.logf("default is %s", w.defaultRevision)
	revision := w.defaultRevision
	for _, p := range w.processes {
		late := w.within(3 * time.Second)
		w.orders.Go(func() {
			<-time.After(late)
			p.hears(revision)
		})
	}
}

// cutOff disconnects one process.
func (w *world) cutOff() {
	p := w.pick()
	w.logf("cut %s", p.name)
	w.locked(func() { p.cut = true })
	for _, c := range p.clients {
		c.MuteWatches(true)
	}
	w.wait(12 * time.Second)
	w.locked(func() { p.cut = false })
	for _, c := range p.clients {
		c.MuteWatches(false)
	}
	w.logf("%s is back", p.name)
}

// endWatches ends the watches of one process.
func (w *world) endWatches() {
	for _, c := range w.pick().clients {
		switch w.intn(4) {
		case 0:
			c.EndWatches()
		case 1:
			c.ExpireWatches()
		case 2:
			c.FailWatches(apierrors.NewInternalError(apiserver.ErrConnection))
		case 3:
			c.SetWatchDelay(w.within(2 * time.Second))
		}
	}
}

// refuse rejects some kinds of request for a while, of one process or of all processes.
func (w *world) refuse() {
	why := []error{
		errForbidden, apierrors.NewInternalError(apiserver.ErrConnection),
		apierrors.NewTooManyRequests("later", 1), apierrors.NewConflict(locks, locktest.Name, apiserver.ErrConnection),
	}
	verbs := [][]string{{locktest.Get}, {locktest.Update, locktest.Create}, {locktest.Watch}, {locktest.Update, locktest.Watch}}[w.intn(4)]
	err := why[w.intn(len(why))]
	some := w.processes
	if w.intn(2) == 0 {
		some = []*process{w.pick()}
	}
	w.logf("refused to %d: %v: %v", len(some), verbs, err)
	set := func(err error) {
		for _, p := range some {
			w.locked(func() {
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
				c.EndWatches()
			}
		}
	}
	w.wait(4 * playLease)
	set(nil)
	w.logf("refused no more")
}

// order starts a random command of an operator. A drain, a nomination that runs out and the settling of the nominee may each take
// a lease.
func (w *world) order() {
	m := w.anyKind()
	for m == clientGoPeer {
		m = w.mix[0]
	}
	revision := w.anyRevision()
	to := "ghost"
	if w.intn(4) > 0 {
		to = w.pick().name
	}
	o := w.operator(revision, m)
	length := time.Second + w.within(2*playLease)
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
		if took := time.Since(began); took > 12*playLease {
			w.violate("order %d to %s took %v: %v", which, to, took, err)
		}
	})
}

func (w *world) operator(revision string, m electorKind) admin.Operator {
	objects, leases := w.objects.Client("operator"), w.leases.Client("operator")
	for _, c := range []*apiserver.Client{objects, leases} {
		p := &process{w: w}
		c.On(func(r apiserver.Request) apiserver.Fault { return p.fault(0, r.Verb) })
	}
	o, err := w.election("operator", revision, m, playKube{configMaps: objects, leases: leases}, newWatcher(""), nil).Operator("play")
	harness.Must(w.t, err)
	return o
}

// edit changes a lock object, as an operator does. A process that starts now has not seen the earlier state.
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

// rewind saves the state of etcd, or restores an earlier state.
func (w *world) rewind() {
	if len(w.backups) == 0 || w.intn(2) == 0 {
		backup := map[*locktest.Store]apiserver.Backup{}
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
	w.locked(func() {
		w.restored = time.Now()
		w.token = 0 // a new history
	})
	for _, s := range w.stores() {
		s.Restore(w.backups[n][s])
	}
	w.backups = w.backups[:n]
	w.untouched = time.Now().Add(2*playLease + 5*time.Second)
}

// allKnow reports whether every process of this project has seen the holder of its lock and the term.
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
		if p.kind == leaseOnly {
			record = w.leases.Snapshot().Record
		}
		if p.kind == bothLocks && record.HolderIdentity != s.Holder {
			record = w.leases.Snapshot().Record
		}
		if s.Holder != record.HolderIdentity || s.Transitions != record.LeaderTransitions {
			return false
		}
	}
	return true
}

// moves are the possible moves, with their relative frequency.
var moves = []struct {
	weight int
	do     func(*world)
}{
	{2, (*world).crash},
	{2, (*world).replace},
	{2, (*world).flip},
	{1, (*world).cutOff},
	{1, (*world).endWatches},
	{3, (*world).refuse},
	{3, (*world).order},
	{1, (*world).edit},
	{1, (*world).note},
	{1, (*world).fitness},
	{1, (*world).rewind},
}

// makeMove makes a random move.
func makeMove(w *world) {
	sum := 0
	for _, m := range moves {
		sum += m.weight
	}
	n := w.intn(sum)
	for _, m := range moves {
		if n -= m.weight; n < 0 {
			m.do(w)
			return
		}
	}
}
