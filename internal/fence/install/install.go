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

// fieldManager owns what Apply writes.
const fieldManager = "incumbent-fence"

// Change says how one object was changed.
type Change struct {
	// Verb is "applied", "unchanged" or "removed".
	Verb string
	// Kind and Name are the object's.
	Kind, Name string
}

func (c Change) String() string { return c.Verb + " " + c.Kind + " " + c.Name }

const (
	policyKind  = "ValidatingAdmissionPolicy"
	bindingKind = "ValidatingAdmissionPolicyBinding"
)

// Options of Apply and Remove. The zero value is useful.
type Options struct {
	// Servers are further API servers, beside the one that the client reaches. Nothing that stood
	// is taken away before all of them have taken in what replaces it.
	Servers []kubernetes.Interface
	// TakeOver removes what other sets have installed about the same locks, once this one stands,
	// and lets a set go over to other service accounts altogether.
	TakeOver bool
}

// servers are all whose answer is waited for.
func (o Options) servers(client kubernetes.Interface) []kubernetes.Interface {
	return append([]kubernetes.Interface{client}, o.Servers...)
}

// Apply installs a set, or brings what is installed of it up to date, and returns when
// every API server that it was given has taken it in. What the set no longer has goes last, so
// that an Apply that fails or is interrupted, at whatever point, leaves nothing open that was
// shut. The changes list what has been done, after an error too.
func Apply(ctx context.Context, client kubernetes.Interface, set fence.Set, options ...Options) ([]Change, error) {
	o := append(options, Options{})[0]
	a := applier{ctx: ctx, client: client}
	installed, err := list(ctx, client)
	if err == nil {
		err = scopes(client, set)
		if !o.TakeOver {
			err = errors.Join(installed.conflicts(set), err)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("installing the fence %q: %w", set.Name, err)
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
		return a.changes, fmt.Errorf("installing the fence %q: %w", set.Name, a.err)
	}
	obsolete, err := remove(ctx, client, func(was object) bool {
		taken := o.TakeOver && len(was.locks()) > 0 && len(was.shared(set)) == len(was.locks())
		return (was.of(set.Name) || taken) && !slices.ContainsFunc(rest, func(p fence.Pair) bool { return p.Name() == was.GetName() })
	})
	if err != nil {
		err = fmt.Errorf("removing what the fence %q no longer has: %w", set.Name, err)
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

// target is one object with what can be done to it.
type target struct {
	kind, name string
	object     runtime.Object
	get        func() (metav1.Object, error)
	patch      func([]byte, metav1.PatchOptions) (metav1.Object, error)
	// exact reports whether a stored object says what was rendered and no more; replace
	// makes it so.
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

// mostConflicts bounds how often an object is made what it should be while others change it.
const mostConflicts = 10

// apply makes the object what it should be. Applying takes back what others changed of
// ours, but leaves what they added, such as a rule that leaves something out; that goes
// by a replacement.
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
	force := true // our names are ours
	for range mostConflicts {
		var after metav1.Object
		after, err = t.patch(body, metav1.PatchOptions{FieldManager: fieldManager, Force: &force})
		if err == nil && !t.exact(after) {
			_, err = t.replace(after.GetResourceVersion())
		}
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			break // otherwise somebody else repairs it as well, or breaks it
		}
	}
	if err != nil {
		return Change{}, err
	}
	return Change{"applied", t.kind, t.name}, nil
}

// marked reports whether an object says, beyond what it does, whose it is.
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

// differs tells in what a pair is not installed as it was rendered.
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
			found = append(found, t.kind+" is another")
		}
	}
	return found, nil
}

// applicable is an object as server-side apply wants it: nothing in it that is not ours
// to say.
func applicable(object runtime.Object) ([]byte, error) {
	content, err := withoutServerFields(object)
	if err != nil {
		return nil, err
	}
	return json.Marshal(content)
}
