package k8sresourcelock

import (
	"context"
	"errors"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"incumbent.dev/incumbent/internal/testutil/harness"
)

// unversionedStore stores one ConfigMap as sent. It sets no version and compares
// nothing, like client-go's fake clientsets.
type unversionedStore struct {
	corev1client.ConfigMapInterface

	mu     sync.Mutex
	object *corev1.ConfigMap
	// fail contains errors by request number, from 1.
	fail  func(n int) error
	n     int
	watch func(metav1.ListOptions) (watch.Interface, error)
}

func (s *unversionedStore) ConfigMaps(string) corev1client.ConfigMapInterface { return s }

func (s *unversionedStore) begin() error {
	runtime.Gosched() // others may come between
	s.n++
	if s.fail != nil {
		return s.fail(s.n)
	}
	return nil
}

func (s *unversionedStore) Get(context.Context, string, metav1.GetOptions) (*corev1.ConfigMap, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.begin(); err != nil {
		return nil, err
	}
	if s.object == nil {
		return nil, apierrors.NewNotFound(configMaps.resource, "istio-leader")
	}
	return s.object.DeepCopy(), nil
}

func (s *unversionedStore) Create(_ context.Context, cm *corev1.ConfigMap, _ metav1.CreateOptions) (*corev1.ConfigMap, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.begin(); err != nil {
		return nil, err
	}
	if s.object != nil {
		return nil, apierrors.NewAlreadyExists(configMaps.resource, "istio-leader")
	}
	s.object = cm.DeepCopy()
	return cm.DeepCopy(), nil
}

func (s *unversionedStore) Update(_ context.Context, cm *corev1.ConfigMap, _ metav1.UpdateOptions) (*corev1.ConfigMap, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.begin(); err != nil {
		return nil, err
	}
	if s.object == nil {
		return nil, apierrors.NewNotFound(configMaps.resource, "istio-leader")
	}
	s.object = cm.DeepCopy()
	return cm.DeepCopy(), nil
}

func (s *unversionedStore) Watch(_ context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	return s.watch(opts)
}

// failNext makes the n-th further request fail.
func (s *unversionedStore) failNext(n int, err error) {
	last := s.n + n
	s.fail = func(n int) error {
		if n == last {
			return err
		}
		return nil
	}
}

func termed(term int) LeaderElectionRecord {
	r := golden
	r.LeaderTransitions = term
	return r
}

// versionOf parses a version.
func versionOf(t *testing.T, s Snapshot) uint64 {
	t.Helper()
	v, err := strconv.ParseUint(s.ResourceVersion, 10, 64)
	harness.Must(t, err)
	return v
}

func TestUnversioned_Lock(t *testing.T) {
	store := &unversionedStore{}
	l := lockOn(store)
	first, err := l.Write(t.Context(), Snapshot{}, termed(1), nil)
	if err != nil || !first.Unversioned() || !strings.HasPrefix(string(first.UID), uidPrefix) {
		t.Fatalf("%+v, error %v", first, err)
	}
	second, err := l.Write(t.Context(), first, termed(2), nil)
	if err != nil || second.UID != first.UID || versionOf(t, second) <= versionOf(t, first) {
		t.Fatalf("UID %s then %s, version %s then %s, error %v", first.UID, second.UID, first.ResourceVersion, second.ResourceVersion, err)
	}
	read, err := l.Read(t.Context())
	if err != nil || read.UID != second.UID || read.ResourceVersion != second.ResourceVersion || read.Record.LeaderTransitions != 2 {
		t.Errorf("read %+v, error %v", read, err)
	}
	if _, err := l.Write(t.Context(), first, termed(3), nil); !IsConflict(err) || termOf(store) != 2 {
		t.Errorf("on a changed object: error %v, term %d", err, termOf(store))
	}
	if err := l.DryRun(t.Context(), second, termed(3), nil); err != nil || termOf(store) != 2 {
		t.Errorf("dry run: error %v, term %d", err, termOf(store))
	}
	store.object = nil
	if _, err := l.Write(t.Context(), second, termed(3), nil); !IsConflict(err) || !apierrors.IsNotFound(err) || store.object != nil {
		t.Errorf("on a deleted object: error %v", err)
	}
	recreation, err := l.Write(t.Context(), Snapshot{}, termed(1), nil)
	if err != nil || recreation.UID == first.UID {
		t.Errorf("recreated with UID %s, error %v", recreation.UID, err)
	}
	if _, err := l.Write(t.Context(), second, termed(3), nil); !IsConflict(err) {
		t.Errorf("on a recreated object: error %v", err)
	}
}

// termOf returns the term in the stored object.
func termOf(s *unversionedStore) int { return ConfigMapSnapshot(s.object).Record.LeaderTransitions }

// fakeClient is a typed client of a store, as a fake clientset returns them: a new one for each call.
type fakeClient struct {
	corev1client.ConfigMapsGetter
	Fake *int
}

// A request that hangs holds up no lock of another object or of another store.
func TestRegisterOf(t *testing.T) {
	one, two := new(int), new(int)
	meta := func(name string) *metav1.ObjectMeta { return &metav1.ObjectMeta{Namespace: "n", Name: name} }
	r := registerOf(&fakeClient{Fake: one}, "lease", meta("a"))
	for name, x := range map[string]struct {
		other *register
		same  bool
	}{
		"same":          {registerOf(&fakeClient{Fake: one}, "lease", meta("a")), true},
		"other store":   {registerOf(&fakeClient{Fake: two}, "lease", meta("a")), false},
		"other kind":    {registerOf(&fakeClient{Fake: one}, "configmap", meta("a")), false},
		"other object":  {registerOf(&fakeClient{Fake: one}, "lease", meta("b")), false},
		"no such field": {registerOf(&unversionedStore{}, "lease", meta("a")), false},
	} {
		if (r == x.other) != x.same {
			t.Errorf("%s: same register %v", name, !x.same)
		}
	}
	runtime.KeepAlive(r)
}

// Only one of several electors in a process succeeds.
func TestUnversioned_ManyWriters(t *testing.T) {
	for range 20 {
		store := &unversionedStore{}
		first := lockOn(store)
		base, err := first.Write(t.Context(), Snapshot{}, golden, nil)
		harness.Must(t, err)
		var (
			wg  sync.WaitGroup
			won atomic.Int32
		)
		for i := range 8 {
			wg.Go(func() {
				if _, err := lockOn(store).Write(t.Context(), base, termed(10+i), nil); err == nil {
					won.Add(1)
				} else if !IsConflict(err) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		runtime.KeepAlive(first)
		if won.Load() != 1 {
			t.Fatalf("%d writers won", won.Load())
		}
	}
}

// Watch events have no versions, so each object is read again.
func TestUnversioned_Watch(t *testing.T) {
	broken := errors.New("broken")
	shown := configMap("istio-leader", "")
	for name, c := range map[string]struct {
		event   watch.EventType
		prepare func(*unversionedStore)
		exists  bool
		err     error
	}{
		"there":     {watch.Added, func(s *unversionedStore) { s.object = shown }, true, nil},
		"gone":      {watch.Added, func(*unversionedStore) {}, false, nil},
		"deleted":   {watch.Deleted, func(*unversionedStore) {}, false, nil},
		"recreated": {watch.Deleted, func(s *unversionedStore) { s.object = shown }, true, nil},
		"broken":    {watch.Added, func(s *unversionedStore) { s.failNext(1, broken) }, false, broken},
	} {
		t.Run(name, func(t *testing.T) {
			store := &unversionedStore{object: shown}
			l := lockOn(store)
			before, err := l.Read(t.Context())
			harness.Must(t, err)
			store.object = nil
			c.prepare(store)
			store.watch = func(metav1.ListOptions) (watch.Interface, error) {
				w := watch.NewFakeWithChanSize(1, false)
				w.Action(c.event, shown)
				return w, nil
			}
			synctest.Test(t, func(t *testing.T) {
				got := watchedEvents(t, l)
				if len(got) != 2 || !errors.Is(got[1].Err, c.err) || (got[1].Kind == Changed) != (c.err == nil) {
					t.Fatalf("events %+v", got)
				}
				seen := got[1].Snapshot
				if seen.Exists != c.exists {
					t.Errorf("%+v", seen)
				}
				if c.err == nil && !c.exists && versionOf(t, seen) <= versionOf(t, before) { // electors would ignore it
					t.Errorf("deleted with version %s, before %s", seen.ResourceVersion, before.ResourceVersion)
				}
			})
		})
	}
}

func TestUnversioned(t *testing.T) {
	object := configMap("istio-leader", "")
	for _, c := range []struct {
		snap Snapshot
		want bool
	}{
		{Snapshot{Exists: true, UID: "u", Object: object}, false},
		{Snapshot{Exists: true, UID: uidPrefix + "7", Object: object}, true},
		{Snapshot{Exists: true, Object: object}, true},
		{Snapshot{Exists: true}, false}, // of a plain lock
		{Snapshot{UID: uidPrefix + "7", Object: object}, false},
	} {
		if c.snap.Unversioned() != c.want {
			t.Errorf("%+v: unversioned %v", c.snap, !c.want)
		}
	}
	for uid, want := range map[types.UID]bool{"": true, uidPrefix + "1": true, "u": false} {
		if isUnversioned(uid) != want {
			t.Errorf("UID %q: unversioned %v", uid, !want)
		}
	}
}
