package install

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

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

func (a *applier) policy(p fence.Pair) {
	policies := a.client.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	a.apply(policyKind, p.Name(), p.Policy,
		func() (metav1.Object, error) { return policies.Get(a.ctx, p.Name(), metav1.GetOptions{}) },
		func(body []byte, options metav1.PatchOptions) (metav1.Object, error) {
			return policies.Patch(a.ctx, p.Name(), types.ApplyPatchType, body, options)
		})
}

func (a *applier) binding(p fence.Pair) {
	bindings := a.client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	a.apply(bindingKind, p.Name(), p.Binding,
		func() (metav1.Object, error) { return bindings.Get(a.ctx, p.Name(), metav1.GetOptions{}) },
		func(body []byte, options metav1.PatchOptions) (metav1.Object, error) {
			return bindings.Patch(a.ctx, p.Name(), types.ApplyPatchType, body, options)
		})
}

func (a *applier) apply(kind, name string, object runtime.Object, get func() (metav1.Object, error),
	patch func([]byte, metav1.PatchOptions) (metav1.Object, error),
) {
	if a.err != nil {
		return
	}
	body, err := applicable(object)
	if err != nil {
		a.err = fmt.Errorf("%s %s: %w", kind, name, err)
		return
	}
	before, err := get()
	if err != nil && !apierrors.IsNotFound(err) {
		a.err = fmt.Errorf("%s %s: %w", kind, name, err)
		return
	}
	there := err == nil
	force := true // our names are ours: whatever else was written there goes
	after, err := patch(body, metav1.PatchOptions{FieldManager: FieldManager, Force: &force})
	if err != nil {
		a.err = fmt.Errorf("%s %s: %w", kind, name, err)
		return
	}
	verb := "applied"
	if there && before.GetResourceVersion() == after.GetResourceVersion() {
		verb = "unchanged"
	}
	a.changes = append(a.changes, Change{verb, kind, name})
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
