package leaderelection

import (
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"incumbent.dev/incumbent/internal/testutil/locktest"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/admin"
)

// fault is the kind of failure of one request of the process for one of the two objects.
func (p *process) fault(object int, v locktest.Verb) locktest.Fault {
	w := p.w
	w.Mu.Lock()
	defer w.Mu.Unlock()
	p.asked = time.Since(w.Began)
	if !p.Dead && p.l != nil {
		p.verbs[object][v]++
		p.sent[object] = append(p.sent[object], time.Since(w.Began))
	}
	f := locktest.Fault{Before: w.upTo(20 * time.Millisecond), After: w.upTo(20 * time.Millisecond)}
	switch {
	case p.Dead || p.cut:
		f.Lose = locktest.TheRequest
		return p.hang(f)
	case p.poor && object == 1 && (v == locktest.Update || v == locktest.Create):
		f.Err = errForbidden
		return f
	case p.refuse[v] != nil:
		f.Err = p.refuse[v]
		return f
	case w.Calm:
		return f
	}
	switch n := w.Rand.IntN(100); {
	case n < 3:
		f.Lose = locktest.TheRequest
	case n < 7:
		f.Lose = locktest.TheReply
	case n < 9:
		f.Lose = locktest.TheReply
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
func (p *process) hang(f locktest.Fault) locktest.Fault {
	if f.Hang = p.Make != clientGoPeer; !f.Hang {
		f.Before, f.After = playRenew/2, playRenew/2
	}
	return f
}

var locks = schema.GroupResource{Resource: "locks"}

var errForbidden = apierrors.NewForbidden(locks, locktest.Name, nil)

// upTo returns a random duration. The caller holds Mu.
func (w *world) upTo(most time.Duration) time.Duration {
	return time.Duration(w.Rand.Int64N(int64(most)))
}

func (w *world) pick() *process { return w.processes[w.Intn(len(w.processes))] }

// act makes one random move.
func (w *world) act() {
	makeMove(w)
	if len(w.processes) < 2 {
		w.AwaitUntouched()
		w.start(w.NewName(), w.AnyRevision(), w.AnyMake())
	}
}

// Crash ends a process. It may start again with the same name.
func (w *world) Crash() {
	p := w.pick()
	w.kill(p)
	if w.Intn(2) == 0 {
		w.Wait(playLease / 2)
		w.AwaitUntouched()
		w.start(p.Name, p.Revision, w.AnyMake())
	}
}

// Replace stops a process and starts another of the same revision, as a rollout does.
func (w *world) Replace() {
	w.AwaitUntouched()
	p := w.pick()
	w.quit(p)
	w.start(w.NewName(), p.Revision, w.AnyMake())
}

// Note writes an annotation of another program on a lock.
func (w *world) Note() {
	w.store().Annotate("example.com/n", fmt.Sprint(w.Intn(1000)))
}

func (w *world) store() *locktest.Store {
	stores := w.stores()
	return stores[w.Intn(len(stores))]
}

func (w *world) kill(p *process) {
	w.Logf("kill %s", p.Name)
	w.Locked(func() {
		p.Kill(time.Now())
	})
	for _, c := range p.clients {
		c.MuteWatches(true)
	}
	p.cancel()
	w.forget(p)
}

func (w *world) quit(p *process) {
	w.Logf("quit %s", p.Name)
	p.cancel()
	w.forget(p)
	began := time.Now()
	<-p.done
	if took := time.Since(began); took > 5*playLease {
		w.Violate("%s took %v to end", p.Name, took)
	}
}

func (w *world) forget(p *process) {
	w.processes = slices.DeleteFunc(slices.Clone(w.processes), func(q *process) bool { return q == p })
}

// Flip changes the default revision. Each process receives the change when its own watch delivers it.
func (w *world) Flip() {
	w.Locked(func() { w.Default = playRevisions[w.Rand.IntN(len(playRevisions))] })
	w.Logf("default is %s", w.Default)
	revision := w.Default
	for _, p := range w.processes {
		late := w.Within(3 * time.Second)
		w.Orders.Go(func() {
			<-time.After(late)
			p.hears(revision)
		})
	}
}

// CutOff disconnects one process.
func (w *world) CutOff() {
	p := w.pick()
	w.Logf("cut %s", p.Name)
	w.Locked(func() { p.cut = true })
	for _, c := range p.clients {
		c.MuteWatches(true)
	}
	w.Wait(12 * time.Second)
	w.Locked(func() { p.cut = false })
	for _, c := range p.clients {
		c.MuteWatches(false)
	}
	w.Logf("%s is back", p.Name)
}

// EndWatches ends the watches of one process.
func (w *world) EndWatches() {
	for _, c := range w.pick().clients {
		switch w.Intn(4) {
		case 0:
			c.DropWatches()
		case 1:
			c.ExpireWatches()
		case 2:
			c.EndWatches(apierrors.NewInternalError(locktest.ErrConnection))
		case 3:
			c.SetWatchDelay(w.Within(2 * time.Second))
		}
	}
}

// Refuse rejects some kinds of request for a while, of one process or of all processes.
func (w *world) Refuse() {
	why := []error{
		errForbidden, apierrors.NewInternalError(locktest.ErrConnection),
		apierrors.NewTooManyRequests("later", 1), apierrors.NewConflict(locks, locktest.Name, locktest.ErrConnection),
	}
	verbs := [][]locktest.Verb{{locktest.Get}, {locktest.Update, locktest.Create}, {locktest.Watch}, {locktest.Update, locktest.Watch}}[w.Intn(4)]
	err := why[w.Intn(len(why))]
	some := w.processes
	if w.Intn(2) == 0 {
		some = []*process{w.pick()}
	}
	w.Logf("refused to %d: %v: %v", len(some), verbs, err)
	set := func(err error) {
		for _, p := range some {
			w.Locked(func() {
				for _, v := range verbs {
					p.refuse[v] = err
				}
			})
		}
	}
	set(err)
	if w.Intn(2) == 0 {
		for _, p := range some {
			for _, c := range p.clients {
				c.DropWatches()
			}
		}
	}
	w.Wait(4 * playLease)
	set(nil)
	w.Logf("refused no more")
}

// Order starts a random command of an operator. A drain, a nomination that runs out and the settling of the nominee may each take
// a lease.
func (w *world) Order() {
	m := w.AnyMake()
	for m.Peer() {
		m = w.Mix[0]
	}
	revision := w.AnyRevision()
	to := "ghost"
	if w.Intn(4) > 0 {
		to = w.pick().Name
	}
	o := w.operator(revision, m)
	length := time.Second + w.Within(2*playLease)
	which := w.Intn(4)
	w.Ordered++
	w.Orders.Go(func() {
		began := time.Now()
		err := []func() error{
			func() error { return o.Transfer(w.ctx, to, revision, "", length) },
			func() error { return o.StepDown(w.ctx, "", length) },
			func() error { return o.Pause(w.ctx, "", length) },
			func() error { return o.Resume(w.ctx) },
		}[which]()
		w.Logf("order %d (%v) to %s: %v", which, m, to, err)
		if took := time.Since(began); took > 12*playLease {
			w.Violate("order %d to %s took %v: %v", which, to, took, err)
		}
	})
}

func (w *world) operator(revision string, m electorKind) admin.Operator {
	k := playKube{configMaps: w.objects.Client("operator"), leases: w.leases[revision].Client("operator")}
	o, err := w.election("operator", revision, m, k, newWatcher(""), nil).Operator("play")
	if err != nil {
		w.t.Fatal(err)
	}
	for _, c := range []*locktest.Client{k.configMaps, k.leases} {
		p := &process{w: w}
		c.SetFault(func(v locktest.Verb) locktest.Fault { return p.fault(0, v) })
	}
	return o
}

// Edit changes a lock object, as an operator does. A process that starts now has not seen the earlier state.
func (w *world) Edit() {
	<-time.After(8 * time.Second)
	if !w.allKnow() {
		return // a promise excludes who never saw the record before it was gone
	}
	s, what := w.store(), w.Intn(3)
	w.Logf("edit %d on %s", what, s.Kind())
	[]func(){func() { s.Delete() }, s.Empty, s.Corrupt}[what]()
	w.Untouched = time.Now().Add(2*playLease + 5*time.Second)
}

// Fitness changes the fitness of one process.
func (w *world) Fitness() { w.TurnFitness(&w.pick().part) }

// Rewind saves the state of etcd, or restores an earlier state.
func (w *world) Rewind() {
	if len(w.backups) == 0 || w.Intn(2) == 0 {
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
	n := w.Intn(len(w.backups))
	w.Logf("restore %d", n)
	w.takeEvents()
	w.Locked(func() {
		w.restored = time.Now()
		w.judge.Forget()
	})
	for _, s := range w.stores() {
		s.Restore(w.backups[n][s])
	}
	w.backups = w.backups[:n]
	w.Untouched = time.Now().Add(2*playLease + 5*time.Second)
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
		if p.Make == leaseOnly {
			record = w.leases[p.Revision].Snapshot().Record
		}
		if p.Make == bothLocks && record.HolderIdentity != s.Holder {
			record = w.leases[p.Revision].Snapshot().Record
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
	{2, (*world).Crash},
	{2, (*world).Replace},
	{2, (*world).Flip},
	{1, (*world).CutOff},
	{1, (*world).EndWatches},
	{3, (*world).Refuse},
	{3, (*world).Order},
	{1, (*world).Edit},
	{1, (*world).Note},
	{1, (*world).Fitness},
	{1, (*world).Rewind},
}

// makeMove makes a random move.
func makeMove(w *world) {
	sum := 0
	for _, m := range moves {
		sum += m.weight
	}
	n := w.Intn(sum)
	for _, m := range moves {
		if n -= m.weight; n < 0 {
			m.do(w)
			return
		}
	}
}
