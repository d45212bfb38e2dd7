// Package gatewaystatus writes the status of the Gateway API's objects: GatewayClass, Gateway and
// HTTPRoute.
//
// It writes for classes whose controllerName is istio.io/gateway-controller, and makes the class
// istio when there is none of that name. Of Gateways and HTTPRoutes it writes to those that its
// revision has, by their label istio.io/rev or that of their namespace. No route is translated:
// Accepted says what the Gateway API's rules say, and Programmed that the Gateway's own Deployment
// is available and its Service has an address, ports included.
//
// What a status should be is told by functions without side effects, of a view of the cluster:
// classStatus, gatewayStatus and routeParents. A view is the caches, or a test's table.
//
// HTTPRoute's status.parents is one list of all controllers' entries, of which an API server knows
// no owners: server-side apply would replace it as a whole. So it is patched entry by entry,
// guarded by resourceVersion, and entries of other controllers stay as they are stored.
package gatewaystatus
