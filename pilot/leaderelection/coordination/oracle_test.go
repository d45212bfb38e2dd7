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

// oracleTimeout limits the time of one set. On a slow machine the answers may be late repeatedly.
const oracleTimeout = 3 * time.Minute

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
	for range 4 {
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
	objects := o.client.CoordinationV1beta1().LeaseCandidates(o.namespace)
	all := specs(seed, lease)
	candidates, asked := make([]Candidate, len(all)), make([]*coordinationv1beta1.LeaseCandidate, len(all))
	err := concurrently(len(all), func(i int) error {
		made, err := objects.Create(ctx, &coordinationv1beta1.LeaseCandidate{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pod-%d.%s", i, lease)}, Spec: all[i],
		}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		if candidates[i], err = parseCandidate(made); err != nil {
			return err
		}
		w, err := objects.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + made.Name, ResourceVersion: made.ResourceVersion})
		if err != nil {
			return err
		}
		asked[i], err = until(w, func(l *coordinationv1beta1.LeaseCandidate) bool { return l.Spec.PingTime != nil })
		return err
	})
	if err != nil {
		return fmt.Errorf("create candidates and wait for pings: %w", err)
	}
	answers := make([]*coordinationv1beta1.LeaseCandidate, len(all))
	err = concurrently(len(all), func(i int) error {
		asked[i].Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
		var err error
		answers[i], err = objects.Update(ctx, asked[i], metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("answer pings: %w", err)
	}
	for _, object := range asked {
		if time.Since(object.Spec.PingTime.Time) >= electionDuration {
			return errLate
		}
	}
	chosen, err := o.chosen(ctx, lease, answers)
	if err != nil {
		return err
	}
	return o.judge(chosen, candidates)
}

// chosen waits for the Lease. If the coordinator pings a candidate again instead, the answers were too old for it.
func (o *oracle) chosen(ctx context.Context, lease string, answers []*coordinationv1beta1.LeaseCandidate) (found *coordinationv1.Lease, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	again := false
	err = concurrently(len(answers)+1, func(i int) error {
		if i == len(answers) {
			defer cancel()
			w, err := o.client.CoordinationV1().Leases(o.namespace).Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + lease})
			if err == nil {
				found, err = until(w, func(*coordinationv1.Lease) bool { return true })
			}
			return err
		}
		w, err := o.client.CoordinationV1beta1().LeaseCandidates(o.namespace).Watch(ctx, metav1.ListOptions{
			FieldSelector: "metadata.name=" + answers[i].Name, ResourceVersion: answers[i].ResourceVersion,
		})
		if err != nil {
			return nil // the Lease exists, or its watch fails for the same reason
		}
		_, err = until(w, func(l *coordinationv1beta1.LeaseCandidate) bool { return l.Spec.PingTime.After(l.Spec.RenewTime.Time) })
		if err == nil {
			o.mu.Lock()
			again = true
			o.mu.Unlock()
			cancel()
		}
		return nil
	})
	switch {
	case again:
		return nil, errLate
	case err != nil:
		return nil, fmt.Errorf("no Lease: %w", err)
	}
	return found, nil
}

// concurrently calls f for each number below n.
func concurrently(n int, f func(i int) error) error {
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { errs[i] = f(i) })
	}
	all.Wait()
	return errors.Join(errs...)
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
