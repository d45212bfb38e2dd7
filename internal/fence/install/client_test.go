package install

import (
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	fakediscovery "k8s.io/client-go/discovery/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

const bothPolicies, bothBindings = "validatingadmissionpolicies", "validatingadmissionpolicybindings"

// scripted is a client whose requests the test answers. Tests on a real API server show the effect of policies.
type scripted struct{ *fake.Clientset }

func newScripted(answer func(clienttesting.Action) (runtime.Object, error)) scripted {
	s := scripted{&fake.Clientset{}}
	s.AddReactor("*", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		object, err := answer(a)
		return true, object, err
	})
	return s
}

func (s scripted) Discovery() discovery.DiscoveryInterface {
	return preferring{&fakediscovery.FakeDiscovery{Fake: &s.Fake}}
}

// preferring implements ServerPreferredResources, which FakeDiscovery does not.
type preferring struct{ *fakediscovery.FakeDiscovery }

func (p preferring) ServerPreferredResources() ([]*metav1.APIResourceList, error) {
	return discovery.ServerPreferredResources(p.FakeDiscovery)
}

// failing returns a client of an API server without objects that fails at one kind of request.
func failing(verb, resource string, with error) scripted {
	return newScripted(func(a clienttesting.Action) (runtime.Object, error) {
		if a.Matches(verb, resource) {
			return nil, with
		}
		if a.GetVerb() == "list" {
			return nil, nil
		}
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: a.GetResource().Resource}, "x")
	})
}
