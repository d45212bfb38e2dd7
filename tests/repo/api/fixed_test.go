package api

import (
	"context"
	"net/http"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/pkg/kube"
	"incumbent.dev/incumbent/pkg/revisions"
)

// Signatures of pilot/leaderelection.
var (
	_ func(namespace, name, electionID, revision string, client kube.Client) *leaderelection.LeaderElection              = leaderelection.NewLeaderElection
	_ func(namespace, name, electionID, revision string, client kube.Client) *leaderelection.LeaderElection              = leaderelection.NewLeaseLeaderElection
	_ func(namespace, name, electionID, revision string, client kube.Client) *leaderelection.LeaderElection              = leaderelection.NewPerRevisionLeaderElection
	_ func(namespace, name, electionID, revision string, remote bool, client kube.Client) *leaderelection.LeaderElection = leaderelection.NewLeaderElectionMulticluster

	_ func(*leaderelection.LeaderElection, func(stop <-chan struct{})) *leaderelection.LeaderElection = (*leaderelection.LeaderElection).AddRunFunction
	_ func(*leaderelection.LeaderElection, <-chan struct{})                                           = (*leaderelection.LeaderElection).Run
	_ func(string, *leaderelection.LeaderElection) bool                                               = leaderelection.LocationPrioritizedComparison

	_ func(kube.Client, leaderelection.Config) (*leaderelection.LeaderElection, error)                 = leaderelection.New
	_ func(*leaderelection.LeaderElection, func(context.Context) error) *leaderelection.LeaderElection = (*leaderelection.LeaderElection).AddRunContext
	_ func(*leaderelection.LeaderElection, func(context.Context) error) *leaderelection.LeaderElection = (*leaderelection.LeaderElection).AddWarmup
	_ func(*leaderelection.LeaderElection, context.Context) error                                      = (*leaderelection.LeaderElection).RunContext
	_ func(*leaderelection.LeaderElection) bool                                                        = (*leaderelection.LeaderElection).IsLeader
	_ func(*leaderelection.LeaderElection) (identity, key string)                                      = (*leaderelection.LeaderElection).Leader
	_ func(*leaderelection.LeaderElection) kube.Client                                                 = (*leaderelection.LeaderElection).Client
	_                                                                                                  = leaderelection.Config{
		Namespace: "", Identity: "", ElectionID: "", Revision: "", PerRevision: false, Remote: false, Lock: leaderelection.LockTypeConfigMap,
		LeaseDuration: time.Duration(0), RenewDeadline: time.Duration(0), RetryPeriod: time.Duration(0),
		DefaultWatcher: revisions.DefaultWatcher(nil), Disabled: false,
	}
	_ = []leaderelection.LockType{leaderelection.LockTypeConfigMap, leaderelection.LockTypeLease}
)

// Signatures of k8sleaderelection, from client-go and from the fork of Istio.
var (
	_ func(k8sleaderelection.LeaderElectionConfig) (*k8sleaderelection.LeaderElector, error) = k8sleaderelection.NewLeaderElector
	_ func(context.Context, k8sleaderelection.LeaderElectionConfig)                          = k8sleaderelection.RunOrDie
	_ func(k8sleaderelection.MetricsProvider)                                                = k8sleaderelection.SetProvider
	_                                                                                        = k8sleaderelection.LeaderElectionConfig{
		Lock: k8sresourcelock.Interface(nil), LeaseDuration: time.Duration(0), RenewDeadline: time.Duration(0), RetryPeriod: time.Duration(0),
		KeyComparison: k8sleaderelection.KeyComparisonFunc(func(existingKey string) bool { return false }),
		Callbacks: k8sleaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) {}, OnStoppedLeading: func() {}, OnNewLeader: func(identity string) {},
		},
		WatchDog: (*k8sleaderelection.HealthzAdaptor)(nil), ReleaseOnCancel: false, Name: "",
	}
	_ func(*k8sleaderelection.LeaderElector, context.Context)     = (*k8sleaderelection.LeaderElector).Run
	_ func(*k8sleaderelection.LeaderElector) bool                 = (*k8sleaderelection.LeaderElector).IsLeader
	_ func(*k8sleaderelection.LeaderElector) string               = (*k8sleaderelection.LeaderElector).GetLeader
	_ func(*k8sleaderelection.LeaderElector, time.Duration) error = (*k8sleaderelection.LeaderElector).Check

	_ func(time.Duration) *k8sleaderelection.HealthzAdaptor                     = k8sleaderelection.NewLeaderHealthzAdaptor
	_ func(*k8sleaderelection.HealthzAdaptor, *http.Request) error              = (*k8sleaderelection.HealthzAdaptor).Check
	_ func(*k8sleaderelection.HealthzAdaptor) string                            = (*k8sleaderelection.HealthzAdaptor).Name
	_ func(*k8sleaderelection.HealthzAdaptor, *k8sleaderelection.LeaderElector) = (*k8sleaderelection.HealthzAdaptor).SetLeaderElection
	_ interface {
		On(string)
		Off(string)
	} = k8sleaderelection.SwitchMetric(nil)
	_ interface {
		NewLeaderMetric() k8sleaderelection.SwitchMetric
	} = k8sleaderelection.MetricsProvider(nil)
)

// lock has the methods that a custom lock needs.
type lock interface {
	Get(context.Context) (*k8sresourcelock.LeaderElectionRecord, []byte, error)
	Create(context.Context, k8sresourcelock.LeaderElectionRecord) error
	Update(context.Context, k8sresourcelock.LeaderElectionRecord) error
	RecordEvent(string)
	Identity() string
	Describe() string
}

// Signatures of k8sresourcelock.
var (
	_ k8sresourcelock.Interface = lock(nil)
	_ k8sresourcelock.Keyed     = interface{ Key() string }(nil)
	_                           = k8sresourcelock.LeaderElectionRecord{
		HolderIdentity: "", HolderKey: "", LeaseDurationSeconds: int(0), AcquireTime: metav1.Time{}, RenewTime: metav1.Time{}, LeaderTransitions: int(0),
	}
	_ = k8sresourcelock.ResourceLockConfig{Identity: "", Key: "", EventRecorder: k8sresourcelock.EventRecorder(nil)}
	_ = []k8sresourcelock.Interface{
		&k8sresourcelock.ConfigMapLock{ConfigMapMeta: metav1.ObjectMeta{}, Client: corev1client.ConfigMapsGetter(nil), LockConfig: k8sresourcelock.ResourceLockConfig{}},
		&k8sresourcelock.LeaseLock{LeaseMeta: metav1.ObjectMeta{}, Client: coordinationv1client.LeasesGetter(nil), LockConfig: k8sresourcelock.ResourceLockConfig{}},
	}
)

// tags and follows have the methods of the watchers that callers use.
type (
	tags interface {
		Run(stopCh <-chan struct{})
		HasSynced() bool
		AddHandler(handler revisions.TagHandler)
		GetMyTags() sets.Set[string]
		IsMine(metav1.ObjectMeta) bool
	}
	follows interface {
		Run(stopCh <-chan struct{})
		HasSynced() bool
		GetDefault() string
		AddHandler(handler revisions.DefaultHandler)
	}
	client interface {
		Kube() kubernetes.Interface
		RESTConfig() *rest.Config
	}
)

// Signatures of pkg/revisions and pkg/kube.
var (
	_ func(client kube.Client, revision string, istioNamespace string) revisions.DefaultWatcher = revisions.NewDefaultWatcher
	_ func(client kube.Client, revision string, systemNamespace string) revisions.TagWatcher    = revisions.NewTagWatcher
	_ func(string)                                                                              = revisions.DefaultHandler(nil)
	_ follows                                                                                   = revisions.DefaultWatcher(nil)
	_ tags                                                                                      = revisions.TagWatcher(nil)
	_ client                                                                                    = kube.Client(nil)
	_ func(*rest.Config, ...kube.Option) (kube.Client, error)                                   = kube.NewClient
)

// Values that are part of the wire format or of manifests.
func TestFixedValues(t *testing.T) {
	for want, is := range map[string]string{
		"istio-namespace-controller-election":     leaderelection.NamespaceController,
		"istio-serviceexport-controller-election": leaderelection.ServiceExportController,
		"istio-leader":                                 leaderelection.IngressController,
		"istio-gateway-status-leader":                  leaderelection.GatewayStatusController,
		"istio-status-leader":                          leaderelection.StatusController,
		"istio-analyze-leader":                         leaderelection.AnalyzeController,
		"istio-gateway-deployment":                     leaderelection.GatewayDeploymentController,
		"istio-node-untaint":                           leaderelection.NodeUntaintController,
		"istio-clustertrustbundle-controller-election": leaderelection.ClusterTrustBundleController,
		"istio-gateway-inferencepool":                  leaderelection.InferencePoolController,
		"istio-ip-autoallocate":                        leaderelection.IPAutoallocateController,
		"control-plane.alpha.kubernetes.io/leader":     k8sresourcelock.LeaderElectionRecordAnnotationKey,
		"leader.istio.io/holder-key":                   k8sresourcelock.LeaseHolderKey,
	} {
		if is != want {
			t.Errorf("%q, want %q", is, want)
		}
	}
	if k8sleaderelection.JitterFactor != 1.2 {
		t.Error(k8sleaderelection.JitterFactor)
	}
}
