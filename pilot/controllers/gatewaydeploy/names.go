package gatewaydeploy

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
)

// Names that Istio defines. Existing deployments use them.
const (
	// ManagedLabel marks objects that were created for a Gateway. Objects without it are not changed.
	ManagedLabel = "gateway.istio.io/managed"
	// ManagedBy is the value of ManagedLabel.
	ManagedBy = "istio.io-gateway-controller"
	// RevisionLabel is a label of the written objects with the revision of the control plane. The fence uses it while the lock is missing.
	RevisionLabel = "incumbent.dev/revision"
	// ClassDefaultsLabel marks a ConfigMap in the system namespace as overlay for all Gateways of a class.
	ClassDefaultsLabel = "gateway.istio.io/defaults-for-class"

	// formerGatewayLabel is the selector label before Istio 1.24. Selectors are immutable.
	formerGatewayLabel = "istio.io/gateway-name"

	// NameOverride is the annotation of a Gateway that sets the name of its Service and Deployment.
	NameOverride = "gateway.istio.io/name-override"

	// ProblemAnnotation is the annotation with the current problems of a Gateway. ProblemOf reads it.
	ProblemAnnotation = "incumbent.dev/deployment-problem"

	// keptTypeAnnotation marks a Service that another client created, with its type, for the Gateway.
	keptTypeAnnotation = "incumbent.dev/keeps-type"

	accountOverride     = "gateway.istio.io/service-account"
	versionAnnotation   = "gateway.istio.io/controller-version"
	serviceTypeOverride = "networking.istio.io/service-type"

	// controllerVersion is the version that istiod writes since 1.18. This controller follows its rules.
	controllerVersion = 5

	statusPort     = 15021
	statusPortName = "status-port"
)

// names holds the names of the objects of a Gateway.
type names struct {
	// workload is the name of Service and Deployment.
	workload string
	account  string
	// chosenAccount reports whether the Gateway sets its ServiceAccount, which may then be shared.
	chosenAccount bool
}

// namesOf returns the names, which by default consist of the Gateway and its class.
func namesOf(gw *gateway.Gateway) names {
	usual := gw.Name + "-" + string(gw.Spec.GatewayClassName)
	account, annotated := gw.Annotations[accountOverride]
	return names{
		workload:      cmp.Or(gw.Annotations[NameOverride], label(usual)),
		account:       cmp.Or(account, short(usual, validation.DNS1123SubdomainMaxLength)),
		chosenAccount: annotated && account != "",
	}
}

// label returns a name as a DNS label. A name that is longer or contains dots gets a hash, so that it differs
// from the labels of other names.
func label(name string) string {
	if len(validation.IsDNS1123Label(name)) == 0 {
		return name
	}
	return hashed(strings.ReplaceAll(name, ".", "-"), name, validation.DNS1123LabelMaxLength)
}

// short returns a name with at most n characters. A longer name is cut and gets a hash.
func short(name string, n int) string {
	if len(name) <= n {
		return name
	}
	return hashed(name, name, n)
}

func hashed(text, name string, n int) string {
	sum := sha256.Sum256([]byte(name))
	suffix := "-" + hex.EncodeToString(sum[:4])
	return strings.TrimRight(text[:min(len(text), n-len(suffix))], "-.") + suffix
}

// LabelValue returns a name of the Gateway API, which can be longer, as the value of a label.
func LabelValue[T ~string](name T) string { return short(string(name), validation.LabelValueMaxLength) }

// problem returns a problem if a name that the Gateway sets is invalid, or nil. Without this check, the API
// server would reject each object on each attempt.
func (n names) problem() *Problem {
	if wrong := validation.IsDNS1123Label(n.workload); len(wrong) > 0 {
		return problemf(reasonInvalidName, "invalid name %q of Service and Deployment (%d characters): %s; set a name with annotation %s",
			n.workload, len(n.workload), strings.Join(wrong, ", "), NameOverride)
	}
	if wrong := validation.IsDNS1123Subdomain(n.account); len(wrong) > 0 {
		return problemf(reasonInvalidName, "invalid ServiceAccount name %q: %s; set a name with annotation %s",
			n.account, strings.Join(wrong, ", "), accountOverride)
	}
	return nil
}

// WorkloadName returns the name of the Service and the Deployment of a Gateway.
func WorkloadName(gw *gateway.Gateway) string { return namesOf(gw).workload }

// checkVersion reports, by the controller version on a Gateway, whether this controller serves it, and
// whether it must write its own version. Larger versions have precedence, as do values that are not
// numbers, because a future version may use another format.
func checkVersion(gw *gateway.Gateway) (ours, write bool) {
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

// managed reports whether a Gateway needs a deployment. A Gateway with addresses refers to an existing
// deployment, except if it requests a single IP address for the Service.
func managed(gw *gateway.Gateway) bool {
	return len(gw.Spec.Addresses) <= 1 && !manual(gw)
}

// manual reports whether a Gateway refers to an existing deployment.
func manual(gw *gateway.Gateway) bool {
	return slices.ContainsFunc(gw.Spec.Addresses, func(a gateway.GatewaySpecAddress) bool {
		return a.Type != nil && *a.Type != gateway.IPAddressType
	})
}

// portsOf returns the ports of the Service: the status port and each port of the listeners. Numbers of one
// protocol and names are unique, because the API server rejects a Service with duplicates.
func portsOf(gw *gateway.Gateway) []corev1.ServicePort {
	used := sets.New(statusPortName)
	ports := []corev1.ServicePort{servicePort(statusPortName, statusPort, "tcp")}
	for _, listener := range gw.Spec.Listeners {
		port := servicePort("", int32(listener.Port), strings.ToLower(string(listener.Protocol)))
		if !slices.ContainsFunc(ports, func(p corev1.ServicePort) bool { return p.Port == port.Port && p.Protocol == port.Protocol }) {
			port.Name = portName(string(listener.Name), port.Port, used)
			ports = append(ports, port)
		}
	}
	return ports
}

func servicePort(name string, number int32, application string) corev1.ServicePort {
	transport := corev1.ProtocolTCP
	if application == "udp" {
		transport = corev1.ProtocolUDP
	}
	return corev1.ServicePort{Name: name, Port: number, TargetPort: intstr.FromInt32(number), Protocol: transport, AppProtocol: &application}
}

// portName returns the name of a port for a listener, whose name may be longer and contain dots. On a
// collision it appends the port number.
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

// cut shortens a name to at most n characters, without a hyphen at the end.
func cut(name string, n int) string {
	return strings.TrimRight(name[:min(n, len(name))], "-")
}

// metadata returns the labels or annotations for created objects and for Pods: the keys of Istio on the
// Gateway, and its spec.infrastructure, which has precedence. Other keys of a Gateway can belong to tools,
// such as the tool that prunes the objects of an apply set.
func metadata(own, infrastructure map[string]string) (objects, pods map[string]string) {
	objects = map[string]string{}
	pods = map[string]string{}
	for key, value := range own {
		if domain := domainOf(key); domain == "istio.io" || strings.HasSuffix(domain, ".istio.io") {
			if domain == controlDomain || key == serviceTypeOverride || key == formerGatewayLabel {
				continue
			}
			objects[key] = value
			if domain != networkDomain {
				pods[key] = value
			}
		}
	}
	for key, value := range infrastructure {
		if !inDomains(domainOf(key), reservedDomains) && key != formerGatewayLabel {
			objects[key] = value
			pods[key] = value
		}
	}
	return objects, pods
}

// maxCopied bounds the labels and annotations that are copied to each object, because the comparison of an object costs 40 µs for each.
const maxCopied = 256

// crowded returns a problem if a Gateway has too many labels and annotations for the created objects, or nil.
func crowded(gw *gateway.Gateway) *Problem {
	labels, _ := metadata(gw.Labels, nil)
	annotations, _ := metadata(gw.Annotations, nil)
	if n := len(labels) + len(annotations); n > maxCopied {
		return problemf(ReasonInvalidParameters, "%d labels and annotations of istio.io would be copied; at most %d are allowed", n, maxCopied)
	}
	return nil
}

// domainOf returns the part of a key before the slash, or "".
func domainOf(key string) string {
	domain, _, found := strings.Cut(key, "/")
	if !found {
		return ""
	}
	return domain
}

const (
	// controlDomain is the domain of keys that control this controller.
	controlDomain = "gateway.istio.io"
	// networkDomain is the domain of keys that take effect on Services. A change of them restarts no Pods.
	networkDomain = "networking.istio.io"
)

func texts[K, V ~string](from map[K]V) map[string]string {
	to := make(map[string]string, len(from))
	for key, value := range from {
		to[string(key)] = string(value)
	}
	return to
}
