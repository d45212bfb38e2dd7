// Package reconcile contains the common parts of the controllers: caches, a queue of keys with
// back-off, and protection against repeated writes from a stale cache.
//
// A controller declares its kinds and computes the desired object from the caches in a pure
// function:
//
//	c.loop, err = reconcile.New(client, reconcile.Config[string]{
//		Name: "ingress controller", Reconcile: c.reconcile, Idle: "no status is written",
//	})
//	c.ingresses = reconcile.Watch(c.loop, reconcile.Kind[string, *networkingv1.Ingress]{
//		Name: "ingresses", From: reconcile.From(client.Kube().NetworkingV1().Ingresses(""), reconcile.Selector{}),
//		Keys: func(i *networkingv1.Ingress) []string { return []string{i.Namespace + "/" + i.Name} },
//	})
//
//	func (c *Controller) reconcile(ctx context.Context, key string) error {
//		ingress := c.ingresses.At(key, reconcile.Ref{Namespace: …, Name: …})
//		have, known := ingress.Latest()
//		if !known || have == nil {
//			return nil // a later event causes another reconcile
//		}
//		wanted := … // computed by a pure function
//		if equality.Semantic.DeepEqual(have, wanted) {
//			return nil
//		}
//		got, err := c.loop.Client().Kube().NetworkingV1().Ingresses(have.Namespace).UpdateStatus(ctx, wanted, metav1.UpdateOptions{})
//		return ingress.Answered(have, got, err)
//	}
//
// Warm fills the caches, which stay until Close. Run reconciles until its context is done and
// returns after all writes have ended. Both can be called again. All writes use Client, so that Run
// can wait for them.
//
// A key is reconciled when Run starts and when a kept field of an object changes. Fields that Keep
// drops use no memory and do not bypass the back-off of a failing key. Failures are logged once per
// reason. If another writer keeps reverting an object, the controller repairs it less and less
// often. If the API server does not serve a kind, the controller logs this once and waits for the
// CustomResourceDefinition.
package reconcile
