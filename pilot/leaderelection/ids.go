package leaderelection

import "time"

// The elections of an istiod-like control plane. The values are the names of lock
// objects in clusters today, and must not change.
const (
	NamespaceController          = "istio-namespace-controller-election"
	ServiceExportController      = "istio-serviceexport-controller-election"
	IngressController            = "istio-leader"
	GatewayStatusController      = "istio-gateway-status-leader"
	StatusController             = "istio-status-leader"
	AnalyzeController            = "istio-analyze-leader"
	GatewayDeploymentController  = "istio-gateway-deployment" // per revision: "-<revision>" is appended
	NodeUntaintController        = "istio-node-untaint"
	ClusterTrustBundleController = "istio-clustertrustbundle-controller-election"
	InferencePoolController      = "istio-gateway-inferencepool"
	IPAutoallocateController     = "istio-ip-autoallocate"
	// Coordinator is the election of the coordinator, which chooses the leaders of coordinated elections; istiod has none.
	Coordinator = "incumbent-coordinator"
)

// The timing of elections, as istiod's.
const (
	DefaultLeaseDuration = 30 * time.Second
	DefaultRenewDeadline = 15 * time.Second
	DefaultRetryPeriod   = 7500 * time.Millisecond
)
