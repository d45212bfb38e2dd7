package rollout

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"sync"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	gatewayclient "sigs.k8s.io/gateway-api/pkg/client/clientset/versioned/typed/apis/v1"

	"incumbent.dev/incumbent/internal/audit"
	"incumbent.dev/incumbent/internal/testutil/auditlog"
	"incumbent.dev/incumbent/internal/testutil/certs"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pkg/kube"
	"incumbent.dev/incumbent/tests/cluster"
	"incumbent.dev/incumbent/tests/cluster/node"
	"incumbent.dev/incumbent/tests/upgrade/verdict"
	"incumbent.dev/incumbent/tests/upgrade/workload"
)

const (
	// Namespace is the control plane's namespace.
	Namespace = "istio-system"
	// NamespaceElection is the election of the namespace controller.
	NamespaceElection = leaderelection.NamespaceController

	bundleName = "istio-ca-root-cert"
	bundleKey  = "root-cert.pem"
	image      = "pilot"
	proxyImage = "auto"
)

// Rollout is a cluster with a control plane.
type Rollout struct {
	options Options
	Cluster *cluster.Cluster
	Node    *node.Node
	Kube    kubernetes.Interface

	client   kube.Client
	gateways gatewayclient.GatewayV1Interface
	bundle   string
	address  string // of the ingress gateway's Service

	requests *workload.Requests
	writer   *workload.Writer
	log      *auditlog.Tail
	writes   *audit.Log

	// End stops the load, then the Pods, then the rest.
	stopLoad, stopPods context.CancelFunc
	load, pods         sync.WaitGroup

	loaded bool

	mu      sync.Mutex
	failure error
}

// Start starts the cluster. The caller must call End, also after an error.
func Start(ctx context.Context, options Options) (*Rollout, error) {
	nothing := func() {}
	r := &Rollout{options: options.withDefaults(), stopLoad: nothing, stopPods: nothing}
	if err := r.startCluster(ctx); err != nil {
		return r, err
	}
	if err := r.startPods(ctx); err != nil {
		return r, err
	}
	if r.options.Bare {
		return r, nil
	}
	return r, r.putObjects(ctx)
}

func (r *Rollout) startCluster(ctx context.Context) error {
	var err error
	args := []string{"--service-cluster-ip-range=10.96.0.0/16"} // each Gateway has a Service
	if r.options.Coordinated || r.options.LeaseCandidates {
		args = append(args, "--feature-gates=CoordinatedLeaderElection=true", "--runtime-config=coordination.k8s.io/v1beta1=true")
	}
	r.Cluster, err = cluster.Start(ctx, cluster.Options{
		Module: filepath.Join(r.options.Charts, "..", ".."), Audit: true, AuditPolicy: auditPolicy, APIServerArgs: args,
	})
	if err != nil {
		return err
	}
	config := r.Cluster.Admin()
	config.WarningHandler = rest.NoWarnings{}
	if r.client, err = kube.NewClient(config, kube.WithOwnConnections()); err != nil {
		return err
	}
	r.Kube = r.client.Kube()
	if r.gateways, err = gatewayclient.NewForConfig(r.client.RESTConfig()); err != nil {
		return fmt.Errorf("create client: %w", err)
	}
	return r.Cluster.LoadGatewayAPI(ctx)
}

// fail records that a part ended unexpectedly.
func (r *Rollout) fail(what string, err error) {
	if err == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failure = errors.Join(r.failure, fmt.Errorf("%s: %w", what, err))
}

func (r *Rollout) broken() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failure
}

func (r *Rollout) startPods(ctx context.Context) error {
	images := map[string]string{image: r.options.Pilot, proxyImage: r.options.Dataplane}
	maps.Copy(images, r.options.Images)
	var err error
	r.Node, err = node.New(node.Options{
		Config: r.Cluster.Admin(), Dir: filepath.Join(r.Cluster.Dir(), "pods"), Images: images, LoadBalancer: true,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
	})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	r.stopPods = stop
	r.pods.Go(func() { r.fail("node ended", r.Node.Run(ctx)) })
	authority, err := certs.NewAuthority("incumbent tests")
	if err != nil {
		return err
	}
	r.bundle = string(authority.PEM)
	if err := os.WriteFile(r.BundleFile(), authority.PEM, 0o600); err != nil {
		return fmt.Errorf("write CA bundle: %w", err)
	}
	return nil
}

// BundleFile returns the path of the CA bundle that the control plane distributes.
func (r *Rollout) BundleFile() string { return filepath.Join(r.Cluster.Dir(), "bundle.pem") }

// End stops everything.
func (r *Rollout) End() error {
	r.stopLoad()
	r.load.Wait()
	r.stopPods()
	r.pods.Wait()
	errs := []error{r.broken()}
	if r.log != nil {
		errs = append(errs, r.log.File.Close())
	}
	if r.client != nil {
		kube.CloseIdleConnections(r.client)
	}
	if r.Cluster != nil {
		errs = append(errs, r.Cluster.Stop())
	}
	return errors.Join(errs...)
}

// StartLoad starts the writer and the requests.
func (r *Rollout) StartLoad(ctx context.Context) error {
	var urls []string
	if !r.options.WithoutGateways {
		var err error
		if urls, err = r.AwaitGateways(ctx); err != nil {
			return err
		}
	}
	r.requests = &workload.Requests{URLs: urls, Every: betweenRequests, Drain: linger + drain}
	r.writer = &workload.Writer{
		Objects: r.client.Dynamic(), Seed: r.options.Seed, Bundle: bundleName, WithoutGateways: r.options.WithoutGateways,
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	r.stopLoad = stop
	r.loaded = true
	if len(urls) > 0 {
		r.load.Go(func() { r.requests.Run(ctx) })
	}
	r.load.Go(func() { r.fail("writer ended", r.writer.Run(ctx)) })
	r.Step(fmt.Sprintf("start the writer with seed %d, and requests to %d Gateways", r.options.Seed, len(urls)))
	return nil
}

// StopLoad stops the writer and the requests.
func (r *Rollout) StopLoad() error {
	r.stopLoad()
	r.load.Wait()
	r.loaded = false
	return r.broken()
}

// Requests returns the results of the requests so far.
func (r *Rollout) Requests() verdict.Requests {
	if r.requests == nil {
		return verdict.Requests{}
	}
	return r.requests.Results()
}
