package conformance

import (
	"context"
	"embed"
	"io/fs"
	"slices"
	"testing"

	"go.opencensus.io/stats/view"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/gateway-api/apis/v1beta1"
	upstream "sigs.k8s.io/gateway-api/conformance"
	"sigs.k8s.io/gateway-api/conformance/tests"
	"sigs.k8s.io/gateway-api/conformance/utils/kubernetes"
	"sigs.k8s.io/gateway-api/conformance/utils/suite"
	"sigs.k8s.io/gateway-api/pkg/features"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/tests/cluster"
)

//go:embed manifests
var own embed.FS

// selected lists the tests to run. The first are core tests.
var selected = []string{
	"GatewayClassObservedGenerationBump",
	"GatewayInvalidRouteKind",
	"GatewayInvalidTLSConfiguration",
	"GatewayListenerUnsupportedProtocol",
	"GatewayModifyListeners",
	"GatewayObservedGenerationBump",
	"GatewaySecretInvalidReferenceGrant",
	"GatewaySecretMissingReferenceGrant",
	"GatewaySecretReferenceGrantAllInNamespace",
	"GatewaySecretReferenceGrantSpecific",
	"GatewayWithAttachedRoutes",
	"HTTPRouteDisallowedKind",
	"HTTPRouteInvalidCrossNamespaceParentRef",
	"HTTPRouteInvalidParentRefNotMatchingSectionName",
	"HTTPRouteObservedGenerationBump",
	"TLSRouteInvalidNoMatchingListener",
	"TLSRouteInvalidNoMatchingListenerHostname",
	"TLSRouteInvalidReferenceGrant",
	"TLSRouteListenerPassthroughSupportedKinds",
	// Extended features.
	"GatewayInfrastructureMetadata",
	"GatewayInvalidParametersRef",
	"GatewayOptionalAddressValue",
	"GatewayWithAttachedRoutesWithPort8080",
	"HTTPRouteInvalidParentRefNotMatchingListenerPort",
	"HTTPRouteInvalidParentRefSectionNameNotMatchingPort",
	"TCPRouteInvalidBackendRefNonexistent",
	"TCPRouteInvalidNonTCPListener",
	"TLSRouteListenerTerminateSupportedKinds",
	"UDPRouteInvalidBackendRefNonexistent",
	"UDPRouteNotAllowedByListeners",
}

func TestMain(m *testing.M) {
	// istio.io/pkg/log starts OpenCensus' worker when it is imported.
	view.Stop()
	cluster.Main(m, cluster.Options{})
}

// TestConformance runs the tests with a fixed and with a periodically changing default revision.
func TestConformance(t *testing.T) {
	for _, flips := range []bool{false, true} {
		t.Run(map[bool]string{false: "steady", true: "flipping"}[flips], func(t *testing.T) {
			s := newSuite(t, flips)
			for _, name := range selected {
				i := slices.IndexFunc(tests.ConformanceTests, func(one suite.ConformanceTest) bool { return one.ShortName == name })
				if i < 0 {
					t.Errorf("the suite has no test %s", name)
					continue
				}
				t.Run(name, func(t *testing.T) {
					tests.ConformanceTests[i].Run(t, s)
					if t.Skipped() {
						t.Errorf("skipped: a required feature is not claimed")
					}
				})
			}
		})
	}
}

// newSuite starts the servers and prepares the suite. It does not use the setup of the suite, which waits
// for proxies.
func newSuite(t *testing.T, flips bool) *suite.ConformanceTestSuite {
	t.Helper()
	c := cluster.Shared(t)
	must(t, c.LoadGatewayAPI(t.Context()))
	known := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, gateway.Install, v1beta1.Install, apiextensions.AddToScheme} {
		must(t, add(known))
	}
	admin := c.Client(t)
	api, err := client.New(admin.RESTConfig(), client.Options{Scheme: known})
	must(t, err)
	s, err := suite.NewConformanceTestSuite(suite.ConformanceOptions{
		ConfigurableOptions: suite.ConfigurableOptions{
			GatewayClassName: "istio", CleanupTestResources: true, DisableParallelTests: true,
			SupportedFeatures: []features.FeatureName{
				features.SupportGateway, features.SupportHTTPRoute, features.SupportReferenceGrant, features.SupportGatewayAddressEmpty,
				features.SupportGatewayInfrastructure, features.SupportGatewayPort8080, features.SupportHTTPRouteParentRefPort,
				features.SupportHTTPRouteDestinationPortMatching, features.SupportTCPRoute, features.SupportTLSRoute,
				features.SupportTLSRouteModeTerminate, features.SupportUDPRoute,
			},
		},
		Client: api, Clientset: admin.Kube(), RestConfig: admin.RESTConfig(), ManifestFS: []fs.FS{&upstream.Manifests, own},
	})
	must(t, err)
	t.Cleanup(func() {
		all := &gateway.GatewayList{}
		if t.Failed() && api.List(context.WithoutCancel(t.Context()), all) == nil {
			for _, g := range all.Items {
				t.Logf("Gateway %s: %+v", g.Name, g.Status)
			}
		}
	})
	control(t, c, admin, flips)
	// The suite does not wait for the class.
	harness.Until(t, "class exists", func() bool {
		return api.Get(t.Context(), types.NamespacedName{Name: "istio"}, &gateway.GatewayClass{}) == nil
	})
	s.ControllerName = kubernetes.GWCMustHaveAcceptedConditionTrue(t, api, s.TimeoutConfig, "istio")
	s.Applier.ManifestFS, s.Applier.GatewayClass, s.Applier.ControllerName = s.ManifestFS, "istio", s.ControllerName
	s.Applier.MustApplyWithCleanup(t, api, s.TimeoutConfig, "manifests/base.yaml", false)
	simulateNodes(t, admin)
	for _, secret := range []struct{ namespace, name string }{
		{suite.WebBackendNamespace, "certificate"}, {suite.InfrastructureNamespace, "tls-validity-checks-certificate"},
	} {
		o := kubernetes.MustCreateSelfSignedCertSecret(t, secret.namespace, secret.name, []string{"*"})
		s.Applier.MustApplyObjectsWithCleanup(t, api, s.TimeoutConfig, []client.Object{o}, false)
	}
	kubernetes.NamespacesMustBeReady(t, api, s.TimeoutConfig, []string{suite.InfrastructureNamespace})
	return s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
