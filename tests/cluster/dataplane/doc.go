// Command dataplane replaces Envoy in the Pods of Gateways. It uses no control plane and has no routes: it responds to every request.
// Port 15021 reports readiness, as in istio-proxy. On SIGTERM it finishes open requests. With LINGER it accepts new requests for
// that time first.
package main
