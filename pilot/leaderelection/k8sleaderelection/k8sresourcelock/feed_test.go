package k8sresourcelock

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

func lockOn(client corev1client.ConfigMapsGetter) *ConfigMapLock {
	return &ConfigMapLock{
		ConfigMapMeta: metav1.ObjectMeta{Namespace: "istio-system", Name: "istio-leader"},
		Client:        client,
		LockConfig:    ResourceLockConfig{Identity: "pod-a", Key: "stable"},
	}
}

func configMap(name, version string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: version}}
}

// watchedEvents returns the first events of a subscription of a lock.
func watchedEvents(t *testing.T, l Lock) []Event {
	s := l.Subscribe(t.Context(), func() {})
	defer s.End()
	synctest.Wait()
	return s.Next()
}

func TestFeed_Events(t *testing.T) {
	name := "configmap istio-system/istio-leader: watch: "
	other := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "istio-leader", ResourceVersion: "11"}}
	for what, c := range map[string]struct {
		event watch.Event
		want  []string
	}{
		"change":         {watch.Event{Type: watch.Added, Object: configMap("istio-leader", "11")}, []string{"up after a gap", "changed11"}},
		"deletion":       {watch.Event{Type: watch.Deleted, Object: configMap("istio-leader", "12")}, []string{"up after a gap", "gone12"}},
		"another object": {watch.Event{Type: watch.Added, Object: configMap("other", "16")}, []string{"up after a gap"}},
		"another kind":   {watch.Event{Type: watch.Added, Object: other}, []string{"up after a gap", "down: " + name + "ADDED event with object *v1.Lease"}},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &unversionedStore{watch: func(metav1.ListOptions) (watch.Interface, error) {
					w := watch.NewFakeWithChanSize(1, false)
					w.Action(c.event.Type, c.event.Object)
					return w, nil
				}}
				if got := texts(watchedEvents(t, lockOn(store))); !slices.Equal(got, c.want) {
					t.Errorf("got %q, want %q", got, c.want)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		for _, c := range []struct {
			lock Lock
			err  error
		}{
			{lockOn(nil), errNoClient},
			{&LeaseLock{}, errNoClient},
			{lockOn(&unversionedStore{watch: func(metav1.ListOptions) (watch.Interface, error) { return nil, broken }}), broken},
		} {
			if got := watchedEvents(t, c.lock); len(got) != 1 || got[0].Kind != WatchDisconnected || !errors.Is(got[0].Err, c.err) {
				t.Errorf("got %+v, want %v", got, c.err)
			}
		}
	})
}

func TestFeed_End(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &unversionedStore{watch: func(metav1.ListOptions) (watch.Interface, error) {
			<-time.After(time.Second)
			return nil, errors.New("ended")
		}}
		s := lockOn(store).Subscribe(t.Context(), func() {})
		synctest.Wait()
		began := time.Now()
		if s.End(); time.Since(began) != time.Second {
			t.Errorf("End returned after %v, before the request", time.Since(began))
		}
		s.StoreRestored("1")
		if got := s.Next(); len(got) != 0 {
			t.Errorf("after its end it reports %v", got)
		}
	})
}
