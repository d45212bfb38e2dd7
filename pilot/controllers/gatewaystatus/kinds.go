package gatewaystatus

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/rest"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
	versioned "sigs.k8s.io/gateway-api/pkg/client/clientset/versioned/typed/apis/v1"

	"incumbent.dev/incumbent/pilot/controllers/reconcile"
)

var routeVersion = schema.GroupVersion(gateway.GroupVersion)

// routeKinds maps the kinds of routes to their resources. A kind is served if the API server has its
// CustomResourceDefinition.
var routeKinds = map[string]string{
	"GRPCRoute": "grpcroutes", "HTTPRoute": "httproutes", "TCPRoute": "tcproutes", "TLSRoute": "tlsroutes", "UDPRoute": "udproutes",
}

// protocolKinds maps the protocols of listeners to the kinds of routes that they support, in alphabetical order.
var protocolKinds = map[gateway.ProtocolType][]string{
	gateway.HTTPProtocolType:  {"GRPCRoute", "HTTPRoute"},
	gateway.HTTPSProtocolType: {"GRPCRoute", "HTTPRoute"},
	gateway.TLSProtocolType:   {"TCPRoute", "TLSRoute"}, // without TCPRoute for Passthrough
	gateway.TCPProtocolType:   {"TCPRoute"},
	gateway.UDPProtocolType:   {"UDPRoute"},
}

// kindsOf returns the kinds of routes that a listener supports by its protocol.
func kindsOf(l gateway.Listener) []string {
	kinds := protocolKinds[l.Protocol]
	if l.Protocol == gateway.TLSProtocolType && !terminates(l) {
		return []string{"TLSRoute"}
	}
	return kinds
}

// route is a route of any kind, with the fields that affect its status. These fields have the same names in
// all kinds.
type route struct {
	metav1.TypeMeta
	metav1.ObjectMeta `json:"metadata"`
	Spec              routeSpec           `json:"spec"`
	Status            gateway.RouteStatus `json:"status"`
}

type routeSpec struct {
	gateway.CommonRouteSpec
	Hostnames []gateway.Hostname `json:"hostnames,omitempty"`
	Rules     []routeRule        `json:"rules,omitempty"`
}

type routeRule struct {
	Filters     []routeFilter  `json:"filters,omitempty"`
	BackendRefs []routeBackend `json:"backendRefs,omitempty"`
}

type routeBackend struct {
	gateway.BackendObjectReference
	Filters []routeFilter `json:"filters,omitempty"`
}

type routeFilter struct {
	Type          gateway.HTTPRouteFilterType      `json:"type"`
	RequestMirror *gateway.HTTPRequestMirrorFilter `json:"requestMirror,omitempty"`
	ExtensionRef  *gateway.LocalObjectReference    `json:"extensionRef,omitempty"`
}

// filterTypes are the types of filters that routes can have, in all kinds.
var filterTypes = []gateway.HTTPRouteFilterType{
	gateway.HTTPRouteFilterRequestHeaderModifier, gateway.HTTPRouteFilterResponseHeaderModifier, gateway.HTTPRouteFilterRequestRedirect,
	gateway.HTTPRouteFilterURLRewrite, gateway.HTTPRouteFilterRequestMirror, gateway.HTTPRouteFilterCORS, gateway.HTTPRouteFilterExtensionRef,
}

// DeepCopyObject returns a copy. The specification is shared, because the controller never changes it.
func (r *route) DeepCopyObject() runtime.Object {
	copied := *r
	r.ObjectMeta.DeepCopyInto(&copied.ObjectMeta)
	r.Status.DeepCopyInto(&copied.Status)
	return &copied
}

type routeList struct {
	metav1.TypeMeta
	metav1.ListMeta `json:"metadata"`
	Items           []*route `json:"items"`
}

// DeepCopyObject returns a copy.
func (l *routeList) DeepCopyObject() runtime.Object {
	copied := *l
	copied.Items = slices.Clone(l.Items)
	return &copied
}

// routeClient reads and patches the routes of a kind.
type routeClient interface {
	reconcile.Reader[*routeList]
	Patch(ctx context.Context, name string, kind types.PatchType, body []byte, options metav1.PatchOptions, subresources ...string) (*route, error)
}

// clients are the clients of the Gateway API.
type clients struct {
	versioned.GatewayV1Interface
	// routes returns the client for the routes of a resource in a namespace, or in all namespaces for "".
	routes func(resource, namespace string) routeClient
}

// connect returns clients with common connections.
func connect(config *rest.Config) (clients, error) {
	http, err := rest.HTTPClientFor(config)
	if err != nil {
		return clients{}, err
	}
	api, err := versioned.NewForConfigAndClient(config, http)
	if err != nil {
		return clients{}, err
	}
	known := routeScheme()
	own := rest.CopyConfig(config)
	own.GroupVersion, own.APIPath = &routeVersion, "/apis"
	own.NegotiatedSerializer = rest.CodecFactoryForGeneratedClient(known, serializer.NewCodecFactory(known)).WithoutConversion()
	client, err := rest.RESTClientForConfigAndClient(own, http)
	if err != nil {
		return clients{}, err
	}
	return clients{api, func(resource, namespace string) routeClient {
		return gentype.NewClientWithList(resource, client, runtime.NewParameterCodec(known), namespace,
			func() *route { return &route{} }, func() *routeList { return &routeList{} })
	}}, nil
}

// routeScheme returns a scheme that gives all kinds of routes the same type.
func routeScheme() *runtime.Scheme {
	known := runtime.NewScheme()
	metav1.AddToGroupVersion(known, routeVersion)
	for kind := range routeKinds {
		known.AddKnownTypeWithName(routeVersion.WithKind(kind), &route{})
		known.AddKnownTypeWithName(routeVersion.WithKind(kind+"List"), &routeList{})
	}
	return known
}
