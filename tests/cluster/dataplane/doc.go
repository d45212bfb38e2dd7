// Command dataplane is what the Pods of Gateways run here: a stand-in for Envoy, of which there is none to be had. It
// takes part in no control plane and knows no routes: every request goes to one backend, or is answered
// with 404 when there is none. Like istio's proxy it says on port 15021 whether it is ready. On SIGTERM it finishes
// what it has begun; with LINGER it serves for that long before, for those who do not know yet that it goes.
package main
