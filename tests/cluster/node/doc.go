// Package node runs Pods as local processes. It is a node for clusters without a kubelet, a container runtime and a
// network. `kubectl scale`, `kubectl rollout restart`, `kubectl delete pod` and `kubectl drain` work as usual.
//
//	n, err := node.New(node.Options{
//		Config: c.Admin(), Dir: dir, Images: map[string]string{"pilot": "bin/pilot"},
//	})
//	if err != nil { … }
//	err = n.Run(ctx) // until ctx ends and all processes have ended
//
// The life of a Pod:
//
//	unscheduled ── bind ──▶ set up ── start ──▶ running ◀──▶ ready
//	                                   ▲           │ exits
//	                                   └─ back-off ┘
//	deleted: SIGTERM, grace period, SIGKILL, then the object is deleted
//
// A process gets the command and arguments of the only container of the Pod. Its environment contains the container's
// variables (values and fields of the Pod), KUBECONFIG with a token bound to the Pod, POD_NAME, POD_NAMESPACE, POD_IP,
// PATH, HOME and TMPDIR. Each Pod has its own loopback address (status.podIP) with all ports. Readiness and liveness
// probes use httpGet. A process whose liveness probe fails is terminated and restarted.
//
// The output is appended to a file (Pod.Log). `kubectl logs` shows it, also with -f, --previous and --tail: the node serves the log endpoint of a
// kubelet to clients with a certificate of the cluster. A remote API server cannot reach it.
//
// With Options.LoadBalancer, Services of type LoadBalancer work. Not supported: UDP, named target ports, session affinity, traffic
// policies, weights, loadBalancerIP. Ports below 1024 need root or net.ipv4.ip_unprivileged_port_start.
//
// Not supported for Pods: exec, volumes, several containers, init containers, startup probes, hooks, resource limits, and other
// restart policies than Always. If an unsupported field would change the meaning of a Pod, the Pod does not run and its status
// contains the reason.
//
// No process outlives the node, even if the node is killed with SIGKILL (see package process).
package node
