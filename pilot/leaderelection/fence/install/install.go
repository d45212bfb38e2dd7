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

	"incumbent.dev/incumbent/pilot/leaderelection/fence"
)

// FieldManager owns what Apply writes.
const FieldManager = "incumbent-fence"

// Change is what was done to one object.
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

// Apply installs a set, or brings what is installed of it up to date. On an error, what
// the changes list has been done, and the fence is no weaker than before.
func Apply(ctx context.Context, client kubernetes.Interface, set fence.Set) ([]Change, error) {
	a := applier{ctx: ctx, client: client}
	for _, p := range set.Keep {
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
	if a.err != nil {
		return a.changes, fmt.Errorf("installing the fence %q: %w", set.Name, a.err)
	}
	obsolete, err := remove(ctx, client, set.Name, func(name string) bool {
		return slices.ContainsFunc(rest, func(p fence.Pair) bool { return p.Name() == name })
	})
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
			return ok && equality.Semantic.DeepEqual(policy.Spec, p.Policy.Spec)
		},
		replace: func(version string) (metav1.Object, error) {
			policy := p.Policy.DeepCopy()
			policy.ResourceVersion = version
			return policies.Update(ctx, policy, metav1.UpdateOptions{FieldManager: FieldManager})
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
			return ok && equality.Semantic.DeepEqual(binding.Spec, p.Binding.Spec)
		},
		replace: func(version string) (metav1.Object, error) {
			binding := p.Binding.DeepCopy()
			binding.ResourceVersion = version
			return bindings.Update(ctx, binding, metav1.UpdateOptions{FieldManager: FieldManager})
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

// apply makes the object what it should be. Applying takes back what others changed of
// ours, but leaves what they added, such as a rule that leaves something out; that goes
// by a replacement.
func (t target) apply() (Change, error) {
	before, after, err := t.applied()
	if err != nil {
		return Change{}, err
	}
	if !t.exact(after) {
		if after, err = t.replace(after.GetResourceVersion()); err != nil {
			return Change{}, err
		}
	}
	if before != nil && before.GetGeneration() == after.GetGeneration() {
		return Change{"unchanged", t.kind, t.name}, nil
	}
	return Change{"applied", t.kind, t.name}, nil
}

// applied applies, and returns the object before that, nil if there was none, and after it.
func (t target) applied() (before, after metav1.Object, err error) {
	body, err := applicable(t.object)
	if err != nil {
		return nil, nil, err
	}
	before, err = t.get()
	if apierrors.IsNotFound(err) {
		before, err = nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	force := true // our names are ours
	after, err = t.patch(body, metav1.PatchOptions{FieldManager: FieldManager, Force: &force})
	return before, after, err
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
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, err
	}
	delete(content, "status")
	if meta, ok := content["metadata"].(map[string]any); ok {
		delete(meta, "creationTimestamp")
	}
	return json.Marshal(content)
}

// Remove takes a set away, bindings before policies. The keepers stay: without them, a
// fence that is installed later might judge by locks as they are now until the API
// servers restart.
func Remove(ctx context.Context, client kubernetes.Interface, set string) ([]Change, error) {
	return remove(ctx, client, set, func(string) bool { return false })
}

func remove(ctx context.Context, client kubernetes.Interface, set string, keep func(name string) bool) ([]Change, error) {
	if set == "" {
		return nil, errors.New("removing a fence: no set is named")
	}
	options := metav1.ListOptions{LabelSelector: fence.SetLabel + "=" + set}
	var changes []Change
	bindings, err := client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().List(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("removing from the fence %q: %w", set, err)
	}
	for _, b := range bindings.Items {
		if keep(b.Name) {
			continue
		}
		err := client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Delete(ctx, b.Name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return changes, fmt.Errorf("removing %s %s: %w", bindingKind, b.Name, err)
		}
		changes = append(changes, Change{"removed", bindingKind, b.Name})
	}
	policies, err := client.AdmissionregistrationV1().ValidatingAdmissionPolicies().List(ctx, options)
	if err != nil {
		return changes, fmt.Errorf("removing from the fence %q: %w", set, err)
	}
	for _, p := range policies.Items {
		if keep(p.Name) {
			continue
		}
		err := client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Delete(ctx, p.Name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return changes, fmt.Errorf("removing %s %s: %w", policyKind, p.Name, err)
		}
		changes = append(changes, Change{"removed", policyKind, p.Name})
	}
	return changes, nil
}
