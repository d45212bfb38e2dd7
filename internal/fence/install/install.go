package install

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"incumbent.dev/incumbent/internal/fence"
)

// fieldManager is the field manager of Apply.
const fieldManager = "incumbent-fence"

// Change is the change of one object.
type Change struct {
	// Verb is "applied", "unchanged" or "removed".
	Verb string
	// Kind and Name identify the object.
	Kind, Name string
}

func (c Change) String() string { return c.Verb + " " + c.Kind + " " + c.Name }

const (
	policyKind  = "ValidatingAdmissionPolicy"
	bindingKind = "ValidatingAdmissionPolicyBinding"
)

// Options configure Apply and Remove. The zero value is valid.
type Options struct {
	// Servers are further API servers. Apply removes old objects only after all servers have loaded the new ones.
	Servers []kubernetes.Interface
	// Replace lets Apply replace the guards of other sets for the same locks, and all service accounts of a set.
	Replace bool
}

// servers returns all API servers that must load the policies.
func (o Options) servers(client kubernetes.Interface) []kubernetes.Interface {
	return append([]kubernetes.Interface{client}, o.Servers...)
}

// Apply installs or updates a set. It returns after every API server has loaded the policies. Objects that are no longer
// in the set are removed last, so an interrupted Apply leaves no gap. The changes are valid after an error too.
func Apply(ctx context.Context, client kubernetes.Interface, set fence.Set, options ...Options) ([]Change, error) {
	o := append(options, Options{})[0]
	a := applier{ctx: ctx, client: client}
	installed, err := list(ctx, client)
	if err == nil {
		err = scopes(client, set)
		if !o.Replace {
			err = errors.Join(installed.conflicts(set), err)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("install fence %q: %w", set.Name, err)
	}
	for _, p := range set.Permanent {
		a.policy(p)
		a.binding(p)
	}
	rest := slices.Concat(set.Locks, set.Work)
	for _, p := range rest {
		a.policy(p)
	}
	for _, p := range rest {
		a.binding(p)
	}
	if a.err == nil {
		a.err = seen(ctx, set.Name, client, o)
	}
	if a.err != nil {
		return a.changes, fmt.Errorf("install fence %q: %w", set.Name, a.err)
	}
	obsolete, err := remove(ctx, client, func(was object) bool {
		taken := o.Replace && len(was.locks()) > 0 && len(was.shared(set)) == len(was.locks())
		return (was.of(set.Name) || taken) && !slices.ContainsFunc(rest, func(p fence.Pair) bool { return p.Name() == was.GetName() })
	})
	if err != nil {
		err = fmt.Errorf("remove old objects of fence %q: %w", set.Name, err)
	}
	return append(a.changes, obsolete...), err
}

// applier applies until the first error.
type applier struct {
	ctx     context.Context
	client  kubernetes.Interface
	changes []Change
	err     error
}

func (a *applier) policy(p fence.Pair)  { a.apply(policyOf(a.ctx, a.client, p)) }
func (a *applier) binding(p fence.Pair) { a.apply(bindingOf(a.ctx, a.client, p)) }

// target is an object with its operations.
type target struct {
	kind, name string
	object     runtime.Object
	get        func() (metav1.Object, error)
	patch      func([]byte, metav1.PatchOptions) (metav1.Object, error)
	// exact reports whether a stored object equals the rendered one. replace makes it equal.
	exact   func(stored metav1.Object) bool
	replace func(version string) (metav1.Object, error)
}

func policyOf(ctx context.Context, client kubernetes.Interface, p fence.Pair) target {
	policies := client.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	return target{
		kind: policyKind, name: p.Name(), object: p.Policy,
		get: func() (metav1.Object, error) { return policies.Get(ctx, p.Name(), metav1.GetOptions{}) },
		patch: func(body []byte, options metav1.PatchOptions) (metav1.Object, error) {
			return policies.Patch(ctx, p.Name(), types.ApplyPatchType, body, options)
		},
		exact: func(stored metav1.Object) bool {
			policy, ok := stored.(*admissionv1.ValidatingAdmissionPolicy)
			return ok && equality.Semantic.DeepEqual(policy.Spec, p.Policy.Spec) && marked(stored, p.Policy)
		},
		replace: func(version string) (metav1.Object, error) {
			policy := p.Policy.DeepCopy()
			policy.ResourceVersion = version
			return policies.Update(ctx, policy, metav1.UpdateOptions{FieldManager: fieldManager})
		},
	}
}

func bindingOf(ctx context.Context, client kubernetes.Interface, p fence.Pair) target {
	bindings := client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	return target{
		kind: bindingKind, name: p.Name(), object: p.Binding,
		get: func() (metav1.Object, error) { return bindings.Get(ctx, p.Name(), metav1.GetOptions{}) },
		patch: func(body []byte, options metav1.PatchOptions) (metav1.Object, error) {
			return bindings.Patch(ctx, p.Name(), types.ApplyPatchType, body, options)
		},
		exact: func(stored metav1.Object) bool {
			binding, ok := stored.(*admissionv1.ValidatingAdmissionPolicyBinding)
			return ok && equality.Semantic.DeepEqual(binding.Spec, p.Binding.Spec) && marked(stored, p.Binding)
		},
		replace: func(version string) (metav1.Object, error) {
			binding := p.Binding.DeepCopy()
			binding.ResourceVersion = version
			return bindings.Update(ctx, binding, metav1.UpdateOptions{FieldManager: fieldManager})
		},
	}
}

func (a *applier) apply(t target) {
	if a.err != nil {
		return
	}
	change, err := t.apply()
	if err != nil {
		a.err = fmt.Errorf("%s %s: %w", t.kind, t.name, err)
		return
	}
	a.changes = append(a.changes, change)
}

// mostConflicts is the maximum number of attempts to write an object while other clients change it.
const mostConflicts = 10

// apply writes the object. Server-side apply reverts changed fields but keeps added ones, for example an exclude rule.
// Therefore apply replaces an object that still differs.
func (t target) apply() (Change, error) {
	before, err := t.get()
	switch {
	case err == nil && t.exact(before):
		return Change{"unchanged", t.kind, t.name}, nil
	case err != nil && !apierrors.IsNotFound(err):
		return Change{}, err
	}
	body, err := applicable(t.object)
	if err != nil {
		return Change{}, err
	}
	force := true // no other client uses these names
	for range mostConflicts {
		var after metav1.Object
		after, err = t.patch(body, metav1.PatchOptions{FieldManager: fieldManager, Force: &force})
		if err == nil && !t.exact(after) {
			_, err = t.replace(after.GetResourceVersion())
		}
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			break // otherwise another client changed it concurrently
		}
	}
	if err != nil {
		return Change{}, err
	}
	return Change{"applied", t.kind, t.name}, nil
}

// marked reports whether an object has the labels and annotations of the rendered one.
func marked(stored, rendered metav1.Object) bool {
	return contains(stored.GetLabels(), rendered.GetLabels()) && contains(stored.GetAnnotations(), rendered.GetAnnotations())
}

func contains(all, some map[string]string) bool {
	for key, value := range some {
		if got, there := all[key]; !there || got != value {
			return false
		}
	}
	return true
}

// differs returns the differences between a pair and the installed objects.
func differs(ctx context.Context, client kubernetes.Interface, p fence.Pair) ([]string, error) {
	var found []string
	for _, t := range []target{policyOf(ctx, client, p), bindingOf(ctx, client, p)} {
		stored, err := t.get()
		switch {
		case apierrors.IsNotFound(err):
			found = append(found, t.kind+" is missing")
		case err != nil:
			return nil, err
		case !t.exact(stored):
			found = append(found, t.kind+" was changed")
		}
	}
	return found, nil
}

// applicable returns the body of a server-side apply.
func applicable(object runtime.Object) ([]byte, error) {
	content, err := withoutServerFields(object)
	if err != nil {
		return nil, err
	}
	return json.Marshal(content)
}
