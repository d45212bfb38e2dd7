package ingress

import (
	"cmp"
	"net"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// address is an address at which an Ingress is served.
type address = networkingv1.IngressLoadBalancerIngress

// addressesOf returns the addresses of a Service, sorted and without duplicates: its external name,
// or the addresses of its load balancer and its external IPs, or else the external IPs of the nodes
// of its pods. It omits addresses that the API server would reject, because a single one would make every
// status update fail.
func addressesOf(service *corev1.Service, pods []*corev1.Pod, node func(name string) *corev1.Node) []address {
	if service.Spec.Type == corev1.ServiceTypeExternalName {
		return sorted([]address{parsed(service.Spec.ExternalName)})
	}
	var all []address
	for _, ingress := range service.Status.LoadBalancer.Ingress {
		a := address{Hostname: ingress.Hostname}
		if ip := parsed(ingress.IP); ip.IP != "" {
			a.IP = ip.IP
		}
		for _, p := range ingress.Ports {
			a.Ports = append(a.Ports, networkingv1.IngressPortStatus{Port: p.Port, Protocol: p.Protocol, Error: p.Error})
		}
		all = append(all, a)
	}
	for _, ip := range service.Spec.ExternalIPs {
		all = append(all, onlyIP(ip))
	}
	if all = sorted(all); len(all) > 0 {
		return all
	}
	return sorted(nodesOf(service, pods, node))
}

// nodesOf returns the external IPs of the nodes of the pods of a Service.
func nodesOf(service *corev1.Service, pods []*corev1.Pod, node func(string) *corev1.Node) (all []address) {
	for _, pod := range pods {
		if pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil || !selects(service, pod) {
			continue
		}
		on := node(pod.Spec.NodeName)
		if on == nil {
			continue
		}
		for _, a := range on.Status.Addresses {
			if a.Type == corev1.NodeExternalIP {
				all = append(all, onlyIP(a.Address))
			}
		}
	}
	return all
}

// selects reports whether a Service selects a pod. A Service without a selector selects no pod.
func selects(service *corev1.Service, pod *corev1.Pod) bool {
	return len(service.Spec.Selector) > 0 && labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(pod.Labels))
}

// parsed returns the text as an IP or as a host name. An external name can be either.
func parsed(text string) address {
	if ip := onlyIP(text); ip.IP != "" {
		return ip
	}
	return address{Hostname: strings.TrimSuffix(text, ".")}
}

// onlyIP returns an empty address if the text is not an IP.
func onlyIP(text string) address {
	if ip := net.ParseIP(text); ip != nil {
		return address{IP: ip.String()}
	}
	return address{}
}

// sorted returns the addresses in a fixed order, without empty ones. It merges the ports of
// duplicates.
func sorted(addresses []address) (all []address) {
	slices.SortStableFunc(addresses, byName)
	for _, a := range addresses {
		switch last := len(all) - 1; {
		case a.IP == "" && a.Hostname == "":
		case last >= 0 && byName(all[last], a) == 0:
			all[last].Ports = append(all[last].Ports, a.Ports...)
		default:
			all = append(all, a)
		}
	}
	for i := range all {
		slices.SortStableFunc(all[i].Ports, byPort)
		all[i].Ports = slices.CompactFunc(all[i].Ports, func(a, b networkingv1.IngressPortStatus) bool { return byPort(a, b) == 0 })
	}
	return all
}

func byName(a, b address) int {
	return cmp.Or(cmp.Compare(a.IP, b.IP), cmp.Compare(a.Hostname, b.Hostname))
}

func byPort(a, b networkingv1.IngressPortStatus) int {
	return cmp.Or(cmp.Compare(a.Port, b.Port), cmp.Compare(a.Protocol, b.Protocol))
}
