// Package namespace keeps the mesh's CA bundle in every namespace, for workloads there to
// trust: ConfigMap istio-ca-root-cert, key root-cert.pem.
//
// What it keeps is that one key. It makes the ConfigMap where it is missing, repairs
// the key where it differs, and leaves all else on the object as others put it. It
// follows changes of the bundle's file, including a swap of symlinks as the kubelet
// does it; a file that is not a bundle of certificates is reported, and the last good
// one stays in force. Namespaces that are excluded or on their way out are left alone.
//
// The controller knows nothing of elections. It gets a client and, for as long as it
// may write, a context:
//
//	c, err := namespace.New(client, namespace.Config{BundleFile: path})
//	err = c.Warm(ctx) // optional: fills caches, which stay until Close
//	err = c.Run(ctx)  // returns when ctx has ended and no write is under way
//	c.Close()
package namespace
