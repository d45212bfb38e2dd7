package cluster

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/tests/cluster/internal/process"
)

// controllersGrace is how long the controller manager has to end.
const controllersGrace = 2 * time.Second

// controllers are those that rollouts, clean-up and permissions need; others would only take
// time from what is tested.
var controllers = []string{
	"clusterrole-aggregation-controller",
	"deployment-controller",
	"garbage-collector-controller",
	"namespace-controller",
	"replicaset-controller",
	"root-ca-certificate-publisher-controller",
	"serviceaccount-controller",
	"validatingadmissionpolicy-status-controller",
}

// sliceController is the one that Options.Services asks for.
const sliceController = "endpointslice-controller"

// controllers are those that run.
func (o Options) controllers() string {
	all := strings.Join(controllers, ",")
	if o.Services {
		all += "," + sliceController
	}
	return all
}

// startControllers starts the controller manager and waits until it has made what
// every namespace gets.
func (c *Cluster) startControllers(ctx context.Context) error {
	config, err := c.certified(c.api.URL(), "system:kube-controller-manager")
	if err != nil {
		return err
	}
	kubeconfig := c.folder.file(managersConfig)
	if err := WriteKubeconfig(kubeconfig, config, ""); err != nil {
		return err
	}
	c.controllers, err = process.Start(process.Spec{
		Name: controllerManagerProgram,
		Path: filepath.Join(c.assets, controllerManagerProgram),
		Args: c.controllerArguments(kubeconfig),
		Env:  serverEnvironment(),
		Dir:  c.folder.path,
		Log:  c.folder.file(controllerManagerProgram + ".log"),
	})
	if err != nil {
		return err
	}
	return c.awaitControllers(ctx)
}

// controllerArguments puts the command line together.
func (c *Cluster) controllerArguments(kubeconfig string) []string {
	return []string{
		"--kubeconfig=" + kubeconfig,
		"--controllers=" + c.options.controllers(),
		// Each controller is its own service account, as in a real cluster: policies
		// that know the namespace controller by its name see it here too.
		"--use-service-account-credentials=true",
		"--root-ca-file=" + c.folder.file(caFile),
		"--leader-elect=false",
		"--secure-port=0",
		// The default of 20 requests per second is for sharing an API server.
		"--kube-api-qps=1000",
		"--kube-api-burst=1000",
	}
}

func (c *Cluster) awaitControllers(ctx context.Context) error {
	client, done, err := c.shortLived()
	if err != nil {
		return err
	}
	defer done()
	return await(ctx, "the controllers work", c.controllers, func(ctx context.Context) error {
		_, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		if err != nil {
			return err
		}
		_, err = client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
		return err
	})
}

// shortLived is an admin's client whose connections end with done.
func (c *Cluster) shortLived() (client *kubernetes.Clientset, done func(), err error) {
	config := c.Admin()
	http, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, nil, fmt.Errorf("making the cluster's own client: %w", err)
	}
	client, err = kubernetes.NewForConfigAndClient(config, http)
	if err != nil {
		return nil, nil, fmt.Errorf("making the cluster's own client: %w", err)
	}
	// Not the client's own method, which does not look below client-go's wrappers.
	return client, func() { utilnet.CloseIdleConnectionsFor(http.Transport) }, nil
}
