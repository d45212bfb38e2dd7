package play

// Make is what a process elects by.
type Make int

const (
	ConfigMapOnly Make = iota
	BothLocks
	LeaseOnly
	IstiodPeer
	ClientGoPeer
)

func (m Make) String() string {
	return [...]string{"configmap", "both", "lease", "istiod", "client-go"}[m]
}

// Peer reports whether such a process is not ours, so that nobody answers for it.
func (m Make) Peer() bool { return m == IstiodPeer || m == ClientGoPeer }

// Mix is the makes that may take part beside each other.
type Mix []Make

// Mixes are those that are played. A seed plays one of them.
var Mixes = []Mix{
	{ConfigMapOnly, ConfigMapOnly, IstiodPeer},
	{LeaseOnly, LeaseOnly, ClientGoPeer},
	{LeaseOnly, LeaseOnly, IstiodPeer},
	{ConfigMapOnly, BothLocks},
	{BothLocks, LeaseOnly},
}

// ByLease reports whether all elect by one Lease alone.
func (m Mix) ByLease() bool { return m[0] == LeaseOnly }

// Revisions are those that processes are of.
var Revisions = []string{"stable", "canary"}
