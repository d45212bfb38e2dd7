// Package gatewaydeploy deploys Gateways of the Gateway API: it creates a ServiceAccount, a Service and
// a Deployment for each Gateway from a template, and an autoscaler and a budget on request.
//
// decide is a pure function with all rules. From a Gateway and the caches it computes the desired
// objects and one action for each:
//
//	missing                               create
//	managed and different                 apply, guarded by the version that was read
//	managed and up to date                none
//	not managed, or of another Gateway    none, and a Problem is reported
//
// An object is managed if it has the label gateway.istio.io/managed. A missing object is never
// applied, because an apply would adopt an object that another client created in between. Names,
// annotations and labels are the same as in Istio, so that istiod and this controller can take turns.
//
// An object is up to date if its annotation incumbent.dev/applied shows that the same document was
// written last, and if this controller still owns each field with its value. The API server tracks
// the owners in managedFields: a field that another client changes becomes owned by that client.
// Fields that others add stay.
//
// The API server records the fields of a create and of an apply as different owners. Before the first
// apply, a separate patch converts the entry of the create; otherwise an apply could not remove
// fields. The controller can be interrupted between any two writes.
//
// A problem with a Gateway, its parameters, the template or an existing object is reported once, in
// an Event on the Gateway and in the log. An annotation of the Gateway holds the current problems for
// package gatewaystatus, which writes the conditions. Problems do not affect deployed objects.
// Former objects of a Gateway are deleted when the current objects serve.
//
// The controller does not depend on elections. It gets a client, and a context that ends when it
// must stop writing:
//
//	c, err := gatewaydeploy.New(client, gatewaydeploy.Config{Namespace: "istio-system"})
//	err = c.Warm(ctx) // optional: fills the caches, which stay until Close
//	err = c.Run(ctx)  // returns after ctx is done and all writes have ended
//	c.Close()
package gatewaydeploy
