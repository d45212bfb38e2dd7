package reconcile_test

import (
	"context"
	"fmt"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"incumbent.dev/incumbent/internal/testutil/apiserver"
	"incumbent.dev/incumbent/pilot/controllers/reconcile"
	"incumbent.dev/incumbent/pkg/kube"
)

// controller writes the status of Ingresses.
type controller struct {
	loop      *reconcile.Controller[types.NamespacedName]
	ingresses *reconcile.Cache[types.NamespacedName, *networkingv1.Ingress]
}

func newController(client kube.Client) (*controller, error) {
	c := &controller{}
	var err error
	c.loop, err = reconcile.New(client, reconcile.Config[types.NamespacedName]{
		Name: "ingress controller", Reconcile: c.reconcile, Idle: "no status is written",
	})
	if err != nil {
		return nil, err
	}
	c.ingresses = reconcile.Watch(c.loop, reconcile.Kind[types.NamespacedName, *networkingv1.Ingress]{
		Name: "ingresses", From: reconcile.From(c.loop.Client().Kube().NetworkingV1().Ingresses(""), reconcile.Selector{}),
		Keys: func(i *networkingv1.Ingress) []types.NamespacedName {
			return []types.NamespacedName{{Namespace: i.Namespace, Name: i.Name}}
		},
	})
	return c, nil
}

func (c *controller) reconcile(ctx context.Context, key types.NamespacedName) error {
	ingress := c.ingresses.At(key, reconcile.Ref{Namespace: key.Namespace, Name: key.Name})
	have, known := ingress.Latest()
	if !known || have == nil {
		return nil // a later event causes another reconcile
	}
	want := desired(have)
	if equality.Semantic.DeepEqual(have, want) {
		return nil
	}
	got, err := c.loop.Client().Kube().NetworkingV1().Ingresses(have.Namespace).UpdateStatus(ctx, want, metav1.UpdateOptions{})
	return ingress.Answered(have, got, err, "write status")
}

// desired is a pure function.
func desired(have *networkingv1.Ingress) *networkingv1.Ingress { return have.DeepCopy() }

func ExampleNew() {
	client, err := kube.NewClient(apiserver.New().Config()) // an API server in memory, for the example
	if err != nil {
		panic(err)
	}
	c, err := newController(client)
	if err != nil {
		panic(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	if err := c.loop.Warm(ctx); err != nil { // before this process leads
		panic(err)
	}
	defer c.loop.Close()
	stop()
	fmt.Println(c.loop.Run(ctx)) // while this process leads
	// Output: <nil>
}
