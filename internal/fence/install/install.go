package install

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"

	"incumbent.dev/incumbent/internal/apirequest"
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

// Options configure Apply and Remove. The zero value is valid.
type Options struct {
	// Servers are further API servers. Apply removes old objects only after all servers have loaded the new ones.
	Servers []kubernetes.Interface
	// Replace lets Apply replace the guards of other sets for the same locks, and all service accounts of a set.
	Replace bool
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
	mine := accounts(set)
	obsolete, err := remove(ctx, client, func(was object) bool {
		locks := fence.Locks(was)
		taken := o.Replace && len(locks) > 0 && !slices.ContainsFunc(locks, func(lock string) bool { return mine[lock] == nil })
		return (was.set() == set.Name || taken) && !slices.ContainsFunc(rest, func(p fence.Pair) bool { return p.Name() == was.GetName() })
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

func (a *applier) policy(p fence.Pair)  { a.apply(policyOf(a.client, p)) }
func (a *applier) binding(p fence.Pair) { a.apply(bindingOf(a.client, p)) }

func (a *applier) apply(o object) {
	if a.err != nil {
		return
	}
	change, err := o.write(a.ctx)
	if err != nil {
		a.err = fmt.Errorf("%s %s: %w", o.kind, o.GetName(), err)
		return
	}
	a.changes = append(a.changes, change)
}

// mostConflicts is the maximum number of attempts to write an object while other clients change it.
const mostConflicts = 10

// write makes the stored object equal to the rendered one. Metadata of other clients stays.
func (o object) write(ctx context.Context) (Change, error) {
	var err error
	for range mostConflicts {
		var before storable
		before, err = o.get(ctx, o.GetName())
		switch {
		case err == nil && o.exact(before):
			return Change{"unchanged", o.kind, o.GetName()}, nil
		case err == nil:
			err = o.update(ctx, o.over(before))
		case apierrors.IsNotFound(err):
			err = o.create(ctx, o.storable)
		default:
			return Change{}, err
		}
		if !apirequest.Outdated(err) {
			break // otherwise another client changed it concurrently
		}
	}
	if err != nil {
		return Change{}, err
	}
	return Change{"applied", o.kind, o.GetName()}, nil
}

// over returns the rendered object as the next version of a stored one.
func (o object) over(before storable) storable {
	next := o.DeepCopyObject().(storable)
	next.SetResourceVersion(before.GetResourceVersion())
	next.SetOwnerReferences(before.GetOwnerReferences())
	next.SetFinalizers(before.GetFinalizers())
	next.SetLabels(labels.Merge(before.GetLabels(), o.GetLabels()))
	next.SetAnnotations(labels.Merge(before.GetAnnotations(), o.GetAnnotations()))
	return next
}

// differs returns the differences between a pair and the installed objects.
func differs(ctx context.Context, client kubernetes.Interface, p fence.Pair) ([]string, error) {
	var found []string
	for _, o := range []object{policyOf(client, p), bindingOf(client, p)} {
		stored, err := o.get(ctx, p.Name())
		switch {
		case apierrors.IsNotFound(err):
			found = append(found, o.kind+" is missing")
		case err != nil:
			return nil, err
		case !o.exact(stored):
			found = append(found, o.kind+" was changed")
		}
	}
	return found, nil
}
