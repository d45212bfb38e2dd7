package revisions

import (
	"slices"
	"sync"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"incumbent.dev/incumbent/pkg/kube"
)

// server has the objects that a watcher of tags reads, and records its requests.
type server struct {
	kube.Client
	clientset *fake.Clientset

	mu         sync.Mutex
	hooks      []webhook
	services   []corev1.Service
	validators []validator
	// forbidden are requests that get an error, in the form of asked.
	forbidden []string
	asked     []string
	watches   map[string]*watch.FakeWatcher
}

func (s *server) Kube() kubernetes.Interface { return s.clientset }

func newServer(s *server) *server {
	s.clientset = fake.NewClientset()
	s.watches = map[string]*watch.FakeWatcher{}
	s.clientset.PrependReactor("*", "*", s.answer)
	s.clientset.PrependWatchReactor("*", func(action clienttesting.Action) (bool, watch.Interface, error) {
		selected := action.(clienttesting.WatchAction).GetWatchRestrictions()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.asked = append(s.asked, request(action, selected.Labels.String()+selected.Fields.String()))
		w := watch.NewFake()
		s.watches[action.GetResource().Resource] = w
		return true, w, nil
	})
	return s
}

// request describes a request by its verb, namespace, resource, and selector or name.
func request(action clienttesting.Action, selected string) string {
	what := action.GetVerb() + " "
	if namespace := action.GetNamespace(); namespace != "" {
		what += namespace + "/"
	}
	return what + action.GetResource().Resource + " " + selected
}

func (s *server) answer(action clienttesting.Action) (bool, runtime.Object, error) {
	selected := ""
	switch a := action.(type) {
	case clienttesting.ListAction:
		selected = a.GetListRestrictions().Labels.String() + a.GetListRestrictions().Fields.String()
	case clienttesting.GetAction:
		selected = a.GetName()
	}
	what, meta := request(action, selected), metav1.ListMeta{ResourceVersion: "5"}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, what)
	switch resource := action.GetResource().Resource; {
	case slices.Contains(s.forbidden, what):
		return true, nil, apierrors.NewForbidden(action.GetResource().GroupResource(), "", nil)
	case resource == hooksPath:
		return true, &admissionv1.MutatingWebhookConfigurationList{ListMeta: meta, Items: s.hooks}, nil
	case resource == "services":
		return true, &corev1.ServiceList{ListMeta: meta, Items: s.services}, nil
	default:
		return true, &admissionv1.ValidatingWebhookConfigurationList{ListMeta: meta, Items: s.validators}, nil
	}
}

// cut ends the watch of a resource.
func (s *server) cut(resource string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watches[resource].Stop()
}

// set changes objects and permissions.
func (s *server) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// count returns the number of requests.
func (s *server) count(what string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.asked {
		if one == what {
			n++
		}
	}
	return n
}
