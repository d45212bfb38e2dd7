package bootstrap

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pkg/kube"
)

func TestConfigDefaults(t *testing.T) {
	got := Config{Config: leaderelection.Config{Logger: quiet}}.withDefaults()
	want := Config{QPS: 40, Burst: 60, IngressMode: "STRICT", IngressClass: "istio", IngressService: "istio-ingressgateway", LockType: "configmap"}
	want.Config = leaderelection.Config{StopLimit: 20 * time.Second, Revision: "default", Logger: quiet}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	given := Config{QPS: -1, Burst: 2, IngressMode: "OFF", IngressClass: "c", IngressService: "s", LockType: "lease"}
	given.Config = leaderelection.Config{StopLimit: time.Second, Revision: "r", Logger: quiet}
	if got := given.withDefaults(); !reflect.DeepEqual(got, given) {
		t.Errorf("given values became %+v", got)
	}
	if (Config{}).withDefaults().Logger == nil {
		t.Error("no logger")
	}
}

func TestConfigErrors_NameTheFlag(t *testing.T) {
	for want, spoil := range map[string]func(*Config){
		"--namespace is empty":        func(c *Config) { c.Namespace = "" },
		"--namespace=\"No\"":          func(c *Config) { c.Namespace = "No" },
		"--identity is empty":         func(c *Config) { c.Identity = "" },
		"--identity=":                 func(c *Config) { c.Identity = strings.Repeat("x", 254) },
		"--revision=\"1.2\"":          func(c *Config) { c.Revision = "1.2" },
		"--address=":                  func(c *Config) { c.Address = "15014" },
		"--debug-address=":            func(c *Config) { c.DebugAddress = "15016" },
		"--ca-bundle":                 func(c *Config) { c.CABundle = "" },
		"--discovery-selector":        func(c *Config) { c.DiscoverySelectors = []string{"a in b"} },
		"--excluded-namespaces":       func(c *Config) { c.ExcludedNamespaces = []string{"A"} },
		"--gateway-objects":           func(c *Config) { c.GatewayObjects = []string{"deployment"} },
		"--gateway-overlay-fields":    func(c *Config) { c.GatewayOverlayFields = []string{"deployment.a"} },
		"--ingress-controller-mode":   func(c *Config) { c.IngressMode = "sometimes" },
		"--ingress-service=\"A.b\"":   func(c *Config) { c.IngressService = "A.b" },
		"--ingress-service=\"a/b/c\"": func(c *Config) { c.IngressService = "a/b/c" },
		"--ingress-service=\"A/b\"":   func(c *Config) { c.IngressService = "A/b" },
		"--ingress-service=\"a/\"":    func(c *Config) { c.IngressService = "a/" },
		"--ingress-selector=\"a/b\"":  func(c *Config) { c.IngressSelector = "a/b" },
		"K8S_INGRESS_NS=\"A\"":        func(c *Config) { c.IngressNamespace = "A" },
		"--ingress-service=a and --ingress-selector=b are set": func(c *Config) { c.IngressService, c.IngressSelector = "a", "b" },
		"--lock":                      func(c *Config) { c.LockType = "endpoints" },
		"--election-strategy=S":       func(c *Config) { c.ElectionStrategy = "S" },
		"StopLimit -4ns: must not be": func(c *Config) { c.StopLimit = -4 },
		"--kube-burst=-5 is negative": func(c *Config) { c.Burst = -5 },
		"LeaseDuration -1ns: must be": func(c *Config) { c.LeaseDuration = -1 },
		"RenewDeadline -2ns must be":  func(c *Config) { c.RenewDeadline = -2 },
		"RetryPeriod -3ns: must be":   func(c *Config) { c.RetryPeriod = -3 },
		"--renew-deadline":            func(c *Config) { c.RenewDeadline = time.Hour },
		"--retry-period":              func(c *Config) { c.RetryPeriod = time.Hour },
		"--lease-duration":            func(c *Config) { c.LeaseDuration = 1500 * time.Millisecond },
		"remote cluster: read kubeconfig /no/such/file: no such file or directory; set --remote-kubeconfig=FILE": func(c *Config) { c.RemoteKubeconfig = "/no/such/file" },
		"no-such-file":      func(c *Config) { c.RESTConfig, c.Kubernetes = nil, kube.Source{Path: "/no-such-file"} },
		"invalid URL":       func(c *Config) { c.RESTConfig = &rest.Config{Host: "https://%zz"} },
		"--lock=lease":      func(c *Config) { c.ElectionStrategy = "S" },
		"strategy \"Zone\"": func(c *Config) { c.ElectionStrategy, c.LockType = "Zone", "lease" },
		"higher than binary version": func(c *Config) {
			c.ElectionStrategy, c.LockType, c.EmulationVersion = "incumbent.dev/DefaultRevision", "lease", "9.0.0"
		},
	} {
		t.Run(want, func(t *testing.T) {
			config := goodConfig()
			spoil(&config)
			s, err := New(config)
			if err == nil || s != nil || !strings.Contains(err.Error(), want) || strings.Count(err.Error(), want) != 1 {
				t.Errorf("error %v", err)
			}
		})
	}
	if _, err := New(goodConfig()); err != nil {
		t.Error(err)
	}
}
