package fence

import (
	"context"
	"fmt"
	"net"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/fence/install"
	"incumbent.dev/incumbent/pilot/bootstrap"
	"incumbent.dev/incumbent/pilot/leaderelection/fence"
	"incumbent.dev/incumbent/tests/cluster"
)

// routed are addresses that the API takes for endpoints, which it does not of the loopback's, and where
// connections to them go instead. The certificate of the API servers has none of them.
type routed map[string]string

func (r routed) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if to := r[address]; to != "" {
		address = to
	} else if strings.HasPrefix(address, "192.0.2.") {
		return nil, fmt.Errorf("dial %s: no route to host", address)
	}
	return (&net.Dialer{}).DialContext(ctx, network, address)
}

// list makes the Service default/kubernetes list these addresses, as API servers do for themselves.
func (s *stage) list(addresses ...string) {
	s.t.Helper()
	name, port := "https", int32(6443)
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "kubernetes", Labels: map[string]string{discoveryv1.LabelServiceName: "kubernetes"}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: &name, Port: &port}},
	}
	for _, address := range addresses {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{address}})
	}
	all := s.admin.DiscoveryV1().EndpointSlices("default")
	_ = all.Delete(s.t.Context(), "kubernetes", metav1.DeleteOptions{}) // it may be the first
	if _, err := all.Create(s.t.Context(), slice, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

// The further API servers are found by themselves: all of them have to act on what is installed before
// anything goes, and each is asked. One that cannot be asked is named.
func TestFenceFindsTheAPIServers(t *testing.T) {
	t.Parallel()
	c := ownCluster(t, cluster.Options{})
	second, err := c.AddAPIServer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s := stageOn(t, c, fence.Lease)
	s.pod("a")
	s.put(record{holder: "a", transitions: 3})
	stranger := httptest.NewTLSServer(nil)
	defer stranger.Close()
	address := func(url string) string { return strings.TrimPrefix(url, "https://") }
	routes := routed{"192.0.2.1:6443": address(c.URL()), "192.0.2.2:6443": address(second.URL()), "192.0.2.7:6443": address(stranger.URL)}
	config := install.Config{RESTConfig: rest.CopyConfig(c.Admin()), Namespace: s.namespace, Lock: "lease", Elections: bootstrap.FencedElections(bootstrap.Config{DisableGatewayAPI: true}), ServiceAccounts: []string{account}, Wait: soon, AllowUnclear: true}
	config.RESTConfig.Dial = routes.dial
	strict := config
	strict.AllowUnclear = false

	t.Log("one of them is stopped")
	s.list("192.0.2.1", "192.0.2.2")
	if err := second.Pause(); err != nil {
		t.Fatal(err)
	}
	err = strict.Install(t.Context(), t.Output())
	if err == nil || !strings.Contains(err.Error(), "https://192.0.2.2:6443") || !strings.Contains(err.Error(), "nothing was changed") || strings.Contains(err.Error(), "192.0.2.1:") {
		t.Errorf("installing: %v", err)
	}
	if got := s.installed(); len(got) > 0 {
		t.Errorf("installed all the same: %v", got)
	}
	if err := second.Resume(); err != nil {
		t.Fatal(err)
	}

	t.Log("both are there")
	var out strings.Builder
	if err := config.Install(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	config.Output = "json"
	out.Reset()
	if err := config.Verify(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	for _, server := range []string{c.URL(), "https://192.0.2.1:6443", "https://192.0.2.2:6443"} {
		if !strings.Contains(out.String(), `"server": "`+server+`"`) {
			t.Errorf("%s was not asked:\n%s", server, &out)
		}
	}
	s.unreachable(config, strict)

	t.Log("a list that is none of them any more does not keep a fence from going")
	s.list("192.0.2.1", "192.0.2.9")
	out.Reset()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	if err := config.Remove(ctx, &out); err != nil || !strings.Contains(out.String(), "192.0.2.9") {
		t.Errorf("removing: %v\n%s", err, &out)
	}
	if got := s.installed(); len(got) > 0 {
		t.Errorf("left: %v", got)
	}
}

// unreachable lists what is no API server of this cluster.
func (s *stage) unreachable(config, strict install.Config) {
	s.t.Helper()
	for listed, why := range map[string]string{"192.0.2.7": "certificate", "192.0.2.9": "no route to host"} {
		s.t.Log(why)
		s.list("192.0.2.1", listed)
		for verb, do := range map[string]func() error{
			"verify":  func() error { return strict.Verify(s.t.Context(), s.t.Output()) },
			"install": func() error { return strict.Install(s.t.Context(), s.t.Output()) },
		} {
			if err := do(); err == nil || !strings.Contains(err.Error(), listed) || !strings.Contains(err.Error(), why) || !strings.Contains(err.Error(), "--api-server") {
				s.t.Errorf("%s with %s: %v", verb, listed, err)
			}
		}
		var out strings.Builder
		if err := config.Verify(s.t.Context(), &out); err != nil || !strings.Contains(out.String(), listed) {
			s.t.Errorf("with --allow-unclear: %v\n%s", err, &out)
		}
		if err := config.Install(s.t.Context(), &out); err != nil {
			s.t.Errorf("with --allow-unclear: %v", err)
		}
		named := config
		named.APIServers = []string{s.cluster.URL()}
		out.Reset()
		if err := named.Verify(s.t.Context(), &out); err != nil || strings.Contains(out.String(), listed) {
			s.t.Errorf("with --api-server, what is listed does not count: %v\n%s", err, &out)
		}
	}
}

// Who may not list the addresses is told so.
func TestFenceWithoutTheRightToFindAPIServers(t *testing.T) {
	t.Parallel()
	s := newStage(t, fence.Lease)
	config := install.Config{RESTConfig: s.identity("a", account), Namespace: s.namespace, Lock: "lease", Elections: bootstrap.FencedElections(bootstrap.Config{DisableGatewayAPI: true}), ServiceAccounts: []string{account}, Wait: time.Second}
	for verb, do := range map[string]func() error{
		"verify":  func() error { return config.Verify(t.Context(), t.Output()) },
		"install": func() error { return config.Install(t.Context(), t.Output()) },
	} {
		var out strings.Builder
		err := do()
		if err == nil || verb == "install" && (!strings.Contains(err.Error(), "endpointslices") || !strings.Contains(err.Error(), "--api-server")) {
			t.Errorf("%s: %v\n%s", verb, err, &out)
		}
	}
}
