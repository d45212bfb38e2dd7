package revisions_test

import (
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/pkg/revisions"
)

// inMemory replaces the client of an API server from kube.NewClient.
type inMemory struct{ clientset kubernetes.Interface }

func (c inMemory) Kube() kubernetes.Interface { return c.clientset }
func (inMemory) Dynamic() dynamic.Interface   { return nil }
func (inMemory) RESTConfig() *rest.Config     { return nil }

// The default revision is a label of a webhook. A handler is called with the first value and with each change.
func ExampleNewDefaultWatcher() {
	client := inMemory{fake.NewClientset(&admissionv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "istio-revision-tag-default", Labels: map[string]string{"istio.io/rev": "canary"}},
	})}
	watcher := revisions.NewDefaultWatcher(client, "stable", "istio-system")
	stop, ended := make(chan struct{}), make(chan struct{})
	heard := make(chan string)
	watcher.AddHandler(func(revision string) { heard <- revision })
	go func() {
		defer close(ended)
		watcher.Run(stop)
	}()
	fmt.Println(<-heard, watcher.HasSynced(), watcher.GetDefault())
	close(stop)
	<-ended
	// Output:
	// canary true canary
}
