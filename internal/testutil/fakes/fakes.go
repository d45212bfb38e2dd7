package fakes

import (
	"context"
	"testing"
	"testing/synctest"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	k8stesting "k8s.io/client-go/testing"
)

// Client is a kube.Client with a fake clientset.
type Client struct{ Clientset *fake.Clientset }

// Kube returns the fake clientset.
func (c Client) Kube() kubernetes.Interface { return c.Clientset }

// Dynamic returns nil.
func (c Client) Dynamic() dynamic.Interface { return nil }

// RESTConfig returns an empty configuration.
func (c Client) RESTConfig() *rest.Config { return &rest.Config{} }

// Put creates or updates an object of the clientset.
func (c Client) Put(t testing.TB, o runtime.Object) {
	t.Helper()
	kinds, _, err := scheme.Scheme.ObjectKinds(o)
	if err != nil {
		t.Fatal(err)
	}
	resource, _ := meta.UnsafeGuessKindToResource(kinds[0])
	Put(t, c.Clientset.Tracker(), resource, o)
}

// Put creates or updates an object of a resource.
func Put(t testing.TB, tracker k8stesting.ObjectTracker, resource schema.GroupVersionResource, o runtime.Object) {
	t.Helper()
	object, err := meta.Accessor(o)
	if err != nil {
		t.Fatal(err)
	}
	err = tracker.Update(resource, o, object.GetNamespace(), metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		err = tracker.Create(resource, o, object.GetNamespace(), metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Controller is a controller with caches.
type Controller interface {
	Warm(ctx context.Context) error
	Run(ctx context.Context) error
	Close()
}

// Run runs a controller in a bubble of synctest while a function runs. Its caches are kept until the test ends.
func Run(t testing.TB, c Controller, during func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	// A fake clientset does not repeat the changes between a list and its watch, so no write precedes a watch.
	warmed := make(chan error)
	go func() { warmed <- c.Warm(ctx) }()
	synctest.Wait()
	ended := make(chan error)
	go func() { ended <- c.Run(ctx) }()
	synctest.Wait()
	during()
	cancel()
	<-warmed // an error if a kind cannot be read
	if err := <-ended; err != nil {
		t.Error(err)
	}
	t.Cleanup(c.Close)
}
