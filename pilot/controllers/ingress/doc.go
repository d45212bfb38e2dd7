// Package ingress writes the addresses of the gateway's Service into the status of every Ingress of
// a class.
//
// Mode selects the Ingresses by Istio's rule. The revision label has no effect: one leader of any
// revision writes for all, so an Ingress that it skipped would never get a status. Two
// installations in one cluster need different classes; otherwise they overwrite each other.
//
// The controller writes a status only if it differs, guarded by the version of the Ingress that it
// read. An Ingress that leaves the class keeps its status for its next controller. All Ingresses
// keep their status while the Service does not exist.
//
// The controller does not depend on elections. It gets a client, and a context that ends when it
// must stop writing:
//
//	c, err := ingress.New(client, ingress.Config{Mode: ingress.Strict, Class: "istio", Service: service})
//	err = c.Warm(ctx) // optional: fills the caches, which stay until Close
//	err = c.Run(ctx)  // returns after ctx is done and all writes have ended
//	c.Close()
package ingress
