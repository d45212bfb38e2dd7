package coordination

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/tests/cluster"
)

// oracleSets is the number of random sets of candidates.
const oracleSets = 100

// oracleTimeout limits the time in which the API server's coordinator chooses in one election.
const oracleTimeout = time.Minute

// The API server's coordinator chooses as ByOldestEmulationVersion does. The candidates are created with an old renewTime, so that
// the coordinator pings them. They answer after all are pinged, so that it decides once, among all.
func TestOldestEmulationVersion_Oracle(t *testing.T) {
	c := cluster.Shared(t)
	config := c.Admin()
	config.QPS, config.WarningHandler = -1, rest.NoWarnings{}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	o := &oracle{client: client, namespace: c.Namespace(t)}
	sets := make(chan uint64)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for seed := range sets {
				if err := o.playInTime(t.Context(), seed); err != nil {
					t.Errorf("set %d: %v", seed, err)
				}
			}
		})
	}
	for seed := range uint64(oracleSets) {
		sets <- seed
	}
	close(sets)
	all.Wait()
	t.Logf("%d sets: %d equal holders, %d ties by name, %d without a holder", oracleSets, o.same, o.tied, o.none)
	if o.same+o.tied+o.none != oracleSets || o.same < oracleSets/2 || o.none == 0 {
		t.Error("too few conclusive sets")
	}
}

type oracle struct {
	client           kubernetes.Interface
	namespace        string
	mu               sync.Mutex
	same, tied, none int
}

// specs returns the random candidates of a set. Candidates of the same binary version request the same strategy. Otherwise the
// coordinator's answer depends on the order of its cache.
func specs(seed uint64, lease string) (all []coordinationv1beta1.LeaseCandidateSpec) {
	r := rand.New(rand.NewPCG(seed, 2))
	versions := []string{"1.0.0-rc.1", "1.0.0-rc.10", "1.0.0", "1.0.1", "1.1.0", "1.9.0", "1.10.0+build"}
	third := r.IntN(len(versions) * 8)
	for range 1 + r.IntN(4) {
		binary := r.IntN(len(versions))
		spec := coordinationv1beta1.LeaseCandidateSpec{
			LeaseName: lease, BinaryVersion: versions[binary], EmulationVersion: versions[r.IntN(binary+1)],
			Strategy: coordinationv1.OldestEmulationVersion, RenewTime: &metav1.MicroTime{Time: time.Now().Add(-10 * time.Second)},
		}
		if binary == third {
			spec.Strategy = "example.com/Third"
		}
		all = append(all, spec)
	}
	return all
}

// errLate means that the coordinator may have decided before all candidates answered.
var errLate = errors.New("answers were late")

func (o *oracle) playInTime(ctx context.Context, seed uint64) error {
	ctx, cancel := context.WithTimeout(ctx, oracleTimeout)
	defer cancel()
	for try := 0; ; try++ {
		if err := o.play(ctx, seed, fmt.Sprintf("set-%d-%d", seed, try)); !errors.Is(err, errLate) {
			return err
		}
	}
}

func (o *oracle) play(ctx context.Context, seed uint64, lease string) error {
	began := time.Now()
	objects := o.client.CoordinationV1beta1().LeaseCandidates(o.namespace)
	var candidates []Candidate
	for i, spec := range specs(seed, lease) {
		made, err := objects.Create(ctx, &coordinationv1beta1.LeaseCandidate{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pod-%d.%s", i, lease)}, Spec: spec,
		}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		candidate, err := parseCandidate(made)
		if err != nil {
			return err
		}
		candidates = append(candidates, candidate)
	}
	var asked []*coordinationv1beta1.LeaseCandidate
	for _, candidate := range candidates {
		w, err := objects.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + candidate.Name})
		if err != nil {
			return err
		}
		object, err := until(w, func(l *coordinationv1beta1.LeaseCandidate) bool { return l.Spec.PingTime != nil })
		if err != nil {
			return fmt.Errorf("%s was not pinged: %w", candidate.Name, err)
		}
		asked = append(asked, object)
	}
	for _, object := range asked {
		object.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
		if _, err := objects.Update(ctx, object, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	if time.Since(began) >= electionDuration {
		return errLate
	}
	w, err := o.client.CoordinationV1().Leases(o.namespace).Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + lease})
	if err != nil {
		return err
	}
	chosen, err := until(w, func(*coordinationv1.Lease) bool { return true })
	if err != nil {
		return fmt.Errorf("no Lease: %w", err)
	}
	return o.judge(chosen, candidates)
}

func (o *oracle) judge(chosen *coordinationv1.Lease, candidates []Candidate) error {
	registry := Registry{}.With(OldestEmulationVersion, ByOldestEmulationVersion)
	best, strategy, _ := registry.choose(Situation{}, candidates)
	if chosen.Spec.Strategy == nil || string(*chosen.Spec.Strategy) != strategy {
		return fmt.Errorf("strategy of the API server %v, ours %q, of %+v", chosen.Spec.Strategy, strategy, candidates)
	}
	var holder string
	if chosen.Spec.HolderIdentity != nil {
		holder = *chosen.Spec.HolderIdentity
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case holder == best.Name && holder == "":
		o.none++
		return nil
	case holder == best.Name:
		o.same++
		return nil
	}
	for _, c := range candidates {
		// In a tie the API server takes the first of its cache.
		if c.Name == holder && c.EmulationVersion == best.EmulationVersion && c.BinaryVersion == best.BinaryVersion && c.Created.Equal(best.Created) {
			o.tied++
			return nil
		}
	}
	return fmt.Errorf("holder of the API server %q, ours %q of %+v", holder, best.Name, candidates)
}

// until waits for an object that satisfies is, and stops the watch.
func until[T any](w watch.Interface, is func(T) bool) (found T, err error) {
	defer w.Stop()
	for event := range w.ResultChan() {
		if object, ok := event.Object.(T); ok && event.Type != watch.Deleted && is(object) {
			return object, nil
		}
	}
	return found, context.DeadlineExceeded
}
