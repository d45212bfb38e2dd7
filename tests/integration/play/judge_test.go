package play

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"incumbent.dev/incumbent/internal/testutil/history"
	"incumbent.dev/incumbent/internal/testutil/play"
	"incumbent.dev/incumbent/internal/testutil/relay"
	"incumbent.dev/incumbent/pkg/kube"
)

// recorder is the history of the work, as a watch shows it.
type recorder struct {
	w     *world
	watch watch.Interface
	ended sync.WaitGroup

	mu      sync.Mutex
	writes  []history.Write
	stopped bool
}

func (w *world) record() *recorder {
	maps := w.admin.CoreV1().ConfigMaps(w.namespace)
	blank, err := maps.Create(w.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: work}}, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	r := &recorder{w: w}
	r.watch, err = maps.Watch(context.WithoutCancel(w.ctx), metav1.ListOptions{FieldSelector: "metadata.name=" + work, ResourceVersion: blank.ResourceVersion})
	if err != nil {
		w.t.Fatal(err)
	}
	r.ended.Go(func() {
		for event := range r.watch.ResultChan() {
			object, ok := event.Object.(*corev1.ConfigMap)
			if !ok {
				r.mu.Lock()
				stopped := r.stopped
				r.mu.Unlock()
				if !stopped { // else that is how it ends
					w.Violate("the watch of the work says %v", event.Object)
				}
				continue
			}
			write, err := history.Of(object)
			if err != nil {
				w.Violate("%v", err)
			}
			r.mu.Lock()
			r.writes = append(r.writes, write)
			r.mu.Unlock()
		}
	})
	return r
}

// last is the newest write so far.
func (r *recorder) last() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.writes) == 0 {
		return 0
	}
	return r.writes[len(r.writes)-1].Version
}

// stop ends the watch once it has shown what is stored.
func (r *recorder) stop() []history.Write {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.w.ctx), soon)
	defer cancel()
	stored, err := r.w.admin.CoreV1().ConfigMaps(r.w.namespace).Get(ctx, work, metav1.GetOptions{})
	if err != nil {
		r.w.t.Fatal(err)
	}
	if len(stored.Labels) == 0 {
		r.w.Logf("none of ours has ever written")
	} else if now, err := history.Of(stored); err != nil || !r.w.within(soon, func() bool { return r.last() >= now.Version }) {
		r.w.Violate("the watch of the work has stopped at %d; stored is %+v (%v)", r.last(), now, err)
	}
	r.mu.Lock()
	r.stopped = true
	r.mu.Unlock()
	r.watch.Stop()
	r.ended.Wait()
	return r.writes
}

// judge is one-at-a-time, that tokens grow, and bounded effort. Leaders that have come in one
// predecessor's place do not exclude each other, so each revision's are judged with those that
// all exclude.
// most is the most requests that one process has sent about one object in ten RetryPeriods.
func (w *world) judge(writes []history.Write) (most int) {
	groups := map[string][]history.Write{"": writes}
	if w.Mix.HasPredecessor() {
		delete(groups, "")
		for _, revision := range play.Revisions {
			groups[revision] = slices.DeleteFunc(slices.Clone(writes), func(x history.Write) bool { return x.Election != "" && x.Election != revision })
		}
	}
	for group, writes := range groups {
		for _, wrong := range history.Judge(writes, group != "") {
			w.Violate("%s", wrong)
		}
	}
	for who, at := range w.requests() {
		n := play.InSpan(at, 10*retry)
		if most = max(most, n); n > play.MaxRequests {
			w.Violate("%s sent %d requests in %v", who, n, 10*retry)
		}
	}
	w.Locked(func() {
		for _, p := range w.all {
			w.CheckLines(&p.Part, 10*retry)
		}
	})
	return most
}

// requests reads from the API server's audit log when each process of ours sent something about
// each lock object.
func (w *world) requests() map[string][]time.Duration {
	file, err := os.Open(w.cluster.AuditLog())
	if err != nil {
		w.t.Fatal(err)
	}
	defer file.Close()
	ours, seen, sent := map[string]bool{}, map[string]bool{}, map[string][]time.Duration{}
	for _, p := range w.all {
		ours[p.Name] = ours[p.Name] || !p.Make.Peer()
	}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if !strings.Contains(lines.Text(), w.namespace) {
			continue
		}
		var e struct {
			AuditID                  string
			User                     struct{ Username string }
			ObjectRef                struct{ Namespace, Resource, Name string }
			RequestReceivedTimestamp metav1.MicroTime
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil || seen[e.AuditID] {
			continue // a line that is still being written; or a watch's end, which has its begin's ID
		}
		seen[e.AuditID] = true
		name, is := strings.CutPrefix(e.User.Username, "system:serviceaccount:"+w.namespace+":")
		if !is || !ours[name] || e.ObjectRef.Namespace != w.namespace || !strings.HasPrefix(e.ObjectRef.Name, election) {
			continue
		}
		who := fmt.Sprintf("%s about %s %s", name, e.ObjectRef.Resource, e.ObjectRef.Name)
		sent[who] = append(sent[who], e.RequestReceivedTimestamp.Sub(w.Began))
	}
	for _, at := range sent {
		slices.Sort(at)
	}
	return sent
}

// endFaults lets everything heal and wants one leader.
func (w *world) endFaults() {
	w.Locked(func() {
		w.Calm = true
		for _, p := range w.processes {
			p.Unfit = nil
		}
	})
	w.Logf("calm")
	for _, p := range w.processes {
		fate := relay.Fate{}
		if w.bug.silent {
			fate = relay.Silent
		}
		p.relay.Present(fate)
		p.relay.Coming(fate)
	}
	if w.bug.silent { // or those who lead would do so for a moment yet
		<-time.After(2 * lease)
	}
	for n, lock := range w.locks() {
		// An unreadable object keeps those out who need both. They report it, and an operator
		// deletes it.
		if snap, err := lock.Read(w.ctx); err == nil && snap.Unreadable != nil && n == 0 {
			w.AwaitUntouched()
			_ = w.admin.CoreV1().ConfigMaps(w.namespace).Delete(w.ctx, election, metav1.DeleteOptions{})
		}
	}
	w.Orders.Wait()
	if !w.within(w.bug.patience(), w.somebodyWorks) {
		w.Violate("after %v nobody leads:%s", w.bug.patience(), w.states())
	}
}

func (w *world) somebodyWorks() bool {
	w.Mu.Lock()
	defer w.Mu.Unlock()
	return slices.ContainsFunc(w.processes, func(p *process) bool { return p.Running })
}

// states tells where each process is.
func (w *world) states() string {
	var b strings.Builder
	for _, p := range w.processes {
		fmt.Fprintf(&b, "\n\t%s (%s, %v)", p.Name, p.Revision, p.Make)
		if p.l != nil {
			s := p.l.Status()
			fmt.Fprintf(&b, " %s (%s), sees %q in term %d, default %q (%v), waiting %v, unfit %v", s.Phase, s.Reason, s.Holder, s.Transitions, s.Default, s.DefaultKnown, s.Waiting, s.Unfit)
		}
	}
	return b.String()
}

// end waits for all goroutines, those of killed processes too: their relays stay silent.
func (w *world) end() {
	for _, p := range w.everyone() {
		select {
		case <-p.done:
		case <-time.After(soon):
			w.Violate("%s has not ended after %v", p.Name, soon)
		}
		if err := p.relay.Close(); err != nil {
			w.Violate("the relay of %s: %v", p.Name, err)
		}
		kube.CloseIdleConnections(p.client)
		if p.l != nil {
			kube.CloseIdleConnections(p.l.Client())
		}
	}
}
