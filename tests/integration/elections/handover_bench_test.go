package elections

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	admissionv1 "k8s.io/api/admissionregistration/v1"

	"incumbent.dev/incumbent/internal/testutil/lives"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/pkg/kube"
)

// laneName is the lock of one of the elections in flight.
func laneName(i int) string { return fmt.Sprintf("%s-lane-%d", election, i) }

// flip makes revision the default one, and returns when that was sent.
func (s *stage) flip(b *testing.B, client kubernetes.Interface, revision string) time.Time {
	b.Helper()
	patch := fmt.Sprintf(`{"metadata":{"labels":{"istio.io/rev":%q}}}`, revision)
	sent := time.Now()
	_, err := client.AdmissionregistrationV1().MutatingWebhookConfigurations().
		Patch(b.Context(), s.tag(), types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		b.Fatal(err)
	}
	return sent
}

// crew is a process of one revision with a part in each of the elections: one client,
// one watcher of the default revision.
func (s *stage) crew(b *testing.B, name, revision string, elections int) []*replica {
	b.Helper()
	first := s.replica(name, revision)
	watcher := s.watched(b, first)
	eventually(b, name+" knows the default revision", watcher.HasSynced)
	var crew []*replica
	for i := range elections {
		r := s.replica(name, revision)
		r.client, r.wire = first.client, first.wire
		var err error
		r.LeaderElection, err = leaderelection.New(first.client, leaderelection.Config{
			Namespace: s.namespace, Identity: name, ElectionID: laneName(i), Revision: revision,
			Lock: s.lock, DefaultWatcher: watcher,
		})
		if err != nil {
			b.Fatal(err)
		}
		r.AddRunContext(r.work)
		r.start(b)
		crew = append(crew, r)
	}
	return crew
}

// BenchmarkHandover flips the default revision under one election, and under eight, at
// 30 s leases and measures, for each, from when the flip was sent to the start of the new
// leader's run function, less what the old one took to return. Beside it: for how long
// nobody led, and the limit, which is the same writes and watch events with nothing around
// them.
func BenchmarkHandover(b *testing.B) {
	for _, elections := range []int{1, inFlight} {
		b.Run(fmt.Sprintf("elections=%d", elections), func(b *testing.B) { benchmarkHandover(b, elections) })
	}
}

func benchmarkHandover(b *testing.B, elections int) {
	var handover, nobody, limit, limitNobody figures
	s := newStage(b, leaderelection.LeaseLock)
	s.system = "istio-system"
	s.setDefault(b, "stable")
	client := s.cluster.Client(b).Kube()
	stable, canary := s.crew(b, "stable", "stable", elections), s.crew(b, "canary", "canary", elections)
	eventually(b, "stable leads all", func() bool { return all(stable, (*replica).Live) })
	eventually(b, "canary follows all", func() bool {
		return all(canary, func(r *replica) bool { return r.follows("stable")() })
	})
	raw := s.rawLanes(b, elections)

	revision := map[bool]string{true: "canary", false: "stable"}
	from, to := stable, canary
	before := stable[0].wire.total() + canary[0].wire.total()
	for toCanary := true; b.Loop(); toCanary = !toCanary {
		flipped := s.flip(b, client, revision[toCanary])
		eventually(b, "all are handed over", func() bool { return all(to, (*replica).Live) })
		for i := range elections {
			old, next := from[i].Last(), to[i].Last()
			if gap := next.From.Sub(old.To); gap < 0 || old.Told.Before(flipped) {
				b.Errorf("lane %d: told at %v, ended at %v, started at %v", i, old.Told, old.To, next.From)
			}
			handover.add(next.From.Sub(flipped) - old.To.Sub(old.Told))
			nobody.add(next.From.Sub(old.To))
		}
		from, to = to, from
	}
	requests := stable[0].wire.total() + canary[0].wire.total() - before
	for i := range elections {
		lives.Apart(b, stable[i], canary[i])
	}
	for _, r := range slices.Concat(stable, canary) {
		if err := r.Quit(); err != nil {
			b.Error(err)
		}
	}
	for round := range len(handover.all) / elections {
		flipped := s.flip(b, client, revision[round%2 == 0]+"-limit")
		raw.round(b, flipped, &limit, &limitNobody)
	}
	handover.report(b, "handover")
	nobody.report(b, "nobody-leads")
	limit.report(b, "limit")
	limitNobody.report(b, "limit-nobody-leads")
	b.ReportMetric(handover.at(0.5)/limit.at(0.5), "median/limit")
	b.ReportMetric(handover.at(0.99)/limit.at(0.99), "p99/limit")
	b.ReportMetric(float64(requests)/float64(len(handover.all)), "requests/handover")
	b.ReportMetric(float64(len(handover.all)), "N")
}

func all(crew []*replica, holds func(*replica) bool) bool {
	return !slices.ContainsFunc(crew, func(r *replica) bool { return !holds(r) })
}

// rawLanes are the elections' locks without electors: two processes, each with one
// client and one watch of each lock and of the default revision.
type rawLanes struct{ lanes []rawLane }

type rawLane struct {
	leader, challenger *rawSide
	base               k8sresourcelock.Snapshot // what the last write stored
	rounds             int
}

// rawSide is one process's end of a lane.
type rawSide struct {
	lock *k8sresourcelock.LeaseLock
	seen chan k8sresourcelock.Snapshot
	flip chan struct{}
}

func (s *stage) rawLanes(b *testing.B, elections int) *rawLanes {
	b.Helper()
	r := &rawLanes{make([]rawLane, elections)}
	ctx, cancel := context.WithCancel(context.WithoutCancel(b.Context()))
	var watching sync.WaitGroup
	b.Cleanup(func() { cancel(); watching.Wait() })
	for _, name := range []string{"raw-a", "raw-b"} {
		client, err := kube.NewClient(k8sresourcelock.ClientConfig(s.identity(name)), kube.WithOwnConnections())
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { kube.CloseIdleConnections(client) })
		var sides []*rawSide
		for i := range elections {
			side := &rawSide{
				lock: &k8sresourcelock.LeaseLock{
					LeaseMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: laneName(i) + "-raw"}, Client: client.Kube().CoordinationV1(),
					LockConfig: k8sresourcelock.ResourceLockConfig{Identity: name},
				},
				seen: make(chan k8sresourcelock.Snapshot, 16), flip: make(chan struct{}, 1),
			}
			up := make(chan struct{})
			watching.Go(func() { side.watch(ctx, b, up) })
			within(b, "a watch", up)
			sides = append(sides, side)
			if r.lanes[i].leader == nil {
				r.lanes[i].leader = side
			} else {
				r.lanes[i].challenger = side
			}
		}
		hooks, err := client.Kube().AdmissionregistrationV1().MutatingWebhookConfigurations().
			Watch(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", s.tag()).String()})
		if err != nil {
			b.Fatal(err)
		}
		watching.Go(func() { tellFlips(ctx, hooks, sides) })
	}
	return r
}

func (s *rawSide) watch(ctx context.Context, b *testing.B, up chan struct{}) {
	_, err := s.lock.Watch(ctx, "", func() { close(up) }, func(snap k8sresourcelock.Snapshot) {
		select {
		case s.seen <- snap:
		case <-ctx.Done():
		}
	})
	if err != nil {
		b.Error(err)
	}
}

// tellFlips passes each flip of the limit's own to the sides of a process.
func tellFlips(ctx context.Context, hooks watch.Interface, sides []*rawSide) {
	defer hooks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case event, ok := <-hooks.ResultChan():
			if !ok {
				return
			}
			hook, is := event.Object.(*admissionv1.MutatingWebhookConfiguration)
			if label := hook.GetLabels()["istio.io/rev"]; !is || label == "stable" || label == "canary" {
				continue
			}
			for _, side := range sides {
				side.flip <- struct{}{}
			}
		}
	}
}

// round does in each lane what a handover cannot do without: a request, its watch
// event, the acceptance, the nomination, its watch event, and the nominee's own write.
func (r *rawLanes) round(b *testing.B, flipped time.Time, whole, nobody *figures) {
	var lanes sync.WaitGroup
	for i := range r.lanes {
		lane := &r.lanes[i]
		lanes.Go(func() { lane.round(b, flipped, whole, nobody) })
	}
	lanes.Wait()
}

func (l *rawLane) round(b *testing.B, flipped time.Time, whole, nobody *figures) {
	l.rounds++
	<-l.challenger.flip
	l.base = l.challenger.write(b, l.base, l.step("ask"))
	<-l.leader.flip
	accepted := l.leader.write(b, l.leader.await(l.step("ask")), l.step("accept"))
	passing := time.Now()
	l.leader.write(b, accepted, l.step("pass"))
	l.base = l.challenger.write(b, l.challenger.await(l.step("pass")), l.step("lead"))
	whole.add(time.Since(flipped))
	nobody.add(time.Since(passing))
	l.leader, l.challenger = l.challenger, l.leader
}

func (l *rawLane) step(what string) string { return fmt.Sprintf("%s %d", what, l.rounds) }

const stepNote = "incumbent.dev/step"

func (s *rawSide) write(b *testing.B, base k8sresourcelock.Snapshot, step string) k8sresourcelock.Snapshot {
	record := k8sresourcelock.LeaderElectionRecord{HolderIdentity: "x", LeaseDurationSeconds: 30}
	snap, err := s.lock.Write(b.Context(), base, record, map[string]string{stepNote: step})
	if err != nil {
		b.Error(err)
	}
	return snap
}

func (s *rawSide) await(step string) k8sresourcelock.Snapshot {
	for snap := range s.seen {
		if snap.Notes[stepNote] == step {
			return snap
		}
	}
	return k8sresourcelock.Snapshot{}
}
