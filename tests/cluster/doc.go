// Package cluster runs a Kubernetes control plane on this machine, for tests and the playground: etcd, an API server with
// RBAC and ServiceAccount admission, and a controller manager. The processes end with the process that started them.
//
//	c, err := cluster.Start(ctx, cluster.Options{})
//	if err != nil { … }
//	defer c.Stop()
//	client, err := kubernetes.NewForConfig(c.Admin())
//
// The tests of a package share one cluster, which starts on first use:
//
//	func TestMain(m *testing.M) { cluster.Main(m, cluster.Options{}) }
//
//	func TestReplica(t *testing.T) {
//		c := cluster.Shared(t)
//		namespace := c.Namespace(t)
//		config := c.Identity(t, cluster.IdentityOptions{
//			Namespace: namespace, PodName: "a", Rules: rules,
//		})
//		…
//	}
//
// The programs come from `make tools`, or from the folder in KUBEBUILDER_ASSETS. They listen on loopback addresses of this
// cluster only, so that several clusters can run concurrently. This requires Linux. Data, certificates and logs are in a
// temporary folder that Stop deletes. The next Start deletes the folder of a killed process.
//
// envtest is not used, because it hides the processes. Tests here stop, kill and restart them.
//
// Package node runs Pods as processes. Without it Pods stay Pending, which is sufficient for tokens bound to them.
package cluster
