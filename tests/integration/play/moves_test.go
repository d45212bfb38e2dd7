package play

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/tests/internal/relay"
	"incumbent.dev/incumbent/tests/play"
)

var _ play.World = (*world)(nil)

// act does one thing to the processes, to their locks or to what is between them.
func (w *world) act() {
	if w.bug.move != nil {
		w.bug.move(w)
	} else {
		play.Move(w)
	}
	for len(w.processes) < 2 {
		w.startable()
		w.start(w.name(), w.revision(), w.kind())
	}
}

func (w *world) pick() *process { return w.processes[w.Intn(len(w.processes))] }

// Crash has one die, and maybe come back under its name. Its connections are reset, as the
// kernel does, and nothing of it gets out any more.
func (w *world) Crash() {
	p := w.pick()
	w.logf("kill %s", p.Name)
	p.relay.Coming(relay.Silent)
	p.relay.Present(relay.Silent)
	p.relay.Reset()
	w.set(func() { p.Kill(time.Now()) })
	p.cancel()
	w.forget(p)
	if w.Intn(2) == 0 {
		w.wait(lease / 2)
		w.startable()
		w.start(p.Name, p.Revision, w.kind())
	}
}

// Replace is a rollout's.
func (w *world) Replace() {
	w.startable()
	p := w.pick()
	w.quit(p)
	w.start(w.name(), p.Revision, w.kind())
}

func (w *world) quit(p *process) {
	w.logf("quit %s", p.Name)
	p.cancel()
	w.forget(p)
	select {
	case <-p.done:
	case <-time.After(soon):
		w.violate("%s has not ended after %v", p.Name, soon)
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

// Flip changes the default revision.
func (w *world) Flip() {
	w.deflt = play.Revisions[w.Intn(len(play.Revisions))]
	w.logf("default is %s", w.deflt)
	w.setDefault(w.deflt)
}

// CutOff is of one process.
func (w *world) CutOff() {
	p := w.pick()
	w.logf("cut %s", p.Name)
	p.relay.Coming(relay.Silent)
	p.relay.Present(relay.Silent)
	w.wait(lease * 5 / 4)
	p.relay.Coming(relay.Fate{})
	p.relay.Reset() // bytes are missing from them
	w.logf("%s is back", p.Name)
}

// EndWatches is of one process, with all else that it has on its connections.
func (w *world) EndWatches() {
	p := w.pick()
	switch w.Intn(3) {
	case 0:
		p.relay.Reset()
	case 1:
		p.relay.Present(relay.Fate{Down: relay.Flow{CutAfter: int64(1 + w.Intn(2000))}})
	case 2:
		delay := relay.Flow{Delay: w.some(100 * time.Millisecond)}
		p.relay.Present(relay.Fate{Up: delay, Down: delay})
	}
}

// Refuse takes rights to the locks away for a while, of one process or of all.
func (w *world) Refuse() {
	left := [][]string{{"watch", "update"}, {"get", "watch"}, {"get", "update"}, {"get"}}[w.Intn(4)]
	some := append([]*process{}, w.processes...)
	if w.Intn(2) == 0 {
		some = []*process{w.pick()}
	}
	w.logf("%d may do no more than %v", len(some), left)
	for _, p := range some {
		w.allow(p.Name, left)
		if w.Intn(2) == 0 {
			p.relay.Reset() // a watch that is there is not asked again
		}
	}
	w.wait(lease * 3 / 2)
	for _, p := range some {
		w.allow(p.Name, lockVerbs)
	}
	w.logf("they may again")
}

// Order gives an operator's order, which has to come back by itself.
func (w *world) Order() {
	m := w.cast[w.Intn(len(w.cast))]
	for m.Peer() {
		m = w.cast[0]
	}
	revision, to := w.revision(), "nobody"
	if w.Intn(4) > 0 {
		to = w.pick().Name
	}
	l, err := leaderelection.New(w.client, w.config("operator", revision, m, nil, nil))
	if err != nil {
		w.t.Fatal(err)
	}
	o, err := l.Operator("play")
	if err != nil {
		w.t.Fatal(err)
	}
	length, which := time.Second+w.some(2*lease), w.Intn(4)
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
		if took := time.Since(began); took > soon {
			w.violate("order %d to %s took %v: %v", which, to, took, err)
		}
	})
}

// locks are the lock objects, as the admin sees them.
func (w *world) locks() []k8sresourcelock.Versioned {
	all := []k8sresourcelock.Versioned{w.configMap(), w.lease("stable")}
	if w.leaseName("stable") != election {
		all = append(all, w.lease("canary"))
	}
	return all
}

// Edit changes a lock object by hand: deletes it, empties it, or makes it unreadable.
func (w *world) Edit() {
	if !w.within(2*lease, w.allKnow) {
		return // a promise excludes who never saw the record before it was gone
	}
	what, n := w.Intn(3), w.Intn(len(w.locks()))
	w.logf("edit %d of lock %d", what, n)
	var err error
	if n > 0 {
		leases, name := w.admin.CoordinationV1().Leases(w.namespace), w.leaseName(play.Revisions[n-1])
		if what == 0 {
			err = leases.Delete(w.ctx, name, metav1.DeleteOptions{})
		} else {
			_, err = leases.Patch(w.ctx, name, types.JSONPatchType, []byte(`[{"op":"replace","path":"/spec","value":{}}]`), metav1.PatchOptions{})
		}
	} else {
		maps := w.admin.CoreV1().ConfigMaps(w.namespace)
		record := []any{nil, nil, "{"}[what]
		patch, _ := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{k8sresourcelock.LeaderElectionRecordAnnotationKey: record}}})
		if what == 0 {
			err = maps.Delete(w.ctx, election, metav1.DeleteOptions{})
		} else {
			_, err = maps.Patch(w.ctx, election, types.MergePatchType, patch, metav1.PatchOptions{})
		}
	}
	if err != nil && !apierrors.IsNotFound(err) {
		w.violate("edit: %v", err)
	}
	w.touched()
}

// touched: a process that starts now would know of nothing before.
func (w *world) touched() { w.untouched = time.Now().Add(2*lease + 2*time.Second) }

// Note is what a stranger writes on a lock.
func (w *world) Note() {
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"example.com/n":"%d"}}}`, w.Intn(1000))
	_, _ = w.admin.CoreV1().ConfigMaps(w.namespace).Patch(w.ctx, election, types.MergePatchType, patch, metav1.PatchOptions{}) // there may be none
	_, _ = w.admin.CoordinationV1().Leases(w.namespace).Patch(w.ctx, w.leaseName(w.revision()), types.MergePatchType, patch, metav1.PatchOptions{})
}

// Fitness is of one process.
func (w *world) Fitness() {
	p := w.pick()
	w.set(func() {
		if p.unfit == nil {
			p.unfit = context.DeadlineExceeded
		} else {
			p.unfit = nil
		}
	})
	w.logf("%s is unfit: %v", p.Name, p.unfit != nil)
}

// backup is the lock objects as somebody has exported them.
type backup struct {
	configMaps []corev1.ConfigMap
	leases     []coordinationv1.Lease
}

// Rewind exports the lock objects, or puts an earlier export back in their place.
func (w *world) Rewind() {
	maps, leases := w.admin.CoreV1().ConfigMaps(w.namespace), w.admin.CoordinationV1().Leases(w.namespace)
	if len(w.backups) == 0 || w.Intn(2) == 0 {
		some, err := maps.List(w.ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + election})
		more, err2 := leases.List(w.ctx, metav1.ListOptions{})
		if err != nil || err2 != nil {
			w.violate("export: %v, %v", err, err2)
			return
		}
		w.backups = append(w.backups, backup{some.Items, more.Items})
		return
	}
	if !w.within(2*lease, w.allKnow) {
		return
	}
	b := w.backups[w.Intn(len(w.backups))]
	w.logf("restore")
	for _, old := range b.configMaps {
		_ = maps.Delete(w.ctx, old.Name, metav1.DeleteOptions{})
		old.ObjectMeta = metav1.ObjectMeta{Name: old.Name, Annotations: old.Annotations, Labels: old.Labels}
		_, _ = maps.Create(w.ctx, &old, metav1.CreateOptions{}) // an elector may have been faster
	}
	for _, old := range b.leases {
		_ = leases.Delete(w.ctx, old.Name, metav1.DeleteOptions{})
		old.ObjectMeta = metav1.ObjectMeta{Name: old.Name, Annotations: old.Annotations, Labels: old.Labels}
		_, _ = leases.Create(w.ctx, &old, metav1.CreateOptions{})
	}
	w.touched()
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
		reads := []k8sresourcelock.Versioned{w.configMap()}
		if p.Make == play.LeaseOnly || p.Make == play.WithPredecessor {
			reads = nil
		}
		if p.Make != play.ConfigMapOnly {
			reads = append(reads, w.lease(p.Revision))
		}
		knows := false
		for _, lock := range reads {
			snap, err := lock.Read(w.ctx)
			knows = knows || err == nil && s.Holder == snap.Record.HolderIdentity && s.Transitions == snap.Record.LeaderTransitions
		}
		if !knows {
			return false
		}
	}
	return true
}
