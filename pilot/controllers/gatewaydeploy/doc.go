// Package gatewaydeploy makes what a Gateway of the Gateway API needs to run: a ServiceAccount, a Service and a
// Deployment, from a template.
//
// Decide is the whole of its rules, a pure function: from a Gateway and what the caches show to the wanted objects,
// and to what is done with each of them.
//
//	there is none                         create
//	ours, and not as wanted               apply, guarded by the version that was read
//	ours, and as wanted                   nothing
//	without label, or another Gateway's   nothing, and a Problem that says so
//
// Ours is what has the label gateway.istio.io/managed. Nothing there is never answered with an apply: that would take
// over what somebody makes meanwhile. Names, annotations and labels are Istio's, so that istiod and this controller can
// take turns: what the one made is ours to the other.
//
// As wanted is an object that was written last when the same was wanted (annotation incumbent.dev/applied), and in which
// each wanted field is still ours and has its value: the API server notes owners of fields (managedFields), and a
// field that somebody else changes is that one's from then on. Fields that others add are theirs, and stay.
//
// A create is noted as another owner than an apply of the same name. Before the first apply the one becomes the other, by
// a patch of its own, else what is not wanted any more would stay. Interrupted between any two writes, the next try goes on
// where it ended.
//
// What is wrong with a Gateway, its parameters, the template or an object of its name is said once, in an Event on the
// Gateway and in the log, and harms nothing that is deployed. Objects of a name that a Gateway had before stay until the
// Gateway is deleted.
//
// The controller knows nothing of elections. It gets a client and, for as long as it may write, a context:
//
//	c, err := gatewaydeploy.New(client, gatewaydeploy.Config{Namespace: "istio-system"})
//	err = c.Warm(ctx) // optional: fills caches, which stay until Close
//	err = c.Run(ctx)  // returns when ctx has ended and no write is under way
//	c.Close()
package gatewaydeploy
