package coordination

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"

	"incumbent.dev/incumbent/internal/members"
)

// BenchmarkPass is one pass of a coordinator over all elections, from its caches to what it would write, where nothing has changed: 500 elections
// of ten candidates each, which are LeaseCandidates, or members that take part in all of them. A request would fail it: there is no API server.
func BenchmarkPass(b *testing.B) {
	const elections, candidates = 500, 10
	for _, by := range []string{"LeaseCandidates", "members"} {
		b.Run(by, func(b *testing.B) {
			w := passing(b, elections, candidates, by == "members")
			for _, name := range w.elections() { // what the objects are is first seen
				if _, err := w.reconcile(b.Context(), name); err != nil {
					b.Fatal(err)
				}
			}
			for b.Loop() {
				for _, name := range w.elections() {
					if _, err := w.reconcile(b.Context(), name); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}

func passing(b *testing.B, elections, candidates int, byMembers bool) *work {
	b.Helper()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: "http://127.0.0.1:1"})
	if err != nil {
		b.Fatal(err)
	}
	c, err := New(Config{
		Client: client, Namespace: "n", Logger: slog.New(slog.DiscardHandler), Situation: func() (Situation, bool) { return Situation{DefaultRevision: "r"}, true },
	})
	if err != nil {
		b.Fatal(err)
	}
	c.heard.gone.Store(byMembers)
	add := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	state := members.State{Revision: "r", Cluster: members.Local, Version: "1.0.0"}
	strategy := coordinationv1.CoordinatedLeaseStrategy(DefaultRevision)
	for e := range elections {
		name := fmt.Sprintf("election-%d", e)
		state.Elections = append(state.Elections, members.Election{Name: name, Candidate: true, Warm: true, Fit: true, Strategy: DefaultRevision})
		lock := freeLease("n", name)
		lock.UID, lock.ResourceVersion, lock.Spec.Strategy = "l", "1", &strategy
		lock.Spec.HolderIdentity, lock.Spec.LeaseDurationSeconds = new(CandidateName("pod-0", name)), new(int32(3600))
		add(c.leases.GetIndexer().Add(lock))
		for i := 0; i < candidates && !byMembers; i++ {
			add(c.candidates.GetIndexer().Add(&coordinationv1beta1.LeaseCandidate{
				ObjectMeta: metav1.ObjectMeta{Name: CandidateName(fmt.Sprintf("pod-%d", i), name), Namespace: "n", Labels: map[string]string{RevisionLabel: "r"}},
				Spec:       coordinationv1beta1.LeaseCandidateSpec{LeaseName: name, BinaryVersion: "1.0.0", EmulationVersion: "1.0.0", Strategy: strategy},
			}))
		}
	}
	says, err := json.Marshal(state)
	add(err)
	for i := 0; i < candidates && byMembers; i++ {
		identity := fmt.Sprintf("pod-%d", i)
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
			Name: members.LeaseName(identity), Namespace: "n", ResourceVersion: "1", Labels: map[string]string{members.Label: members.LabelValue},
			Annotations: map[string]string{"incumbent.dev/member-state": string(says)},
		}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &identity, LeaseDurationSeconds: new(int32(3600)), RenewTime: &metav1.MicroTime{Time: time.Now()}}}
		add(c.leases.GetIndexer().Add(lease))
		c.heard.note(lease)
	}
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	b.Cleanup(queue.ShutDown)
	w := &work{Controller: c, queue: queue, observers: map[string]*Observer{}, troubles: map[string]string{}}
	if got := len(w.elections()); got != elections {
		b.Fatalf("%d elections", got)
	}
	if e, _ := w.election("election-0", Situation{}); len(e.Candidates) != candidates || e.Lease == nil {
		b.Fatalf("an election of %d candidates, its lock is %v", len(e.Candidates), e.Lease)
	}
	return w
}
