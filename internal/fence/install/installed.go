package install

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"

	"incumbent.dev/incumbent/internal/fence"
)

// rendered matches the digest at the end of a rendered name.
var rendered = regexp.MustCompile(`-[0-9a-f]{10}$`)

// of reports whether the object belongs to the set, by its name or its label. Other users can remove the label.
func (o object) of(set string) bool {
	if strings.HasPrefix(o.GetName(), fence.PolicyPrefix+set+".") && rendered.MatchString(o.GetName()) {
		return true
	}
	return o.GetLabels()[fence.SetLabel] == set
}

// set returns the name of the object's set.
func (o object) set() string {
	rest := strings.TrimPrefix(o.GetName(), fence.PolicyPrefix)
	if set, _, found := strings.Cut(rest, "."); found && rendered.MatchString(rest) {
		return set
	}
	return o.GetLabels()[fence.SetLabel]
}

// locks returns the locks that the object concerns.
func (o object) locks() []string { return fence.Locks(o) }

// shared returns the locks that the object and the set have in common.
func (o object) shared(set fence.Set) []string {
	var shared []string
	for _, lock := range o.locks() {
		for _, p := range slices.Concat(set.Locks, set.Work) {
			if slices.Contains(fence.Locks(p.Policy), lock) {
				shared = append(shared, lock)
				break
			}
		}
	}
	return shared
}

// inventory lists the installed objects of all fences, bindings first.
type inventory []object

func list(ctx context.Context, client kubernetes.Interface) (inventory, error) {
	var all inventory
	for _, s := range bindingsFirst(client) {
		stored, _, err := s.list(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for _, o := range stored {
			if ofAFence(o) {
				all = append(all, object{o, s})
			}
		}
	}
	return all, nil
}

func ofAFence(o metav1.Object) bool {
	return strings.HasPrefix(o.GetName(), fence.PolicyPrefix) || o.GetLabels()[fence.SetLabel] != ""
}

// conflicts returns an error for each lock that another set guards, or that this set guards for entirely different
// accounts.
func (all inventory) conflicts(set fence.Set) error {
	var errs []error
	found := map[string]bool{}
	conflict := func(format string, args ...any) {
		if text := fmt.Sprintf(format, args...); !found[text] {
			found[text] = true
			errs = append(errs, errors.New(text))
		}
	}
	for _, o := range all {
		shared := o.shared(set)
		if len(shared) == 0 {
			continue
		}
		if !o.of(set.Name) {
			conflict("%s is already guarded by fence %q. A lock can belong to one fence only: remove that fence, or replace its guards with --replace",
				strings.Join(shared, ", "), o.set())
			continue
		}
		before := fence.Accounts(o)
		for _, p := range slices.Concat(set.Locks, set.Work) {
			after := fence.Accounts(p.Policy)
			same := slices.Equal(o.locks(), fence.Locks(p.Policy))
			if same && len(before) > 0 && !slices.ContainsFunc(before, func(a string) bool { return slices.Contains(after, a) }) {
				conflict("%s is guarded for %s, but the new service accounts are %s, so the current leader would be rejected. Correct --service-account, or confirm with --replace",
					strings.Join(shared, ", "), strings.Join(before, ", "), strings.Join(after, ", "))
			}
		}
	}
	return errors.Join(errs...)
}

// scopes returns an error for each guard that selects cluster-scoped objects by namespace.
func scopes(client kubernetes.Interface, set fence.Set) error {
	narrowed := slices.DeleteFunc(slices.Clone(set.Work), func(p fence.Pair) bool {
		within := p.Binding.Spec.MatchResources
		return within == nil || len(within.NamespaceSelector.MatchExpressions) == 0
	})
	if len(narrowed) == 0 {
		return nil
	}
	kinds, err := served(client)
	if err != nil {
		return fmt.Errorf("discover cluster-scoped kinds: %w", err)
	}
	var errs []error
	for _, p := range narrowed {
		for _, rule := range p.Policy.Spec.MatchConstraints.ResourceRules {
			for _, resource := range rule.Resources {
				main, _, _ := strings.Cut(resource, "/") // discovery has no subresources/*
				if k, known := kinds[schema.GroupResource{Group: rule.APIGroups[0], Resource: main}]; known && !k.namespaced {
					errs = append(errs, fmt.Errorf("%s guards %s by namespace, but they are cluster-scoped: use names or labels", strings.Join(fence.Locks(p.Policy), ", "), resource))
				}
			}
		}
	}
	return errors.Join(errs...)
}

// Remove removes a set, bindings before policies, and returns after the API servers have unloaded it. The permanent
// policies stay. Without them the API servers would stop their watch of the locks and not restart it.
func Remove(ctx context.Context, client kubernetes.Interface, set string, options ...Options) ([]Change, error) {
	if set == "" {
		return nil, errors.New("remove fence: the set has no name")
	}
	ours := func(o object) bool { return o.of(set) }
	changes, err := remove(ctx, client, ours)
	if err == nil && len(changes) > 0 {
		if err := seen(ctx, set, client, append(options, Options{})[0]); err != nil {
			return changes, fmt.Errorf("fence %q is removed, but API servers may still enforce it: %w", set, err)
		}
		_, err = remove(ctx, client, ours) // the barrier
	}
	if err != nil {
		err = fmt.Errorf("remove fence %q: %w", set, err)
	}
	return changes, err
}

// remove deletes the wanted objects, bindings first.
func remove(ctx context.Context, client kubernetes.Interface, wanted func(object) bool) ([]Change, error) {
	all, err := list(ctx, client)
	if err != nil {
		return nil, err
	}
	var changes []Change
	for _, o := range all {
		if !wanted(o) {
			continue
		}
		uid := o.GetUID()
		err := o.delete(ctx, o.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
		if err != nil && !apierrors.IsNotFound(err) {
			return changes, fmt.Errorf("%s %s: %w", o.kind, o.GetName(), err)
		}
		if !strings.HasPrefix(o.GetName(), barrierPrefix(o.set())) {
			changes = append(changes, Change{"removed", o.kind, o.GetName()})
		}
	}
	return changes, nil
}
