package apiserver

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"

	"incumbent.dev/incumbent/internal/testutil/harness"
)

func configMap(name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name}, Data: map[string]string{"key": value}}
}

// An update, patch or deletion with an old version or another UID is a conflict.
func TestServer_CompareAndSwap(t *testing.T) {
	s := New(configMap("a", "1"))
	client := s.Kube().CoreV1().ConfigMaps("n")
	old, err := client.Get(t.Context(), "a", metav1.GetOptions{})
	harness.Must(t, err)
	changed := old.DeepCopy()
	changed.Data["key"] = "2"
	if _, err := client.Update(t.Context(), changed, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Error(err)
	}
	stored, err := client.Update(t.Context(), changed, metav1.UpdateOptions{})
	if err != nil || stored.ResourceVersion == old.ResourceVersion || stored.UID != old.UID || stored.Data["key"] != "2" {
		t.Errorf("update: %+v, %v", stored, err)
	}
	if same, err := client.Update(t.Context(), stored.DeepCopy(), metav1.UpdateOptions{}); err != nil || same.ResourceVersion != stored.ResourceVersion {
		t.Errorf("update without a change: %+v, %v", same, err)
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
		client := s.Kube().CoreV1().ConfigMaps("")
		list, err := client.List(t.Context(), metav1.ListOptions{})
		if err != nil || len(list.Items) != 2 {
			t.Fatal(list, err)
		}
		w, err := client.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion, FieldSelector: "metadata.name=a"})
		harness.Must(t, err)
		defer w.Stop()
		s.Put(configMap("b", "2"))
		s.Put(configMap("a", "2"))
		if e := <-w.ResultChan(); e.Type != watch.Modified || e.Object.(*corev1.ConfigMap).Data["key"] != "2" {
			t.Errorf("event: %+v", e)
		}
		if err := s.Kube().CoreV1().ConfigMaps("n").Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
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
		factory := informers.NewSharedInformerFactory(s.Kube(), 0)
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

func TestClient_Faults(t *testing.T) {
	refused := errors.New("refused")
	for name, x := range map[string]struct {
		fault     Fault
		err       error
		took      time.Duration
		committed bool // when the call returns
		later     bool // in the end
	}{
		"none":                {committed: true, later: true},
		"latency":             {fault: Fault{Before: time.Second, After: 2 * time.Second}, took: 3 * time.Second, committed: true, later: true},
		"lost request":        {fault: Fault{Before: time.Second, Lose: TheRequest}, err: ErrConnection, took: time.Second},
		"lost reply":          {fault: Fault{After: time.Second, Lose: TheReply}, err: syscall.ECONNABORTED, took: time.Second, committed: true, later: true},
		"hanging request":     {fault: Fault{Hang: true}, err: context.DeadlineExceeded, took: 5 * time.Second},
		"hanging reply":       {fault: Fault{Hang: true, Lose: TheReply}, err: context.DeadlineExceeded, took: 5 * time.Second, committed: true, later: true},
		"given up on the way": {fault: Fault{Before: 9 * time.Second}, err: context.DeadlineExceeded, took: 5 * time.Second},
		"arrives all the same": {
			fault: Fault{Before: 9 * time.Second, Arrives: true}, err: context.DeadlineExceeded, took: 5 * time.Second, later: true,
		},
		"refused": {fault: Fault{Err: refused}, err: refused},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := New()
			s.FailNext("create", x.fault)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			began := time.Now()
			_, err := s.ConfigMaps("n").Create(ctx, configMap("a", name), metav1.CreateOptions{})
			cancel()
			if took := time.Since(began); !errors.Is(err, x.err) || took != x.took {
				t.Errorf("%s: %v after %v", name, err, took)
			}
			var stored corev1.ConfigMap
			committed := s.Get("configmaps", "n", "a", &stored)
			<-time.After(time.Minute)
			if later := s.Get("configmaps", "n", "a", &stored); committed != x.committed || later != x.later || s.Counts()["create"] != 1 {
				t.Errorf("%s: committed %v, later %v", name, committed, later)
			}
		})
	}
}
