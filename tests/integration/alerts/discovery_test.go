package alerts

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"incumbent.dev/incumbent/internal/testutil/harness"
)

// group is a group of targets in the format of static_configs.
type group struct {
	Targets []string          `json:"targets"`
	Labels  map[string]string `json:"labels"`
}

// discover returns the Pods of the Services that a ServiceMonitor selects, with the labels that the operator adds. Debian's
// Prometheus is built without Kubernetes discovery.
func discover(t *testing.T, kube kubernetes.Interface, m monitoringv1.ServiceMonitor) (all []group) {
	t.Helper()
	services, err := kube.CoreV1().Services(m.Namespace).List(t.Context(), metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(&m.Spec.Selector)})
	if err != nil {
		t.Fatal(err)
	}
	for _, service := range services.Items {
		for _, slice := range endpoints(t, kube, &service) {
			for _, port := range slice.Ports {
				if port.Name == nil || *port.Name != m.Spec.Endpoints[0].Port {
					continue
				}
				for _, endpoint := range slice.Endpoints {
					labels := map[string]string{"namespace": m.Namespace, "service": service.Name, "pod": endpoint.TargetRef.Name}
					all = append(all, group{[]string{net.JoinHostPort(listenAddress(endpoint.Addresses[0]), fmt.Sprint(*port.Port))}, labels})
				}
			}
		}
	}
	return all
}

// endpoints returns the EndpointSlices of a Service when they have all Pods. The controller writes them after the Pods are ready.
func endpoints(t *testing.T, kube kubernetes.Interface, service *corev1.Service) (found []discoveryv1.EndpointSlice) {
	t.Helper()
	behind := metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + service.Name}
	harness.Until(t, "endpoints of "+service.Name, func() bool {
		list, err := kube.DiscoveryV1().EndpointSlices(service.Namespace).List(t.Context(), behind)
		if err != nil {
			return false
		}
		found = list.Items
		return len(found) > 0 && !slices.ContainsFunc(found, func(s discoveryv1.EndpointSlice) bool { return len(s.Endpoints) < replicas })
	})
	return found
}

// listenAddress returns the listen address of a Pod, which differs from its status (node.Options.PodNetwork).
func listenAddress(address string) string {
	if rest, shown := strings.CutPrefix(address, "10."); shown {
		return "127." + rest
	}
	return address
}
