// Package bootstrap builds a server from a configuration, starts its parts in order and stops them in reverse order. It is
// the only package that imports all others.
//
// The HTTP server and the elections page start first, then the services of each cluster, such as the watcher of the default
// revision and the self-test of the fence, and at last the elections. Server.parts and site.services define the order.
//
// Each part has started before the next one starts. On stop, each part has ended or exceeded its bound before the previous
// one is canceled. So run functions have drained and locks are released while health and metrics still answer. If a part
// cannot start, the parts before it are stopped.
//
// The server starts without the API server and waits for it.
package bootstrap
