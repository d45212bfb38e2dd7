package cluster_test

import (
	"testing"

	"k8s.io/client-go/kubernetes"

	"incumbent.dev/incumbent/tests/cluster"
)

func client(t *testing.T, c *cluster.Cluster) *kubernetes.Clientset {
	t.Helper()
	client, err := kubernetes.NewForConfig(c.Admin())
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func TestTheAPIServerTellsItsVersion(t *testing.T) {
	version, err := client(t, cluster.Shared(t)).ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	if version.Major != "1" || version.Minor == "" {
		t.Errorf("the version is %+v", version)
	}
	t.Log(version)
}
