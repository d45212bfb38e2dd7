package controllerruntime

import (
	"context"
	"runtime"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"incumbent.dev/incumbent/internal/testutil/harness"
	testcluster "incumbent.dev/incumbent/tests/cluster"
)

// terms runs n terms of a manager. Each has a controller with two sources and an index, and ends after its first reconcile.
func terms(t *testing.T, m *Manager, n int) {
	t.Helper()
	for range n {
		ctx, cancel := context.WithCancel(t.Context())
		m.InTerms(func(ctx context.Context, term manager.Manager) error {
			if err := term.GetFieldIndexer().IndexField(ctx, &corev1.ConfigMap{}, "f", func(client.Object) []string { return nil }); err != nil {
				return err
			}
			return builder.ControllerManagedBy(term).Named("one").For(&corev1.ConfigMap{}).
				Watches(&corev1.Secret{}, &handler.EnqueueRequestForObject{}).
				Complete(reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
					cancel()
					return reconcile.Result{}, nil
				}))
		})
		harness.Must(t, m.runTerm(ctx))
		m.setups = nil
		if err := m.begin(func() {}); len(m.errs) > 0 {
			t.Fatal(m.errs, err)
		}
	}
}

// usage returns the goroutines and the bytes of the heap in use.
func usage() (goroutines int, heap int64) {
	runtime.GC()
	runtime.GC() // pools keep their content for one collection
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return runtime.NumGoroutine(), int64(m.HeapAlloc)
}

// Goroutines, heap and handlers do not grow with the number of terms.
func TestTerms_ConstantMemory(t *testing.T) {
	m := elected(t)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: m.Election().Status().Namespace}}
	direct, err := client.New(testcluster.Shared(t).Admin(), client.Options{})
	harness.Must(t, err)
	harness.Must(t, direct.Create(t.Context(), secret))
	harness.Background(t, m.Manager.Start) // the caches, without an election
	<-m.ready
	terms(t, m, 50)
	goroutines, heap := usage()
	// A leak grows in each round. Buffers of connections and pools grow in some rounds, and shrink in others.
	const rounds, n = 5, 200
	var grown []int64
	for range rounds {
		terms(t, m, n)
		// Goroutines of the last handlers may still be ending. They are two per handler.
		until(t, "goroutines end", func() bool { return runtime.NumGoroutine() <= goroutines+10 })
		_, now := usage()
		grown = append(grown, (now-heap)/n)
		heap = now
	}
	slices.Sort(grown)
	t.Logf("in rounds of %d terms the heap grew by %d bytes per term", n, grown)
	if grown[rounds/2] > 200 {
		t.Errorf("the heap grew by %d bytes per term", grown)
	}
}

// A setup that is slow to return does not show a term that has ended.
func TestInTerms_SlowSetup(t *testing.T) {
	m := elected(t, slowStop)
	leads, release := make(chan struct{}), make(chan struct{})
	m.InTerms(func(context.Context, manager.Manager) error {
		close(leads)
		<-release
		return nil
	})
	stop, _ := start(t, m)
	<-leads
	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	until(t, "Elected is open again", func() bool {
		select {
		case <-m.Elected():
			return false
		default:
			return true
		}
	})
	close(release)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}
