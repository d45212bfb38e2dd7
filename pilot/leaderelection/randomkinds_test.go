package leaderelection

// electorKind is the kind of elector and lock of a process.
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

// Peer reports whether the elector is not incumbent.
func (m electorKind) Peer() bool { return m == istiodPeer || m == clientGoPeer }

// mix is kinds of electors that may take part together.
type mix []electorKind

// mixes are all mixes. Each seed uses one of them.
var mixes = []mix{
	{configMapOnly, configMapOnly, istiodPeer},
	{leaseOnly, leaseOnly, clientGoPeer},
	{leaseOnly, leaseOnly, istiodPeer},
	{configMapOnly, bothLocks},
	{bothLocks, leaseOnly},
}

// ByLease reports whether all elect by one Lease alone.
func (m mix) ByLease() bool { return m[0] == leaseOnly }

// playRevisions are the revisions of processes.
var playRevisions = []string{"stable", "canary"}
