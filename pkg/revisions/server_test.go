package revisions

import (
	"context"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"

	"incumbent.dev/incumbent/internal/tagging"
	"incumbent.dev/incumbent/internal/testutil/apiserver"
	"incumbent.dev/incumbent/pkg/kube"
)

// hooksPath is the resource of the webhooks.
const hooksPath = "mutatingwebhookconfigurations"

var forbidden = apierrors.NewForbidden(schema.GroupResource{Resource: hooksPath}, "", nil)

// inMemory is a client of an API server in memory.
type inMemory struct {
	kube.Client
	clientset kubernetes.Interface
}

func (c inMemory) Kube() kubernetes.Interface { return c.clientset }

func clientOf(t *testing.T, s *apiserver.Server) kube.Client {
	t.Helper()
	return inMemory{clientset: s.Kube()}
}

// described describes a request by its verb, namespace, resource, and selector or name.
func described(r apiserver.Request) string {
	path := r.Resource
	if r.Namespace != "" {
		path = r.Namespace + "/" + path
	}
	query := r.URL.Query()
	return r.Verb + " " + path + " " + query.Get("labelSelector") + query.Get("fieldSelector") + r.Name
}

// forbid rejects requests with these descriptions.
func forbid(s *apiserver.Server, all ...string) {
	s.On(func(r apiserver.Request) apiserver.Fault {
		if slices.Contains(all, described(r)) {
			return apiserver.Fault{Err: forbidden}
		}
		return apiserver.Fault{}
	})
}

// put stores a webhook.
func put(s *apiserver.Server, item webhook) { s.Put(&item) }

func revisionHook(name, revision string) webhook {
	return webhook{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{tagging.Label: revision}}}
}

// runs starts Run of a watcher. end stops it and waits for its return.
func runs(run func(<-chan struct{})) (end func()) {
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		run(stop)
	}()
	return func() {
		close(stop)
		<-ended
	}
}

// reporter and awaiter are implemented by all watchers.
type (
	reporter interface{ Problem() error }
	awaiter  interface{ AwaitCurrent(ctx context.Context) }
)
