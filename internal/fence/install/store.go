package install

import (
	"context"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"incumbent.dev/incumbent/internal/fence"
)

const (
	policyKind  = "ValidatingAdmissionPolicy"
	bindingKind = "ValidatingAdmissionPolicyBinding"
)

// storable is a policy or a binding.
type storable interface {
	metav1.Object
	runtime.Object
}

// listed is a list of one kind.
type listed interface {
	metav1.ListInterface
	runtime.Object
}

// object is a stored or rendered policy or binding with the requests for its kind.
type object struct {
	storable
	store
}

func policyOf(client kubernetes.Interface, p fence.Pair) object {
	return object{p.Policy, policies(client)}
}

func bindingOf(client kubernetes.Interface, p fence.Pair) object {
	return object{p.Binding, bindings(client)}
}

// store has the requests for one kind.
type store struct {
	kind   string
	get    func(ctx context.Context, name string) (storable, error)
	create func(ctx context.Context, object storable) error
	update func(ctx context.Context, object storable) error
	delete func(ctx context.Context, name string, options metav1.DeleteOptions) error
	list   func(ctx context.Context, options metav1.ListOptions) (all []storable, version string, err error)
	watch  func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
}

// bindingsFirst returns the stores in the order of a removal.
func bindingsFirst(client kubernetes.Interface) []store {
	return []store{bindings(client), policies(client)}
}

func policies(client kubernetes.Interface) store {
	return storeOf(policyKind, client.AdmissionregistrationV1().ValidatingAdmissionPolicies())
}

func bindings(client kubernetes.Interface) store {
	return storeOf(bindingKind, client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings())
}

func storeOf[T storable, L listed](kind string, api interface {
	Get(ctx context.Context, name string, options metav1.GetOptions) (T, error)
	Create(ctx context.Context, object T, options metav1.CreateOptions) (T, error)
	Update(ctx context.Context, object T, options metav1.UpdateOptions) (T, error)
	Delete(ctx context.Context, name string, options metav1.DeleteOptions) error
	List(ctx context.Context, options metav1.ListOptions) (L, error)
	Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
},
) store {
	return store{
		kind: kind,
		get: func(ctx context.Context, name string) (storable, error) {
			return api.Get(ctx, name, metav1.GetOptions{})
		},
		create: func(ctx context.Context, object storable) error {
			_, err := api.Create(ctx, object.(T), metav1.CreateOptions{FieldManager: fieldManager})
			return err
		},
		update: func(ctx context.Context, object storable) error {
			_, err := api.Update(ctx, object.(T), metav1.UpdateOptions{FieldManager: fieldManager})
			return err
		},
		delete: api.Delete,
		list: func(ctx context.Context, options metav1.ListOptions) (all []storable, version string, err error) {
			list, err := api.List(ctx, options)
			if err != nil {
				return nil, "", err
			}
			err = meta.EachListItem(list, func(o runtime.Object) error {
				all = append(all, o.(storable))
				return nil
			})
			return all, list.GetResourceVersion(), err
		},
		watch: api.Watch,
	}
}

// exact reports whether a stored object has the content, labels and annotations of the rendered one. It may have further ones.
func (o object) exact(stored storable) bool {
	return equality.Semantic.DeepEqual(spec(stored), spec(o.storable)) &&
		contains(stored.GetLabels(), o.GetLabels()) && contains(stored.GetAnnotations(), o.GetAnnotations())
}

func spec(o storable) any {
	switch o := o.(type) {
	case *admissionv1.ValidatingAdmissionPolicy:
		return o.Spec
	case *admissionv1.ValidatingAdmissionPolicyBinding:
		return o.Spec
	}
	return nil
}

func contains(all, some map[string]string) bool {
	for key, value := range some {
		if got, there := all[key]; !there || got != value {
			return false
		}
	}
	return true
}
