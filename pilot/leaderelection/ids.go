package leaderelection

import "incumbent.dev/incumbent/internal/environment"

// IDs of the elections of a control plane. They are the names of lock objects in existing clusters
// and must not change.
const (
	NamespaceController          = "istio-namespace-controller-election"
	ServiceExportController      = "istio-serviceexport-controller-election"
	IngressController            = "istio-leader"
	GatewayStatusController      = "istio-gateway-status-leader"
	StatusController             = "istio-status-leader"
	AnalyzeController            = "istio-analyze-leader"
	GatewayDeploymentController  = "istio-gateway-deployment" // per revision
	NodeUntaintController        = "istio-node-untaint"
	ClusterTrustBundleController = "istio-clustertrustbundle-controller-election"
	InferencePoolController      = "istio-gateway-inferencepool"
	IPAutoallocateController     = "istio-ip-autoallocate"
	// Coordinator is the election of the coordinator, which chooses the leaders of coordinated elections. istiod has none.
	Coordinator = "incumbent-coordinator"
)

// Default timing of elections. istiod uses the same values.
const (
	DefaultLeaseDuration = environment.DefaultLeaseDuration
	DefaultRetryPeriod   = environment.DefaultRetryPeriod
)
