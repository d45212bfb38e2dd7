package revisions

import (
	"context"
	"errors"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	admission "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"
)

type hookList = admissionv1.MutatingWebhookConfigurationList

var (
	forbidden = apierrors.NewForbidden(schema.GroupResource{Resource: "mutatingwebhookconfigurations"}, "a", errors.New("no"))
	refused   = apierrors.NewInternalError(errors.New("no"))
)

// script responds to the requests for the webhook name, in a synctest bubble. Each function receives the number of earlier requests.
type script struct {
	admission.MutatingWebhookConfigurationInterface
	t     *testing.T
	name  string
	began time.Time
	count map[string]int // requests by verb
	list  func(n int) (*hookList, error)
	get   func(n int) (*webhook, error)
	watch func(context.Context, int, metav1.ListOptions) (watch.Interface, error)
}

func (s *script) note(verb, selected string) (before int) {
	if selected != s.name && selected != "metadata.name="+s.name {
		s.t.Errorf("%s of %q, want only %s", verb, selected, s.name)
	}
	if s.count == nil {
		s.count = map[string]int{}
	}
	s.count[verb]++
	return s.count[verb] - 1
}

func (s *script) List(_ context.Context, options metav1.ListOptions) (*hookList, error) {
	return s.list(s.note("list", options.FieldSelector))
}

func (s *script) Get(_ context.Context, name string, _ metav1.GetOptions) (*webhook, error) {
	return s.get(s.note("get", name))
}

func (s *script) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	return s.watch(ctx, s.note("watch", options.FieldSelector), options)
}

func listed(version string, items ...webhook) (*hookList, error) {
	return &hookList{ListMeta: metav1.ListMeta{ResourceVersion: version}, Items: items}, nil
}

// lists returns the same webhooks for each list.
func lists(version string, items ...webhook) func(int) (*hookList, error) {
	return func(int) (*hookList, error) { return listed(version, items...) }
}

// fails returns an error for each list or get.
func fails[T any](err error) func(int) (*T, error) { return func(int) (*T, error) { return nil, err } }

// refuses rejects each watch.
func refuses(err error) func(context.Context, int, metav1.ListOptions) (watch.Interface, error) {
	return func(context.Context, int, metav1.ListOptions) (watch.Interface, error) { return nil, err }
}
