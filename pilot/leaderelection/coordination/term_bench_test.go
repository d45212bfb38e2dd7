package coordination

import (
	"encoding/json"
	"fmt"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"

	"incumbent.dev/incumbent/internal/members"
)

// BenchmarkReconcile reconciles 500 unchanged elections with ten candidates each. It has no API server, so a request would fail.
func BenchmarkReconcile(b *testing.B) {
	const elections, candidates = 500, 10
	for _, by := range []string{"LeaseCandidates", "members"} {
		b.Run(by, func(b *testing.B) {
			w := newBenchTerm(b, elections, candidates, by == "members")
			for _, name := range w.elections() { // fills the observers
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

func newBenchTerm(b *testing.B, elections, candidates int, byMembers bool) *term {
	b.Helper()
	c := controllerOf(b, &rest.Config{Host: "http://127.0.0.1:1"})
	c.seen.unserved.Store(byMembers)
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
		lock := newLease("n", name)
		lock.UID = "l"
		lock.ResourceVersion = "1"
		lock.Spec.Strategy = &strategy
		lock.Spec.HolderIdentity = new(CandidateName("pod-0", name))
		lock.Spec.LeaseDurationSeconds = new(int32(3600))
		add(c.leases.GetIndexer().Add(lock))
		for i := 0; i < candidates && !byMembers; i++ {
			add(c.candidates.GetIndexer().Add(&coordinationv1beta1.LeaseCandidate{
				ObjectMeta: metav1.ObjectMeta{Name: CandidateName(fmt.Sprintf("pod-%d", i), name), Namespace: "n", Labels: map[string]string{RevisionLabel: "r"}},
				Spec:       coordinationv1beta1.LeaseCandidateSpec{LeaseName: name, BinaryVersion: "1.0.0", EmulationVersion: "1.0.0", Strategy: strategy},
			}))
		}
	}
	text, err := json.Marshal(state)
	add(err)
	for i := 0; i < candidates && byMembers; i++ {
		memberLease(b, c, fmt.Sprintf("pod-%d", i), string(text))
	}
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	b.Cleanup(queue.ShutDown)
	w := newTerm(c, queue)
	if got := len(w.elections()); got != elections {
		b.Fatalf("%d elections", got)
	}
	if e, _ := w.election("election-0", Situation{}); len(e.Candidates) != candidates || e.Lease == nil {
		b.Fatalf("%d candidates, lock %v", len(e.Candidates), e.Lease)
	}
	return w
}
