package install

import (
	"context"
	"errors"
	"fmt"
	"maps"
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

// set returns the name of the object's set: by its name, or by its label, which other users can remove.
func (o object) set() string {
	rest := strings.TrimPrefix(o.GetName(), fence.PolicyPrefix)
	if set, _, found := strings.Cut(rest, "."); found && rendered.MatchString(rest) {
		return set
	}
	return o.GetLabels()[fence.SetLabel]
}

// accounts returns the service accounts of the candidates of a set, by lock.
func accounts(set fence.Set) map[string][]string {
	var policies []metav1.Object
	for _, p := range slices.Concat(set.Locks, set.Work) {
		policies = append(policies, p.Policy)
	}
	return fence.Accounts(policies...)
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
	mine := accounts(set)
	for _, o := range all {
		others := fence.Accounts(o)
		for _, lock := range slices.Sorted(maps.Keys(others)) {
			before, after := others[lock], mine[lock]
			var text string
			switch {
			case after == nil:
			case o.set() != set.Name:
				text = fmt.Sprintf("%s is already guarded by fence %q. A lock can belong to one fence only: remove that fence, or replace its guards with --replace", lock, o.set())
			case !slices.ContainsFunc(before, func(a string) bool { return slices.Contains(after, a) }):
				text = fmt.Sprintf("%s is guarded for %s, but the new service accounts are %s, so the current leader would be rejected. Correct --service-account, or confirm with --replace",
					lock, strings.Join(before, ", "), strings.Join(after, ", "))
			}
			if text != "" && !found[text] {
				found[text] = true
				errs = append(errs, errors.New(text))
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
	ours := func(o object) bool { return o.set() == set }
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
