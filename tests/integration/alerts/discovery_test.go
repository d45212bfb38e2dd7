package alerts

import (
	"fmt"
	"net"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// group is a group of targets in the format of static_configs.
type group struct {
	Targets []string          `json:"targets"`
	Labels  map[string]string `json:"labels"`
}

// discover returns the Pods of the Services that a ServiceMonitor selects, with the labels that the operator adds. Debian's
// Prometheus is built without Kubernetes discovery.
func discover(t *testing.T, config *rest.Config, m monitoringv1.ServiceMonitor) (all []group) {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	defer utilnet.CloseIdleConnectionsFor(client.Transport)
	kube, err := kubernetes.NewForConfigAndClient(config, client)
	if err != nil {
		t.Fatal(err)
	}
	services, err := kube.CoreV1().Services(m.Namespace).List(t.Context(), metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(&m.Spec.Selector)})
	if err != nil {
		t.Fatal(err)
	}
	for _, service := range services.Items {
		behind := metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + service.Name}
		slices, err := kube.DiscoveryV1().EndpointSlices(m.Namespace).List(t.Context(), behind)
		if err != nil {
			t.Fatal(err)
		}
		for _, slice := range slices.Items {
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

// listenAddress returns the listen address of a Pod, which differs from its status (node.Options.PodNetwork).
func listenAddress(address string) string {
	if rest, shown := strings.CutPrefix(address, "10."); shown {
		return "127." + rest
	}
	return address
}
