package play

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"incumbent.dev/incumbent/internal/testutil/play"
	"incumbent.dev/incumbent/internal/testutil/relay"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
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
		w.AwaitUntouched()
		w.start(w.NewName(), w.AnyRevision(), w.AnyMake())
	}
}

func (w *world) pick() *process { return w.processes[w.Intn(len(w.processes))] }

// Crash has one die, and maybe come back under its name. Its connections are reset, as the
// kernel does, and nothing of it gets out any more.
func (w *world) Crash() {
	p := w.pick()
	w.Logf("kill %s", p.Name)
	p.relay.Coming(relay.Silent)
	p.relay.Present(relay.Silent)
	p.relay.Reset()
	w.Locked(func() { p.Kill(time.Now()) })
	p.cancel()
	w.forget(p)
	if w.Intn(2) == 0 {
		w.Wait(lease / 2)
		w.AwaitUntouched()
		w.start(p.Name, p.Revision, w.AnyMake())
	}
}

// Replace is a rollout's.
func (w *world) Replace() {
	w.AwaitUntouched()
	p := w.pick()
	w.quit(p)
	w.start(w.NewName(), p.Revision, w.AnyMake())
}

func (w *world) quit(p *process) {
	w.Logf("quit %s", p.Name)
	p.cancel()
	w.forget(p)
	select {
	case <-p.done:
	case <-time.After(soon):
		w.Violate("%s has not ended after %v", p.Name, soon)
	}
}

func (w *world) forget(p *process) {
	w.processes = slices.DeleteFunc(slices.Clone(w.processes), func(q *process) bool { return q == p })
}

// Flip changes the default revision.
func (w *world) Flip() {
	w.Default = play.Revisions[w.Intn(len(play.Revisions))]
	w.Logf("default is %s", w.Default)
	w.setDefault(w.Default)
}

// CutOff is of one process.
func (w *world) CutOff() {
	p := w.pick()
	w.Logf("cut %s", p.Name)
	p.relay.Coming(relay.Silent)
	p.relay.Present(relay.Silent)
	w.Wait(lease * 5 / 4)
	p.relay.Coming(relay.Fate{})
	p.relay.Reset() // bytes are missing from them
	w.Logf("%s is back", p.Name)
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
		delay := relay.Flow{Delay: w.Within(100 * time.Millisecond)}
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
	w.Logf("%d may do no more than %v", len(some), left)
	for _, p := range some {
		w.allow(p.Name, left)
		if w.Intn(2) == 0 {
			p.relay.Reset() // a watch that is there is not asked again
		}
	}
	w.Wait(lease * 3 / 2)
	for _, p := range some {
		w.allow(p.Name, lockVerbs)
	}
	w.Logf("they may again")
}

// Order gives an operator's order.
func (w *world) Order() {
	w.GiveOrder(w.ctx, func() *play.Part { return &w.pick().Part }, w.operator, 2*lease, soon)
}

func (w *world) operator(revision string, m play.Make) play.Operator {
	l, err := leaderelection.New(w.client, w.config("operator", revision, m, nil, nil))
	if err != nil {
		w.t.Fatal(err)
	}
	o, err := l.Operator("play")
	if err != nil {
		w.t.Fatal(err)
	}
	return o
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
	w.Logf("edit %d of lock %d", what, n)
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
		w.Violate("edit: %v", err)
	}
	w.touched()
}

// touched: a process that starts now would know of nothing before.
func (w *world) touched() { w.Untouched = time.Now().Add(2*lease + 2*time.Second) }

// Note is what a stranger writes on a lock.
func (w *world) Note() {
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"example.com/n":"%d"}}}`, w.Intn(1000))
	_, _ = w.admin.CoreV1().ConfigMaps(w.namespace).Patch(w.ctx, election, types.MergePatchType, patch, metav1.PatchOptions{}) // there may be none
	_, _ = w.admin.CoordinationV1().Leases(w.namespace).Patch(w.ctx, w.leaseName(w.AnyRevision()), types.MergePatchType, patch, metav1.PatchOptions{})
}

// Fitness is of one process.
func (w *world) Fitness() { w.TurnFitness(&w.pick().Part) }

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
			w.Violate("export: %v, %v", err, err2)
			return
		}
		w.backups = append(w.backups, backup{some.Items, more.Items})
		return
	}
	if !w.within(2*lease, w.allKnow) {
		return
	}
	b := w.backups[w.Intn(len(w.backups))]
	w.Logf("restore")
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
