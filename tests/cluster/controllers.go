package cluster

import (
	"context"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/pkg/kube"
)

// controllersGrace limits the shutdown of the controller manager.
const controllersGrace = 2 * time.Second

// controllers are the controllers that rollouts, garbage collection, disruption budgets and permissions need.
var controllers = []string{
	"clusterrole-aggregation-controller",
	"deployment-controller",
	"disruption-controller",
	"garbage-collector-controller",
	"namespace-controller",
	"replicaset-controller",
	"root-ca-certificate-publisher-controller",
	"serviceaccount-controller",
	"validatingadmissionpolicy-status-controller",
}

// startControllers starts the controller manager and waits until it has created the objects that each namespace gets.
func (c *Cluster) startControllers(ctx context.Context) error {
	config, err := c.certified(c.api.URL(), "system:kube-controller-manager")
	if err != nil {
		return err
	}
	kubeconfig := c.folder.file(managersConfig)
	if err := WriteKubeconfig(kubeconfig, config, ""); err != nil {
		return err
	}
	c.controllers, err = c.run(controllerManagerProgram, c.controllerArguments(kubeconfig))
	if err != nil {
		return err
	}
	return c.awaitControllers(ctx)
}

// controllerArguments returns the command line.
func (c *Cluster) controllerArguments(kubeconfig string) []string {
	return []string{
		"--kubeconfig=" + kubeconfig,
		"--controllers=" + strings.Join(controllers, ","),
		// Each controller uses its own service account, as in a real cluster. Policies need this to identify the
		// namespace controller.
		"--use-service-account-credentials=true",
		"--root-ca-file=" + c.folder.file(caFile),
		"--leader-elect=false",
		"--secure-port=0",
		// The default of 20 requests per second is too slow for tests.
		"--kube-api-qps=1000",
		"--kube-api-burst=1000",
	}
}

func (c *Cluster) awaitControllers(ctx context.Context) error {
	client, err := connect(c.admin)
	if err != nil {
		return err
	}
	defer kube.CloseIdleConnections(client)
	core := client.Kube().CoreV1()
	return await(ctx, "the controllers work", c.controllers, func(ctx context.Context) error {
		_, err := core.ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		if err != nil {
			return err
		}
		_, err = core.ConfigMaps(metav1.NamespaceDefault).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
		return err
	})
}
