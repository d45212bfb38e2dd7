package gatewaystatus

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	gateway "sigs.k8s.io/gateway-api/apis/v1"

	"incumbent.dev/incumbent/pilot/controllers/gatewaydeploy"
)

// maxAddresses is the maximum number of addresses in the status of a Gateway.
const maxAddresses = 16

// gatewayStatus returns the desired status of a Gateway, without times.
func gatewayStatus(v view, g *gateway.Gateway) gateway.GatewayStatus {
	listeners := checkListeners(v, g)
	service := owned(g, v.services(g.Namespace, g.Name))
	accepted := acceptance(v, g, listeners)
	var addresses []gateway.GatewayStatusAddress
	if service != nil && accepted.Reason != string(gateway.GatewayReasonUnsupportedAddress) {
		addresses = addressesOf(service)
	}
	waiting := unprogrammed(v, g, accepted, service, addresses)
	unserved := waiting
	switch serves := func(l listener) bool { return l.valid() && hasPort(service, l.Listener) }; {
	case waiting != nil:
	case !slices.ContainsFunc(listeners, func(l listener) bool { return l.valid() }):
		unserved = problemf(gateway.GatewayReasonInvalid, "no listener is valid")
	case !slices.ContainsFunc(listeners, serves):
		unserved = problemf(gateway.GatewayReasonPending, "Service %s does not have the port of any listener yet", service.Name)
	}
	programmed := holds(gateway.GatewayConditionProgrammed, unserved, gateway.GatewayReasonProgrammed, g.Generation)
	if unserved == nil { // although a part is not ready
		programmed.Message = strings.Join(causes(v, g, owned(g, v.deployments(g.Namespace, g.Name))), "; ")
	}
	status := gateway.GatewayStatus{Addresses: addresses, Conditions: []metav1.Condition{accepted, programmed}}
	attached := attachments(v, g, listeners)
	for i, l := range listeners {
		p := waiting
		if p == nil && !hasPort(service, l.Listener) {
			p = problemf(gateway.ListenerReasonPending, "Service %s does not have port %d of protocol %s yet", service.Name, l.Port, transport(l.Listener))
		}
		if p != nil {
			p = problemf(gateway.ListenerReasonPending, "%s", p.Message)
		}
		status.Listeners = append(status.Listeners, listeners[i].status(g.Generation, attached[i], p))
	}
	return status
}

// acceptance returns the condition Accepted.
func acceptance(v view, g *gateway.Gateway, listeners []listener) metav1.Condition {
	is := func(status bool, reason gateway.GatewayConditionReason, message string) metav1.Condition {
		return condition(gateway.GatewayConditionAccepted, status, reason, message, g.Generation)
	}
	if class := v.class(string(g.Spec.GatewayClassName)); class != nil && class.Spec.ParametersRef != nil {
		return is(false, gateway.GatewayReasonInvalidParameters, "GatewayClass "+class.Name+" is not accepted; see its conditions")
	}
	if p := g.Spec.Infrastructure; p != nil && p.ParametersRef != nil && (p.ParametersRef.Group != "" || p.ParametersRef.Kind != "ConfigMap") {
		return is(false, gateway.GatewayReasonInvalidParameters, "infrastructure.parametersRef must refer to a ConfigMap, not a "+string(p.ParametersRef.Kind))
	}
	deployment := gatewaydeploy.ProblemOf(g)
	if deployment != nil && deployment.Reason == gatewaydeploy.ReasonInvalidParameters {
		return is(false, gateway.GatewayReasonInvalidParameters, deployment.Message)
	}
	if len(g.Spec.Addresses) > 1 {
		return is(false, gateway.GatewayReasonUnsupportedAddress, "at most one address is supported")
	}
	for _, address := range g.Spec.Addresses {
		if kind := ptr.Deref(address.Type, gateway.IPAddressType); kind != gateway.IPAddressType {
			return is(false, gateway.GatewayReasonUnsupportedAddress, "address type "+string(kind)+" is not supported; use "+string(gateway.IPAddressType))
		}
	}
	rejected := without(listeners, (*listener).accepted)
	invalid := without(listeners, (*listener).valid)
	switch {
	case len(rejected) == len(listeners):
		return is(false, gateway.GatewayReasonListenersNotValid, fmt.Sprint("no listener is accepted: ", rejected))
	case len(invalid) > 0:
		return is(true, gateway.GatewayReasonListenersNotValid, fmt.Sprint("invalid listeners: ", invalid))
	case deployment != nil && deployment.Reason == gatewaydeploy.ReasonUnknownParameter:
		return is(true, gateway.GatewayReasonAccepted, deployment.Message)
	}
	return is(true, gateway.GatewayReasonAccepted, "")
}

// unprogrammed returns the reason why a Gateway is not served yet, or nil.
func unprogrammed(v view, g *gateway.Gateway, accepted metav1.Condition, service *corev1.Service, addresses []gateway.GatewayStatusAddress) *problem {
	deployment := owned(g, v.deployments(g.Namespace, g.Name))
	p := gatewaydeploy.ProblemOf(g)
	switch {
	case accepted.Status != metav1.ConditionTrue:
		return problemf(gateway.GatewayReasonInvalid, "Gateway is not accepted")
	case p != nil && p.Reason != gatewaydeploy.ReasonUnknownParameter:
		return p
	case deployment == nil:
		return problemf(gateway.GatewayReasonPending, "Deployment %s of this Gateway does not exist yet", gatewaydeploy.WorkloadName(g))
	case !available(deployment):
		return problemf(gateway.GatewayReasonPending, "Deployment %s has too few available pods%s", deployment.Name, prefixed(causes(v, g, deployment)...))
	case service == nil:
		return problemf(gateway.GatewayReasonPending, "Service %s of this Gateway does not exist yet", gatewaydeploy.WorkloadName(g))
	case len(addresses) == 0:
		return problemf(gateway.GatewayReasonAddressNotAssigned, "Service %s has no address yet%s", service.Name, prefixed(serviceCause(v, service)))
	}
	for _, wanted := range g.Spec.Addresses {
		if wanted.Value != "" && !slices.ContainsFunc(addresses, func(a gateway.GatewayStatusAddress) bool { return sameIP(a.Value, wanted.Value) }) {
			return problemf(gateway.GatewayReasonAddressNotUsable, "Service %s does not have the address %s", service.Name, wanted.Value)
		}
	}
	return nil
}

// sameIP reports whether two texts are the same IP address.
func sameIP(a, b string) bool {
	first, err := netip.ParseAddr(a)
	second, _ := netip.ParseAddr(b) // an invalid address equals no valid one
	return err == nil && first == second
}

// owned returns the object that is owned by a Gateway and has its current workload name, or nil. Labels are
// not sufficient, because any user can set them. Objects with a former name do not count.
func owned[T any, P interface {
	*T
	metav1.Object
}](g *gateway.Gateway, all []P) P {
	for _, o := range all {
		if o.GetName() == gatewaydeploy.WorkloadName(g) &&
			slices.ContainsFunc(o.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return r.UID == g.UID }) {
			return o
		}
	}
	return nil
}

// available reports whether enough pods of a Deployment are available. Pods of earlier versions count, because they serve during a
// rollout.
func available(d *appsv1.Deployment) bool {
	return d.Status.AvailableReplicas > 0 && slices.ContainsFunc(d.Status.Conditions, func(c appsv1.DeploymentCondition) bool {
		return c.Type == appsv1.DeploymentAvailable && c.Status == corev1.ConditionTrue
	})
}

func hasPort(service *corev1.Service, l gateway.Listener) bool {
	return slices.ContainsFunc(service.Spec.Ports, func(p corev1.ServicePort) bool {
		return p.Port == int32(l.Port) && cmp.Or(p.Protocol, corev1.ProtocolTCP) == transport(l)
	})
}

// transport returns the protocol of the port of the Service for a listener.
func transport(l gateway.Listener) corev1.Protocol {
	if l.Protocol == gateway.UDPProtocolType {
		return corev1.ProtocolUDP
	}
	return corev1.ProtocolTCP
}

// addressesOf returns the addresses of a Service: from its load balancer, its external IPs and, without a
// load balancer, its cluster IPs.
func addressesOf(service *corev1.Service) []gateway.GatewayStatusAddress {
	var all []gateway.GatewayStatusAddress
	add := func(value string) {
		kind := gateway.HostnameAddressType
		if _, err := netip.ParseAddr(value); err == nil {
			kind = gateway.IPAddressType
		}
		known := slices.ContainsFunc(all, func(a gateway.GatewayStatusAddress) bool { return a.Value == value })
		if value != "" && value != corev1.ClusterIPNone && !known && len(all) < maxAddresses {
			all = append(all, gateway.GatewayStatusAddress{Type: &kind, Value: value})
		}
	}
	for _, ingress := range service.Status.LoadBalancer.Ingress {
		add(ingress.IP)
		add(ingress.Hostname)
	}
	for _, ip := range service.Spec.ExternalIPs {
		add(ip)
	}
	if service.Spec.Type != corev1.ServiceTypeLoadBalancer {
		for _, ip := range service.Spec.ClusterIPs {
			add(ip)
		}
	}
	return all
}

// attachments returns the number of routes of each listener.
func attachments(v view, g *gateway.Gateway, listeners []listener) []int32 {
	counts := make([]int32, len(listeners))
	for _, r := range v.routes(g.Namespace, g.Name) {
		attached := sets.New[int]() // several parentRefs can attach a route to one listener
		for _, ref := range r.Spec.ParentRefs {
			if refersTo(r, ref, g) {
				on, _ := attach(v, r, ref, g, listeners)
				attached.Insert(on...)
			}
		}
		for i := range attached {
			counts[i]++
		}
	}
	return counts
}
