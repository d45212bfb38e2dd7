// Package cluster runs a Kubernetes control plane on this machine for tests and the
// playground: etcd, an API server with RBAC and ServiceAccount admission, and a controller
// manager, as processes that end with the one that started them.
//
//	c, err := cluster.Start(ctx, cluster.Options{})
//	if err != nil { … }
//	defer c.Stop()
//	client, err := kubernetes.NewForConfig(c.Admin())
//
// A test package shares one, which starts when a test first asks for it:
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
// With INCUMBENT_TEST_CLUSTER, a kubeconfig, it is that cluster, and none is started.
//
// The programs come from `make tools`, or from the folder that KUBEBUILDER_ASSETS
// names. They listen on loopback addresses that belong to this cluster alone, so that
// clusters of several test packages run side by side; that is why Linux is needed.
// Data, certificates and logs lie in a temporary folder that Stop removes. A
// starter that was killed leaves its folder behind; the next Start removes it.
//
// Backup and Restore put etcd's data back to an earlier moment, as after a disaster.
//
// Not envtest: it hides the processes, which tests here stop, kill and start again, gives
// them no lifeline, and tries a failing server five times before it tells. What is the same
// is KUBEBUILDER_ASSETS and its folder.
//
// Package node, below, runs Pods as processes; a cluster without one has Pods that stay
// Pending, which is enough for tokens bound to them.
package cluster
