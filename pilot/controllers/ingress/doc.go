// Package ingress writes into the status of every Ingress of a class at which addresses it is
// served: those of the gateway's Service.
//
// Which Ingresses these are goes by Istio's rule (Mode), and by nothing else: not by a revision's
// label. One leader of any revision writes for all, so whatever it passed over would stay without
// a status for good. Two installations in one cluster need two classes, else they overwrite
// each other.
//
// The status is written with the version of the Ingress that it was decided on, and only
// where it differs. One that is of the class no more keeps what it has, for its next
// controller; and so do all while the Service does not exist.
//
// The controller knows nothing of elections. It gets a client and, for as long as it may
// write, a context:
//
//	c, err := ingress.New(client, ingress.Config{Mode: ingress.Strict, Class: "istio", Service: service})
//	err = c.Warm(ctx) // optional: fills caches, which stay until Close
//	err = c.Run(ctx)  // returns when ctx has ended and no write is under way
//	c.Close()
package ingress
