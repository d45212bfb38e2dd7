package install

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/pkg/kube"
)

// reachTimeout limits the test whether a further API server is reachable.
const reachTimeout = 5 * time.Second

// apiServers returns configurations for the further API servers: the servers in APIServers, or else the reachable ones
// that the cluster lists. The findings name the servers that cannot be checked.
func (c Config) apiServers(ctx context.Context, client kube.Client) ([]*rest.Config, []Finding) {
	config := client.RESTConfig()
	var all []*rest.Config
	for _, address := range c.APIServers {
		there := rest.CopyConfig(config)
		there.Host = address
		all = append(all, there)
	}
	if len(all) > 0 {
		return all, nil
	}
	listed, err := listedServers(ctx, client)
	if err != nil {
		return nil, []Finding{{
			Server: config.Host, What: "the addresses of the API servers are known", Verdict: Undecided,
			Why: err.Error() + "; give them with --api-server",
		}}
	}
	errs := make([]error, len(listed))
	var running sync.WaitGroup
	for i, there := range listed {
		running.Go(func() { errs[i] = reach(ctx, there) })
	}
	running.Wait()
	var findings []Finding
	for i, there := range listed {
		if errs[i] == nil {
			all = append(all, there)
			continue
		}
		findings = append(findings, Finding{
			Server: there.Host, What: "API server " + there.Host + " (listed by Service default/kubernetes) is reachable", Verdict: Undecided,
			Why: fmt.Sprintf("%v; run this command where the server is reachable, or give the servers to check with --api-server", errs[i]),
		})
	}
	return all, findings
}

// listedServers returns the API servers behind the Service default/kubernetes. Each API server adds its own address there.
func listedServers(ctx context.Context, client kube.Client) ([]*rest.Config, error) {
	found, err := client.Kube().DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).
		List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=kubernetes"})
	if err != nil {
		return nil, fmt.Errorf("list EndpointSlices of Service default/kubernetes: %w", err)
	}
	config := client.RESTConfig()
	name, err := serverName(config)
	if err != nil {
		return nil, err
	}
	var hosts []string
	for _, slice := range found.Items {
		hosts = append(hosts, addressesOf(slice)...)
	}
	slices.Sort(hosts)
	var all []*rest.Config
	for _, host := range slices.Compact(hosts) {
		if host == config.Host {
			continue
		}
		there := rest.CopyConfig(config)
		there.Host = host
		there.ServerName = name // the certificate may not include the server's own address
		all = append(all, there)
	}
	return all, nil
}

// addressesOf returns the ready addresses of a slice as URLs.
func addressesOf(slice discoveryv1.EndpointSlice) []string {
	var all []string
	for _, port := range slice.Ports {
		if port.Port == nil || port.Name != nil && *port.Name != "" && *port.Name != "https" {
			continue
		}
		for _, endpoint := range slice.Endpoints {
			if endpoint.Conditions.Ready != nil && !*endpoint.Conditions.Ready {
				continue
			}
			for _, address := range endpoint.Addresses {
				all = append(all, "https://"+net.JoinHostPort(address, strconv.Itoa(int(*port.Port))))
			}
		}
	}
	return all
}

// serverName returns the host name that the certificate of the cluster's API servers is valid for.
func serverName(config *rest.Config) (string, error) {
	address, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return "", fmt.Errorf("parse address %q of the API server: %w", config.Host, err)
	}
	return cmp.Or(config.ServerName, (*url.URL).Hostname(address)), nil
}

// reach returns the reason why an API server is not reachable.
func reach(ctx context.Context, config *rest.Config) error {
	client, err := newClient(config)
	if err != nil {
		return err
	}
	defer kube.CloseIdleConnections(client)
	ctx, cancel := context.WithTimeoutCause(ctx, reachTimeout, fmt.Errorf("no response within %v", reachTimeout))
	defer cancel()
	err = client.Kube().Discovery().RESTClient().Get().AbsPath("/version").Do(ctx).Error()
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
