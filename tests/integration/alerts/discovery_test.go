package alerts

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// discovery finds the targets of a ServiceMonitor. Debian's Prometheus is built without Kubernetes discovery.
type discovery struct{ kube kubernetes.Interface }

// group is a group of targets in the format of http_sd_configs.
type group struct {
	Targets []string          `json:"targets"`
	Labels  map[string]string `json:"labels"`
}

// discover serves the targets of each ServiceMonitor at its name until the test ends.
func discover(t *testing.T, config *rest.Config, monitors []monitoringv1.ServiceMonitor) (base string) {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { utilnet.CloseIdleConnectionsFor(client.Transport) })
	kube, err := kubernetes.NewForConfigAndClient(config, client)
	if err != nil {
		t.Fatal(err)
	}
	d := discovery{kube}
	mux := http.NewServeMux()
	for _, m := range monitors {
		mux.HandleFunc("GET /"+m.Name, func(w http.ResponseWriter, r *http.Request) {
			groups, err := d.groups(r.Context(), m)
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(groups) // the client may have disconnected
		})
	}
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL
}

// groups returns the Pods of the selected Services, with the labels that the operator adds.
func (d discovery) groups(ctx context.Context, m monitoringv1.ServiceMonitor) ([]group, error) {
	all := []group{}
	chosen := metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(&m.Spec.Selector)}
	services, err := d.kube.CoreV1().Services(m.Namespace).List(ctx, chosen)
	if err != nil {
		return nil, err
	}
	for _, service := range services.Items {
		behind := metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + service.Name}
		slices, err := d.kube.DiscoveryV1().EndpointSlices(m.Namespace).List(ctx, behind)
		if err != nil {
			return nil, err
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
	return all, nil
}

// listenAddress returns the listen address of a Pod, which differs from its status (node.Options.PodNetwork).
func listenAddress(address string) string {
	if rest, shown := strings.CutPrefix(address, "10."); shown {
		return "127." + rest
	}
	return address
}
