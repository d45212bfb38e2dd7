package controllerruntime

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"incumbent.dev/incumbent/pilot/leaderelection/gate"
)

// GatedClient returns the NewClient option of a manager whose client can write only while the gate is open. Caches, Events and the
// API reader of the manager have no gate. NewManager sets it.
func GatedClient(gate *gate.Gate) client.NewClientFunc {
	return func(config *rest.Config, options client.Options) (client.Client, error) {
		httpClient := options.HTTPClient
		var err error
		if httpClient == nil {
			if httpClient, err = rest.HTTPClientFor(config); err != nil {
				return nil, fmt.Errorf("create gated client: %w", err)
			}
		}
		if options.HTTPClient, err = gatedHTTP(gate, httpClient); err != nil {
			return nil, fmt.Errorf("create gated client: %w", err)
		}
		return client.New(config, options)
	}
}

// gatedHTTP returns a copy of an HTTP client with the gate.
func gatedHTTP(gate *gate.Gate, from *http.Client) (*http.Client, error) {
	if gate == nil {
		return nil, errors.New("gate is nil. Use the Gate of the election")
	}
	gated := *from
	if gated.Transport == nil {
		gated.Transport = http.DefaultTransport
	}
	gated.Transport = gate.Transport(gated.Transport)
	return &gated, nil
}

// IgnoreNotLeader returns a reconciler that does nothing after the end of its context, and that does not report writes that failed
// because the term ended. The next leader reconciles all objects, so a retry or an error in the log is of no use.
func IgnoreNotLeader[request comparable](reconciler reconcile.TypedReconciler[request]) reconcile.TypedReconciler[request] {
	return reconcile.TypedFunc[request](func(ctx context.Context, r request) (reconcile.Result, error) {
		if ctx.Err() != nil {
			return reconcile.Result{}, nil
		}
		result, err := reconciler.Reconcile(ctx, r)
		if errors.Is(err, gate.ErrNotLeader) || ctx.Err() != nil && errors.Is(err, gate.ErrOutcomeUnknown) {
			return reconcile.Result{}, nil
		}
		return result, err
	})
}

// GatedFake returns a client for unit tests whose writes pass the gate. Reads always succeed.
func GatedFake(gate *gate.Gate, fake client.WithWatch) client.WithWatch {
	return interceptor.NewClient(fake, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			return gate.Do(ctx, func(ctx context.Context) error { return c.Create(ctx, obj, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			return gate.Do(ctx, func(ctx context.Context) error { return c.Delete(ctx, obj, opts...) })
		},
		DeleteAllOf: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteAllOfOption) error {
			return gate.Do(ctx, func(ctx context.Context) error { return c.DeleteAllOf(ctx, obj, opts...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.UpdateOption) error {
			return gate.Do(ctx, func(ctx context.Context) error { return c.Update(ctx, obj, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			return gate.Do(ctx, func(ctx context.Context) error { return c.Patch(ctx, obj, patch, opts...) })
		},
		Apply: func(ctx context.Context, c client.WithWatch, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			return gate.Do(ctx, func(ctx context.Context) error { return c.Apply(ctx, obj, opts...) })
		},
		SubResourceCreate: func(ctx context.Context, c client.Client, name string, obj, sub client.Object, opts ...client.SubResourceCreateOption) error {
			return gate.Do(ctx, func(ctx context.Context) error { return c.SubResource(name).Create(ctx, obj, sub, opts...) })
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, name string, obj client.Object, opts ...client.SubResourceUpdateOption) error {
			return gate.Do(ctx, func(ctx context.Context) error { return c.SubResource(name).Update(ctx, obj, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, name string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			return gate.Do(ctx, func(ctx context.Context) error { return c.SubResource(name).Patch(ctx, obj, patch, opts...) })
		},
		SubResourceApply: func(ctx context.Context, c client.Client, name string, obj runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
			return gate.Do(ctx, func(ctx context.Context) error { return c.SubResource(name).Apply(ctx, obj, opts...) })
		},
	})
}
