package apiserver

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
)

func configMap(name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name}, Data: map[string]string{"key": value}}
}

// An update, patch or deletion with an old version or another UID is a conflict.
func TestServer_CompareAndSwap(t *testing.T) {
	s := New(configMap("a", "1"))
	client := s.Kube(t).CoreV1().ConfigMaps("n")
	old, err := client.Get(t.Context(), "a", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	changed := old.DeepCopy()
	changed.Data["key"] = "2"
	if _, err := client.Update(t.Context(), changed, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Error(err)
	}
	stored, err := client.Update(t.Context(), changed, metav1.UpdateOptions{})
	if err != nil || stored.ResourceVersion == old.ResourceVersion || stored.UID != old.UID || stored.Data["key"] != "2" {
		t.Errorf("update: %+v, %v", stored, err)
	}
	patch := []byte(`{"metadata":{"resourceVersion":"` + old.ResourceVersion + `"},"data":{"key":null}}`)
	_, updated := client.Update(t.Context(), changed, metav1.UpdateOptions{})
	_, patched := client.Patch(t.Context(), "a", types.MergePatchType, patch, metav1.PatchOptions{})
	deleted := client.Delete(t.Context(), "a", *metav1.NewPreconditionDeleteOptions("other"))
	for what, err := range map[string]error{"update": updated, "patch": patched, "delete": deleted} {
		if !apierrors.IsConflict(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := client.Create(t.Context(), configMap("a", "3"), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		t.Errorf("create: %v", err)
	}
	if _, err := client.Get(t.Context(), "b", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("get: %v", err)
	}
}

// A watch begins after its version and delivers only selected objects.
func TestServer_Watch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(configMap("a", "1"), configMap("b", "1"))
		client := s.Kube(t).CoreV1().ConfigMaps("")
		list, err := client.List(t.Context(), metav1.ListOptions{})
		if err != nil || len(list.Items) != 2 {
			t.Fatal(list, err)
		}
		w, err := client.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion, FieldSelector: "metadata.name=a"})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		s.Put(configMap("b", "2"))
		s.Put(configMap("a", "2"))
		if e := <-w.ResultChan(); e.Type != watch.Modified || e.Object.(*corev1.ConfigMap).Data["key"] != "2" {
			t.Errorf("event: %+v", e)
		}
		if err := s.Kube(t).CoreV1().ConfigMaps("n").Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		if e := <-w.ResultChan(); e.Type != watch.Deleted {
			t.Errorf("event: %+v", e)
		}
	})
}

// An informer reads the initial objects from its watch, up to a bookmark.
func TestServer_Informer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(configMap("a", "1"))
		factory := informers.NewSharedInformerFactory(s.Kube(t), 0)
		informer := factory.Core().V1().ConfigMaps().Informer()
		stop := make(chan struct{})
		factory.Start(stop)
		factory.WaitForCacheSync(stop)
		s.Put(configMap("b", "1"))
		synctest.Wait()
		if n := len(informer.GetStore().List()); n != 2 {
			t.Errorf("%d objects", n)
		}
		for _, r := range s.Requests() {
			if r.Verb != "watch" {
				t.Errorf("request %v", r)
			}
		}
		close(stop)
		factory.Shutdown()
	})
}

func TestServer_Faults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(configMap("a", "1"))
		client := s.Kube(t).CoreV1().ConfigMaps("n")
		refused := errors.New("refused")
		for name, x := range map[string]struct {
			fault  Fault
			took   time.Duration
			is     error
			stored string
		}{
			"delay": {Fault{Delay: time.Second}, time.Second, nil, "delay"},
			"error": {Fault{Err: refused}, 0, refused, ""},
			"lost":  {Fault{Lost: true}, 0, ErrConnection, "lost"},
			"hang":  {Fault{Hang: true}, time.Minute, context.DeadlineExceeded, ""},
		} {
			s.Put(configMap("a", ""))
			s.On(func(Request) Fault { return x.fault })
			began := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			_, err := client.Update(ctx, configMap("a", name), metav1.UpdateOptions{})
			cancel()
			var stored corev1.ConfigMap
			s.Get("configmaps", "n", "a", &stored)
			if !errors.Is(err, x.is) || time.Since(began) != x.took || stored.Data["key"] != x.stored {
				t.Errorf("%s: %v after %v, stored %q", name, err, time.Since(began), stored.Data["key"])
			}
		}
	})
}
