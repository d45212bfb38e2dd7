package leaderelection

// electorKind is what a process elects by.
type electorKind int

const (
	configMapOnly electorKind = iota
	bothLocks
	leaseOnly
	istiodPeer
	clientGoPeer
)

func (m electorKind) String() string {
	return [...]string{"configmap", "both", "lease", "istiod", "client-go"}[m]
}

// Peer reports whether such a process is not ours, so that nobody answers for it.
func (m electorKind) Peer() bool { return m == istiodPeer || m == clientGoPeer }

// mix is the makes that may take part beside each other.
type mix []electorKind

// mixes are those that are played. A seed plays one of them.
var mixes = []mix{
	{configMapOnly, configMapOnly, istiodPeer},
	{leaseOnly, leaseOnly, clientGoPeer},
	{leaseOnly, leaseOnly, istiodPeer},
	{configMapOnly, bothLocks},
	{bothLocks, leaseOnly},
}

// ByLease reports whether all elect by one Lease alone.
func (m mix) ByLease() bool { return m[0] == leaseOnly }

// playRevisions are those that processes are of.
var playRevisions = []string{"stable", "canary"}
