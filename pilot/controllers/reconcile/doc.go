// Package reconcile is what controllers have in common: caches of the cluster, a queue of
// keys with back-off, and writes that are not repeated from a cache which does not show them yet.
//
// What is special in a controller is its kinds, and one pure function from what the caches
// show to the object that there should be:
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
//			return nil // what the cache shows next has it looked at again
//		}
//		wanted := … // a pure function
//		if equality.Semantic.DeepEqual(have, wanted) {
//			return nil
//		}
//		got, err := c.loop.Client().Kube().NetworkingV1().Ingresses(have.Namespace).UpdateStatus(ctx, wanted, metav1.UpdateOptions{})
//		return ingress.Answered(have, got, err)
//	}
//
// Warm fills the caches, which stay until Close; Run works until its context ends, and returns
// when no write is under way. Both may be called again. Writes go through Client, whose
// requests are waited for; other clientsets are made of its RESTConfig.
//
// A key is looked at when Run begins, and when something changes that its kinds keep: what Keep
// drops costs no memory, and no try beside the back-off of a key that fails. Failures are logged
// once per kind. An object that another writer changes back as often as it is written is written less
// and less often. A kind that the API server does not know, because its
// CustomResourceDefinition is missing, is waited for, and said once.
package reconcile
