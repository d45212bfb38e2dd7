package install

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/testutil/apiserver"
)

// slice lists addresses. The prefix "!" means not ready, "?" that readiness is unknown.
func slice(ports []discoveryv1.EndpointPort, addresses ...string) discoveryv1.EndpointSlice {
	s := discoveryv1.EndpointSlice{Ports: ports}
	for _, address := range addresses {
		ready := !strings.HasPrefix(address, "!")
		endpoint := discoveryv1.Endpoint{Addresses: []string{strings.TrimLeft(address, "!?")}}
		if !strings.HasPrefix(address, "?") {
			endpoint.Conditions.Ready = &ready
		}
		s.Endpoints = append(s.Endpoints, endpoint)
	}
	return s
}

func port(name string, number int32) discoveryv1.EndpointPort {
	return discoveryv1.EndpointPort{Name: &name, Port: &number}
}

// listing is an API server that lists others. The test answers all other requests.
func listing(answer func(apiserver.Request) apiserver.Fault, listed ...discoveryv1.EndpointSlice) *rest.Config {
	return stubbed(func(r apiserver.Request) apiserver.Fault {
		if r.String() != "list endpointslices default" || listed == nil {
			return answer(r)
		}
		if r.URL.Query().Get("labelSelector") != "kubernetes.io/service-name=kubernetes" {
			return apiserver.Fault{Err: errors.New("wrong label selector")}
		}
		return apiserver.Fault{Object: discoveryv1.EndpointSliceList{
			TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSliceList"}, Items: listed,
		}}
	})
}

func TestAddressesOfSlice(t *testing.T) {
	number := int32(7)
	for name, x := range map[string]struct {
		slice discoveryv1.EndpointSlice
		want  []string
	}{
		"several":    {slice([]discoveryv1.EndpointPort{port("https", 6443)}, "10.0.0.1", "?fd00::2"), []string{"https://10.0.0.1:6443", "https://[fd00::2]:6443"}},
		"not ready":  {slice([]discoveryv1.EndpointPort{port("https", 6443)}, "!10.0.0.1", "10.0.0.2"), []string{"https://10.0.0.2:6443"}},
		"other port": {slice([]discoveryv1.EndpointPort{port("metrics", 1), port("https", 2)}, "10.0.0.1"), []string{"https://10.0.0.1:2"}},
		"no name":    {slice([]discoveryv1.EndpointPort{{Port: &number}}, "10.0.0.1"), []string{"https://10.0.0.1:7"}},
		"empty name": {slice([]discoveryv1.EndpointPort{port("", 3)}, "10.0.0.1"), []string{"https://10.0.0.1:3"}},
		"no number":  {slice([]discoveryv1.EndpointPort{{}, port("https", 2)}, "10.0.0.1"), []string{"https://10.0.0.1:2"}},
		"empty":      {slice(nil), nil},
	} {
		if got := addressesOf(x.slice); !slices.Equal(got, x.want) {
			t.Errorf("%s: %q, want %q", name, got, x.want)
		}
	}
}

func TestConfig_APIServers(t *testing.T) {
	https := []discoveryv1.EndpointPort{port("https", 6443)}
	three := []discoveryv1.EndpointSlice{slice(https, "10.0.0.3", "10.0.0.1"), slice(https, "10.0.0.2", "10.0.0.3")}
	except := func(unreachable string) func(apiserver.Request) apiserver.Fault {
		return func(r apiserver.Request) apiserver.Fault {
			if r.URL.Hostname() == unreachable || r.URL.Path != "/version" {
				return away(r)
			}
			return apiserver.Fault{Object: map[string]string{"major": "1"}}
		}
	}
	both := []string{"https://10.0.0.2:6443", "https://10.0.0.3:6443"}
	for name, x := range map[string]struct {
		config *rest.Config
		given  []string
		want   []string
		found  map[string]string // reasons by server
	}{
		"all listed":   {config: listing(except(""), three...), want: both},
		"no others":    {config: listing(except(""), slice(https, "10.0.0.1"))},
		"given":        {config: listing(except("10.0.0.9"), three...), given: []string{"https://10.0.0.9"}, want: []string{"https://10.0.0.9"}},
		"unreachable":  {config: listing(except("10.0.0.2"), three...), want: both[1:], found: map[string]string{both[0]: "; run this command where"}},
		"list refused": {config: listing(except("")), found: map[string]string{"https://10.0.0.1:6443": "; give them with --api-server"}},
	} {
		synctest.Test(t, func(t *testing.T) { // each server must answer within reachTimeout
			got, findings := Config{APIServers: x.given}.apiServers(t.Context(), clientOf(t, x.config))
			if !slices.Equal(hosts(got), x.want) || len(findings) != len(x.found) {
				t.Errorf("%s: %q, %v", name, hosts(got), findings)
			}
			for _, c := range got {
				if want := map[bool]string{false: "10.0.0.1"}[len(x.given) > 0]; c.ServerName != want {
					t.Errorf("%s: server name %q of %s", name, c.ServerName, c.Host)
				}
			}
			for _, f := range findings {
				if f.Verdict != Undecided || x.found[f.Server] == "" || !strings.Contains(f.Why, x.found[f.Server]) || !strings.Contains(f.Why, errAway.Error()) {
					t.Errorf("%s: %v of %s", name, f, f.Server)
				}
			}
		})
	}
}

func TestServerName(t *testing.T) {
	for want, config := range map[string]*rest.Config{
		"api.example": {Host: "https://api.example:6443"}, "no-port.example": {Host: "no-port.example"},
		"given": {Host: "https://10.0.0.1", TLSClientConfig: rest.TLSClientConfig{ServerName: "given"}},
	} {
		if got, err := serverName(config); err != nil || got != want {
			t.Errorf("%q, want %q: %v", got, want, err)
		}
	}
	if _, err := serverName(&rest.Config{Host: "https://%zz"}); err == nil || !strings.Contains(err.Error(), `"https://%zz"`) {
		t.Errorf("invalid address: %v", err)
	}
}

func TestReach_Silent(t *testing.T) {
	gone := errors.New("the caller is gone")
	silent := stubbed(func(apiserver.Request) apiserver.Fault { return apiserver.Fault{Hang: true} })
	for want, cancels := range map[string]time.Duration{"no response within 5s": reachTimeout + 1, gone.Error(): time.Second} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			time.AfterFunc(cancels, func() { cancel(gone) })
			began := time.Now()
			err := reach(ctx, silent)
			if took := time.Since(began); took != min(cancels, reachTimeout) || err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("after %v: %v, want %s", took, err, want)
			}
		})
	}
}
