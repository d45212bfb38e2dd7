// Package gatewaystatus writes the status of GatewayClasses, Gateways and routes of the Gateway API.
//
// It serves classes with the controllerName istio.io/gateway-controller, and creates the class istio
// if it is missing. The label istio.io/rev of a Gateway or of its namespace determines the
// revision that writes its status and the entries for it in the status of routes. The revision of a
// route has no effect. The controller translates no routes: Accepted follows the rules
// of the Gateway API. Programmed means that the Gateway's own Deployment is available and its Service
// has an address and the ports.
//
// The pure functions classStatus, gatewayStatus and routeParents compute a status from a view, which
// is the caches or a table in tests.
//
// The list status.parents of a route contains the entries of all controllers, and the API
// server cannot track owners of entries: a server-side apply would replace the whole list. The
// controller therefore patches single entries, guarded by resourceVersion.
package gatewaystatus
