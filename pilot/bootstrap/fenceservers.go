package bootstrap

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

	"incumbent.dev/incumbent/internal/fence/install"
	"incumbent.dev/incumbent/pkg/kube"
)

// reachWithin bounds how long a further API server may take to say that it is there.
const reachWithin = 5 * time.Second

// apiServers are the further API servers, with the same credentials: those of APIServers, or
// without any the ones that the cluster itself lists. The findings are about those that cannot be asked.
func (c FenceConfig) apiServers(ctx context.Context, client kube.Client) ([]*rest.Config, []install.Finding) {
	config := client.RESTConfig()
	var all []*rest.Config
	if len(c.APIServers) > 0 {
		for _, address := range c.APIServers {
			there := rest.CopyConfig(config)
			there.Host = address
			all = append(all, there)
		}
		return all, nil
	}
	listed, err := listedServers(ctx, client)
	if err != nil {
		return nil, []install.Finding{{
			Server: config.Host, What: "the addresses of the API servers are known", Verdict: install.Undecided,
			Why: err.Error() + "; name them with --api-server",
		}}
	}
	errs := make([]error, len(listed))
	var asked sync.WaitGroup
	for i, there := range listed {
		asked.Go(func() { errs[i] = reach(ctx, there) })
	}
	asked.Wait()
	var findings []install.Finding
	for i, there := range listed {
		if errs[i] == nil {
			all = append(all, there)
			continue
		}
		findings = append(findings, install.Finding{
			Server: there.Host, What: "API server " + there.Host + ", which the Service default/kubernetes lists, can be asked", Verdict: install.Undecided,
			Why: fmt.Sprintf("%v; run this where it can be reached, or name with --api-server those that are to be asked", errs[i]),
		})
	}
	return all, findings
}

// listedServers are those behind the Service default/kubernetes, into which each API server
// writes its own address.
func listedServers(ctx context.Context, client kube.Client) ([]*rest.Config, error) {
	found, err := client.Kube().DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).
		List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=kubernetes"})
	if err != nil {
		return nil, fmt.Errorf("listing the EndpointSlices of the Service default/kubernetes: %w", err)
	}
	config := client.RESTConfig()
	name, err := serverName(config)
	if err != nil {
		return nil, err
	}
	var hosts []string
	for _, slice := range found.Items {
		for _, host := range addressesOf(slice) {
			if host != config.Host && !slices.Contains(hosts, host) {
				hosts = append(hosts, host)
			}
		}
	}
	slices.Sort(hosts)
	var all []*rest.Config
	for _, host := range hosts {
		there := rest.CopyConfig(config)
		there.Host = host
		// Its certificate is for the name that the cluster is reached by, and not for sure for its
		// own address.
		there.ServerName = name
		all = append(all, there)
	}
	return all, nil
}

// addressesOf are what a slice lists, as URLs.
func addressesOf(slice discoveryv1.EndpointSlice) []string {
	var all []string
	for _, port := range slice.Ports {
		if port.Port == nil || port.Name != nil && *port.Name != "" && *port.Name != "https" {
			continue
		}
		for _, endpoint := range slice.Endpoints {
			if endpoint.Conditions.Ready != nil && !*endpoint.Conditions.Ready {
				continue // it is stopping
			}
			for _, address := range endpoint.Addresses {
				all = append(all, "https://"+net.JoinHostPort(address, strconv.Itoa(int(*port.Port))))
			}
		}
	}
	return all
}

// serverName is what the certificate of the cluster's API server is for.
func serverName(config *rest.Config) (string, error) {
	address, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return "", fmt.Errorf("the API server's address %q: %w", config.Host, err)
	}
	return cmp.Or(config.ServerName, (*url.URL).Hostname(address)), nil
}

// reach tells why an API server cannot be asked.
func reach(ctx context.Context, config *rest.Config) error {
	client, err := kube.NewClient(config, kube.WithRateLimit(-1, 0), kube.WithUserAgent(userAgent), kube.WithOwnConnections())
	if err != nil {
		return err
	}
	defer kube.CloseIdleConnections(client)
	ctx, cancel := context.WithTimeoutCause(ctx, reachWithin, fmt.Errorf("no answer within %v", reachWithin))
	defer cancel()
	err = client.Kube().Discovery().RESTClient().Get().AbsPath("/version").Do(ctx).Error()
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
