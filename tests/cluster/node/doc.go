// Package node runs Pods as processes of this machine: a node for clusters that have no
// kubelet, no container runtime and no network. With it `kubectl scale`, `kubectl
// rollout restart` and `kubectl delete pod` do what they do elsewhere.
//
//	n, err := node.New(node.Options{
//		Config: c.Admin(), Dir: dir, Images: map[string]string{"pilot": "bin/pilot"},
//	})
//	if err != nil { … }
//	err = n.Run(ctx) // until ctx ends; all processes have ended then
//
// A Pod's life here:
//
//	unscheduled ── bind ──▶ set up ── start ──▶ running ◀──▶ ready
//	                                   ▲           │ exits
//	                                   └─ back-off ┘
//	deleted: SIGTERM, grace period, SIGKILL, and the object goes (grace period 0)
//
// A process gets the command and arguments of the Pod's only container, and as its
// whole environment: what the container's env says (values, and fields of the Pod),
// KUBECONFIG with a token that is bound to the Pod and kept fresh, POD_NAME,
// POD_NAMESPACE and POD_IP unless the Pod sets them, PATH, and HOME and TMPDIR in a
// folder of its own. It has a loopback address of its own (status.podIP), on which every port
// is free; its readinessProbe and its livenessProbe ask there, by httpGet or tcpSocket. A process
// that does not answer the latter gets its grace period and is started again.
//
// Its output is appended to a file (Pod.Log), and `kubectl logs` shows it, also with -f, --previous
// and --tail: the node serves a kubelet's log endpoint, at an address of its own that stands in
// the Node's status, to those whose client certificate the cluster's authority has signed and who may
// get nodes/proxy. Of an API server elsewhere it cannot be reached.
//
// What is not here: exec, volumes, several containers, init containers, startup probes, hooks,
// resource limits. A Pod that asks for what would change its meaning (a second
// container, a value from a Secret) does not run, and its status says why.
//
// No process outlives the node, not even one whose node is killed with SIGKILL: see
// package process for how.
package node
