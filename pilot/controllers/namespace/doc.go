// Package namespace distributes the mesh's CA bundle to every namespace, in the key
// root-cert.pem of the ConfigMap istio-ca-root-cert.
//
// The controller manages that key only. It creates a missing ConfigMap and repairs a changed
// key, and keeps all other content. It follows changes of the bundle file, including the
// symlink swap of the kubelet. If the file is not a valid bundle, the controller logs an error
// and keeps the last valid bundle. It skips excluded and terminating namespaces.
//
// The controller does not depend on elections. It gets a client, and a context that ends when
// it must stop writing:
//
//	c, err := namespace.New(client, namespace.Config{BundleFile: path})
//	err = c.Warm(ctx) // optional: fills the caches, which stay until Close
//	err = c.Run(ctx)  // returns after ctx is done and all writes have ended
//	c.Close()
package namespace
