package gatewaystatus

import (
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/gateway-api/pkg/features"

	"incumbent.dev/incumbent/pilot/controllers/reconcile"
)

// newClass returns the class to create.
func newClass() *gateway.GatewayClass {
	return &gateway.GatewayClass{
		ObjectMeta: metav1.ObjectMeta{Name: reconcile.GatewayClass},
		Spec:       gateway.GatewayClassSpec{ControllerName: reconcile.GatewayController, Description: new("Gateways with automatically deployed proxies")},
	}
}

// supportedFeatures returns the features that the status follows, sorted by name.
func supportedFeatures() []gateway.SupportedFeature {
	var all []gateway.SupportedFeature
	for _, name := range []features.FeatureName{
		features.SupportGateway, features.SupportGatewayAddressEmpty, features.SupportGatewayInfrastructure,
		features.SupportGatewayPort8080, features.SupportHTTPRoute, features.SupportHTTPRouteParentRefPort,
		features.SupportReferenceGrant, features.SupportTCPRoute, features.SupportTLSRoute, features.SupportTLSRouteModeTerminate,
		features.SupportUDPRoute,
	} {
		all = append(all, gateway.SupportedFeature{Name: gateway.FeatureName(name)})
	}
	return all
}

// judged reports whether a controller has accepted or rejected the current generation of a class. All revisions
// then leave its status to the default revision, because their versions may disagree.
func judged(class *gateway.GatewayClass) bool {
	accepted := apimeta.FindStatusCondition(class.Status.Conditions, string(gateway.GatewayClassConditionStatusAccepted))
	return accepted != nil && accepted.Status != metav1.ConditionUnknown && accepted.ObservedGeneration == class.Generation
}

// classStatus returns the desired status of a class, without times.
func classStatus(class *gateway.GatewayClass) gateway.GatewayClassStatus {
	accepted := condition(gateway.GatewayClassConditionStatusAccepted, true, gateway.GatewayClassReasonAccepted,
		"Gateways of this class are served", class.Generation)
	if class.Spec.ParametersRef != nil {
		accepted = condition(gateway.GatewayClassConditionStatusAccepted, false, gateway.GatewayClassReasonInvalidParameters,
			"parameters of a class are not supported; remove parametersRef", class.Generation)
	}
	return gateway.GatewayClassStatus{Conditions: []metav1.Condition{accepted}, SupportedFeatures: supportedFeatures()}
}
