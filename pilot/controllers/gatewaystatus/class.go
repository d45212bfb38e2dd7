package gatewaystatus

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/gateway-api/pkg/features"
)

// ClassName is the class that is made when there is none of that name.
const ClassName = "istio"

// newClass is the class that is made.
func newClass() *gateway.GatewayClass {
	description := "Gateways whose proxies are deployed for them"
	return &gateway.GatewayClass{
		ObjectMeta: metav1.ObjectMeta{Name: ClassName},
		Spec:       gateway.GatewayClassSpec{ControllerName: ControllerName, Description: &description},
	}
}

// supportedFeatures are those whose rules statuses follow, in the order of their names.
func supportedFeatures() []gateway.SupportedFeature {
	var all []gateway.SupportedFeature
	for _, name := range []features.FeatureName{
		features.SupportGateway, features.SupportGatewayAddressEmpty, features.SupportGatewayInfrastructure,
		features.SupportGatewayPort8080, features.SupportHTTPRoute, features.SupportHTTPRouteParentRefPort,
		features.SupportReferenceGrant,
	} {
		all = append(all, gateway.SupportedFeature{Name: gateway.FeatureName(name)})
	}
	return all
}

// classStatus is what the status of a class should be, without times.
func classStatus(class *gateway.GatewayClass) gateway.GatewayClassStatus {
	accepted := condition(gateway.GatewayClassConditionStatusAccepted, true, gateway.GatewayClassReasonAccepted,
		"Gateways of this class are served", class.Generation)
	if class.Spec.ParametersRef != nil {
		accepted = condition(gateway.GatewayClassConditionStatusAccepted, false, gateway.GatewayClassReasonInvalidParameters,
			"this controller knows no parameters of a class: leave out parametersRef", class.Generation)
	}
	return gateway.GatewayClassStatus{Conditions: []metav1.Condition{accepted}, SupportedFeatures: supportedFeatures()}
}
