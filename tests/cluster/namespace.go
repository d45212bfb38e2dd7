package cluster

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/pkg/kube"
)

// NewNamespace creates a namespace with the prefix and its default service account, which Pods need.
func (c *Cluster) NewNamespace(ctx context.Context, prefix string) (string, error) {
	client, err := connect(c.admin)
	if err != nil {
		return "", err
	}
	defer kube.CloseIdleConnections(client)
	wanted := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix + "-"}}
	made, err := client.Kube().CoreV1().Namespaces().Create(ctx, wanted, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("creating a namespace %s-…: %w", prefix, err)
	}
	// The controller creates it later, or never without controllers.
	return made.Name, ensureServiceAccount(ctx, client.Kube(), made.Name, "default")
}
