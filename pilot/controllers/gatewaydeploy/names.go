package gatewaydeploy

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
)

// What Istio calls things. Deployments in the field carry these names.
const (
	// ControllerName is how a GatewayClass names this controller, and the field manager of what is applied.
	ControllerName = "istio.io/gateway-controller"
	// DefaultClass is ours although no GatewayClass of that name exists.
	DefaultClass = "istio"
	// ManagedLabel marks what was made for a Gateway; its value is ManagedBy. What lacks it is left alone.
	ManagedLabel = "gateway.istio.io/managed"
	ManagedBy    = "istio.io-gateway-controller"
	// GatewayLabel and ClassLabel name the Gateway and its class on what was made for it.
	GatewayLabel = "gateway.networking.k8s.io/gateway-name"
	ClassLabel   = "gateway.networking.k8s.io/gateway-class-name"
	// ClassDefaultsLabel, on a ConfigMap in the system namespace, names the class whose Gateways it is an overlay of.
	ClassDefaultsLabel = "gateway.istio.io/defaults-for-class"

	// formerGatewayLabel is what selectors used before Istio 1.24. A selector cannot be changed.
	formerGatewayLabel = "istio.io/gateway-name"

	// NameOverride is a Gateway's annotation with the name of its Service and Deployment.
	NameOverride = "gateway.istio.io/name-override"

	accountOverride     = "gateway.istio.io/service-account"
	versionAnnotation   = "gateway.istio.io/controller-version"
	serviceTypeOverride = "networking.istio.io/service-type"

	// controllerVersion is what istiod writes since 1.18; the rules here are those of that version.
	controllerVersion = 5

	statusPort     = 15021
	statusPortName = "status-port"
)

// names are what the objects of a Gateway are called.
type names struct {
	// workload is the name of Service and Deployment.
	workload string
	account  string
	// chosenAccount: the Gateway names its ServiceAccount, which may be another's then.
	chosenAccount bool
}

// namesOf are by default those of the Gateway and its class. Istiod gives its waypoints no suffix; they are not
// made here.
func namesOf(gw *gateway.Gateway) names {
	usual := gw.Name + "-" + string(gw.Spec.GatewayClassName)
	account, chosen := gw.Annotations[accountOverride]
	return names{
		workload:      cmp.Or(gw.Annotations[NameOverride], usual),
		account:       cmp.Or(account, usual),
		chosenAccount: chosen && account != "",
	}
}

// problem is what is wrong with them, nil if nothing is. The API server would say it too, for each object and try.
func (n names) problem(gw *gateway.Gateway) *Problem {
	if len(gw.Name) > validation.LabelValueMaxLength {
		return problemf(ReasonInvalidName, "the Gateway's own name has %d characters and is the value of label %s on what is made for it, which may have %d: give it a shorter name",
			len(gw.Name), GatewayLabel, validation.LabelValueMaxLength)
	}
	if wrong := validation.IsDNS1123Label(n.workload); len(wrong) > 0 {
		return problemf(ReasonInvalidName, "Service and Deployment cannot be called %q (%d characters): %s; choose a name with annotation %s",
			n.workload, len(n.workload), strings.Join(wrong, ", "), NameOverride)
	}
	if wrong := validation.IsDNS1123Subdomain(n.account); len(wrong) > 0 {
		return problemf(ReasonInvalidName, "the ServiceAccount cannot be called %q: %s; choose a name with annotation %s",
			n.account, strings.Join(wrong, ", "), accountOverride)
	}
	if class := string(gw.Spec.GatewayClassName); len(class) > validation.LabelValueMaxLength {
		return problemf(ReasonInvalidName, "the name of the class %s has %d characters and is the value of label %s on what is made for the Gateway, which may have %d: give it a shorter name",
			class, len(class), ClassLabel, validation.LabelValueMaxLength)
	}
	return nil
}

// WorkloadName is what Service and Deployment of a Gateway are called.
func WorkloadName(gw *gateway.Gateway) string { return namesOf(gw).workload }

// takesPart tells by the controller version on a Gateway whether it is ours to serve, and whether our
// version has to be written onto it. Larger numbers win; what is no number is of a scheme that is not known yet.
func takesPart(gw *gateway.Gateway) (ours, write bool) {
	present, stated := gw.Annotations[versionAnnotation]
	if !stated {
		return true, true
	}
	version, err := strconv.Atoi(present)
	if err != nil || version > controllerVersion {
		return false, false
	}
	return true, version < controllerVersion
}

// managed tells whether the Gateway wants a deployment made. One with addresses points at a deployment
// of its own, unless it asks for a single IP address, which the Service gets.
func managed(gw *gateway.Gateway) bool {
	switch addresses := gw.Spec.Addresses; len(addresses) {
	case 0:
		return true
	case 1:
		return addresses[0].Type == nil || *addresses[0].Type == gateway.IPAddressType
	default:
		return false
	}
}

// portsOf are the Service's: the status port, and one for each port number that a listener has, unique in
// number and name. A Service with two ports of one name or number is refused as a whole.
func portsOf(gw *gateway.Gateway) []corev1.ServicePort {
	numbers, used := sets.New[int32](statusPort), sets.New(statusPortName)
	ports := []corev1.ServicePort{servicePort(statusPortName, statusPort, "tcp")}
	for _, listener := range gw.Spec.Listeners {
		number := int32(listener.Port)
		if numbers.Has(number) {
			continue
		}
		numbers.Insert(number)
		protocol := strings.ToLower(string(listener.Protocol))
		ports = append(ports, servicePort(portName(string(listener.Name), number, used), number, protocol))
	}
	return ports
}

func servicePort(name string, number int32, protocol string) corev1.ServicePort {
	return corev1.ServicePort{Name: name, Port: number, TargetPort: intstr.FromInt32(number), Protocol: corev1.ProtocolTCP, AppProtocol: &protocol}
}

// portName makes a port's name of a listener's, which may be longer and have dots in it. Of two that would be the
// same, the later one gets its port's number.
func portName(listener string, number int32, used sets.Set[string]) string {
	base := cut(strings.ReplaceAll(listener, ".", "-"), validation.DNS1123LabelMaxLength)
	name := base
	for n := 0; name == "" || used.Has(name); n++ {
		suffix := fmt.Sprintf("-%d", number)
		if n > 0 {
			suffix += fmt.Sprintf("-%d", n)
		}
		name = cut(cmp.Or(base, "port"), validation.DNS1123LabelMaxLength-len(suffix)) + suffix
	}
	used.Insert(name)
	return name
}

// cut shortens a name to at most n characters; a name does not end in a hyphen.
func cut(name string, n int) string {
	return strings.TrimRight(name[:min(n, len(name))], "-")
}

// infrastructure are the labels and annotations for all that is made: those of spec.infrastructure where there are
// some, else the Gateway's own. The Gateway API's own keys are not for users to set, and annotations that steer
// this controller or kubectl mean the Gateway alone.
func infrastructure(gw *gateway.Gateway) (labels, annotations map[string]string) {
	labels, annotations = gw.Labels, gw.Annotations
	if in := gw.Spec.Infrastructure; in != nil {
		if in.Labels != nil {
			labels = texts(in.Labels)
		}
		if in.Annotations != nil {
			annotations = texts(in.Annotations)
		}
	}
	return without(labels), without(annotations,
		corev1.LastAppliedConfigAnnotation, NameOverride, accountOverride, versionAnnotation)
}

func texts[K, V ~string](from map[K]V) map[string]string {
	to := make(map[string]string, len(from))
	for key, value := range from {
		to[string(key)] = string(value)
	}
	return to
}

// without copies what may stand on other objects.
func without(from map[string]string, keys ...string) map[string]string {
	omitted, to := sets.New(keys...), map[string]string{}
	for key, value := range from {
		if !omitted.Has(key) && !strings.HasPrefix(key, gateway.GroupName+"/") {
			to[key] = value
		}
	}
	return to
}
