package rollout

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	gatewayclient "sigs.k8s.io/gateway-api/pkg/client/clientset/versioned/typed/apis/v1"

	"incumbent.dev/incumbent/internal/testutil/certs"
	"incumbent.dev/incumbent/tests/cluster"
	"incumbent.dev/incumbent/tests/cluster/balancer"
	"incumbent.dev/incumbent/tests/cluster/node"
	"incumbent.dev/incumbent/tests/upgrade/verdict"
	"incumbent.dev/incumbent/tests/upgrade/workload"
)

const (
	// Home is the control plane's namespace.
	Home = "istio-system"

	bundleName = "istio-ca-root-cert"
	bundleKey  = "root-cert.pem"
	image      = "pilot"
	proxyImage = "auto"
	// headerTimeout bounds the wait for the header of a request to the backend.
	headerTimeout = 10 * time.Second
)

// Rollout is a cluster in which a control plane is upgraded.
type Rollout struct {
	options Options
	Cluster *cluster.Cluster
	Node    *node.Node
	Kube    kubernetes.Interface

	objects  dynamic.Interface
	gateways gatewayclient.GatewayV1Interface
	http     *http.Client
	backend  string
	bundle   string
	address  string // of the ingress gateway's Service

	requests *workload.Requests
	writer   *workload.Writer
	logs     []*auditLog

	// What is stopped in this order, each before the next: the work, the pods, and what serves them.
	stopWork, stopPods, stopParts context.CancelFunc
	work, pods, parts             sync.WaitGroup

	working bool

	mu      sync.Mutex
	failure error
}

// Start starts the cluster. What it returns is to be ended even beside an error.
func Start(ctx context.Context, options Options) (*Rollout, error) {
	nothing := func() {}
	r := &Rollout{options: options.withDefaults(), stopWork: nothing, stopPods: nothing, stopParts: nothing}
	if err := r.startCluster(ctx); err != nil {
		return r, err
	}
	if err := r.startParts(ctx); err != nil {
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
	r.Cluster, err = cluster.Start(ctx, cluster.Options{
		Assets: r.options.Programs, Services: true, Audit: true, AuditPolicy: verdict.Policy,
		APIServerArgs: []string{"--service-cluster-ip-range=10.96.0.0/16"}, // each Gateway has a Service
	})
	if err != nil {
		return err
	}
	config := r.Cluster.Admin()
	config.WarningHandler = rest.NoWarnings{}
	if r.http, err = rest.HTTPClientFor(config); err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	if r.Kube, err = kubernetes.NewForConfigAndClient(config, r.http); err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	if r.objects, err = dynamic.NewForConfigAndClient(config, r.http); err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	if r.gateways, err = gatewayclient.NewForConfigAndClient(config, r.http); err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	return r.Cluster.LoadGatewayAPI(ctx)
}

// startParts starts the load balancer, and the backend of all requests.
func (r *Rollout) startParts(ctx context.Context) error {
	balance, err := balancer.New(balancer.Options{Config: r.Cluster.Admin()})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listening for the backend: %w", err)
	}
	r.backend = "http://" + listener.Addr().String()
	server := &http.Server{ReadHeaderTimeout: headerTimeout, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "hello")
	})}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	r.stopParts = func() { stop(); _ = server.Close() }
	r.parts.Go(func() { r.fail("the load balancer has ended", balance.Run(ctx)) })
	r.parts.Go(func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			r.fail("the backend has ended", err)
		}
	})
	return nil
}

// fail notes that a part has ended by itself.
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

func (r *Rollout) images() map[string]string {
	images := map[string]string{image: r.options.Pilot, proxyImage: r.options.Dataplane}
	for name, program := range r.options.Images {
		images[name] = program
	}
	return images
}

// FarNode is the name of the node that StartFarNode starts.
const FarNode = "far"

// StartFarNode starts a node that knows the cluster by an API server of its own, and the pods on it with it: when that one
// is paused, they are cut off, with their connections open. It runs the pods of releases that name it.
func (r *Rollout) StartFarNode(ctx context.Context) (*cluster.APIServer, error) {
	server, err := r.Cluster.AddAPIServer(ctx)
	if err != nil {
		return nil, err
	}
	far, err := node.New(node.Options{
		Config: server.Admin(), Name: FarNode, Dir: filepath.Join(r.Cluster.Dir(), "pods", FarNode), Images: r.images(), PodNetwork: true, BoundOnly: true,
	})
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	first := r.stopPods
	r.stopPods = func() { first(); stop() }
	r.pods.Go(func() { r.fail("the far node has ended", far.Run(ctx)) })
	return server, nil
}

func (r *Rollout) startPods(ctx context.Context) error {
	var err error
	r.Node, err = node.New(node.Options{
		Config: r.Cluster.Admin(), Dir: filepath.Join(r.Cluster.Dir(), "pods"), Images: r.images(), PodNetwork: true,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
	})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	r.stopPods = stop
	r.pods.Go(func() { r.fail("the node has ended", r.Node.Run(ctx)) })
	authority, err := certs.NewAuthority("incumbent tests")
	if err != nil {
		return err
	}
	r.bundle = string(authority.PEM)
	if err := os.WriteFile(r.BundleFile(), authority.PEM, 0o600); err != nil {
		return fmt.Errorf("writing the CA bundle: %w", err)
	}
	return nil
}

// BundleFile is where the CA bundle lies that the servers spread.
func (r *Rollout) BundleFile() string { return filepath.Join(r.Cluster.Dir(), "bundle.pem") }

// End ends everything.
func (r *Rollout) End(ctx context.Context) error {
	r.stopWork()
	r.work.Wait()
	r.stopPods()
	r.pods.Wait()
	r.stopParts()
	r.parts.Wait()
	errs := []error{r.broken()}
	for _, log := range r.logs {
		errs = append(errs, log.close())
	}
	if r.http != nil {
		utilnet.CloseIdleConnectionsFor(r.http.Transport)
	}
	if r.Cluster != nil {
		errs = append(errs, r.Cluster.Stop())
	}
	return errors.Join(errs...)
}

// Work starts the writer and the requests, which go on until Rest.
func (r *Rollout) Work(ctx context.Context) error {
	var urls []string
	if !r.options.WithoutGateways {
		var err error
		if urls, err = r.awaitSample(ctx); err != nil {
			return err
		}
	}
	r.requests = &workload.Requests{URLs: urls, Every: betweenRequests, Drain: Linger + Drain}
	r.writer = &workload.Writer{
		Kube: r.Kube, Gateways: r.gateways, Seed: r.options.Seed, Every: betweenWrites, Bundle: bundleName, Most: 6,
		WithoutGateways: r.options.WithoutGateways,
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	r.stopWork, r.working = stop, true
	if len(urls) > 0 {
		r.work.Go(func() { r.requests.Run(ctx) })
	}
	r.work.Go(func() { r.fail("the writer has ended", r.writer.Run(ctx)) })
	r.say("the writer begins, with seed %d, and requests to %d Gateways", r.options.Seed, len(urls))
	return nil
}

// Rest ends the work.
func (r *Rollout) Rest() error {
	r.stopWork()
	r.work.Wait()
	r.working = false
	return r.broken()
}

// Requests is how the requests went so far.
func (r *Rollout) Requests() verdict.Requests {
	if r.requests == nil {
		return verdict.Requests{}
	}
	return r.requests.SoFar()
}
