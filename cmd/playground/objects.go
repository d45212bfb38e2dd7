package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// madeObject is one that the playground has put into the cluster.
type madeObject struct {
	resource        schema.GroupVersionResource
	namespace, name string
}

func (p madeObject) String() string {
	if p.namespace == "" {
		return p.resource.Resource + " " + p.name
	}
	return fmt.Sprintf("%s %s/%s", p.resource.Resource, p.namespace, p.name)
}

// objects keeps what was put into the cluster, to take it away again.
type objects struct {
	client dynamic.Interface
	made   []madeObject
}

// make creates objects. One that is there already is somebody else's: it stays as it
// is, and that is an error.
func (p *objects) make(ctx context.Context, wanted ...runtime.Object) error {
	for _, object := range wanted {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			return fmt.Errorf("encoding an object: %w", err)
		}
		u := &unstructured.Unstructured{Object: content}
		// Right for every kind of object that is made here but one.
		resource, _ := meta.UnsafeGuessKindToResource(u.GroupVersionKind())
		if u.GetKind() == "Gateway" {
			resource.Resource = "gateways"
		}
		it := madeObject{resource, u.GetNamespace(), u.GetName()}
		_, err = p.of(it).Create(ctx, u, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("the cluster has %v already, which is left alone: use a cluster without a control plane", it)
		}
		if err != nil {
			return fmt.Errorf("creating %v: %w", it, err)
		}
		p.made = append(p.made, it)
	}
	return nil
}

// fencesGo bounds the wait for API servers that go by a fence which was taken away.
const fencesGo = 10 * time.Second

// afterFences deletes an object. For a second after a fence is uninstalled the API server goes by it still.
func afterFences(ctx context.Context, remove func() error) error {
	ctx, cancel := context.WithTimeout(ctx, fencesGo)
	defer cancel()
	for {
		err := remove()
		if !apierrors.IsForbidden(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// remove deletes what was made and is of these resources, or everything for none;
// last made, first deleted.
func (p *objects) remove(ctx context.Context, resources ...string) error {
	var errs []error
	background := metav1.DeletePropagationBackground
	var kept []madeObject
	for _, it := range slices.Backward(p.made) {
		if len(resources) > 0 && !slices.Contains(resources, it.resource.Resource) {
			kept = append(kept, it)
			continue
		}
		remove := func() error {
			return p.of(it).Delete(ctx, it.name, metav1.DeleteOptions{PropagationPolicy: &background})
		}
		if err := afterFences(ctx, remove); err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("deleting %v: %w", it, err))
		}
	}
	slices.Reverse(kept)
	p.made = kept
	return errors.Join(errs...)
}

func (p *objects) of(it madeObject) dynamic.ResourceInterface {
	if it.namespace == "" {
		return p.client.Resource(it.resource)
	}
	return p.client.Resource(it.resource).Namespace(it.namespace)
}
