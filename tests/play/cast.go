package play

// Make is what a process elects by.
type Make int

const (
	ConfigMapOnly Make = iota
	BothLocks
	LeaseOnly
	WithPredecessor // a Lease of its revision's, with the ConfigMap as the predecessor
	IstiodPeer
	ClientGoPeer
)

func (m Make) String() string {
	return [...]string{"configmap", "both", "lease", "predecessor", "istiod", "client-go"}[m]
}

// Peer reports whether such a process is not ours, so that nobody answers for it.
func (m Make) Peer() bool { return m == IstiodPeer || m == ClientGoPeer }

// Casts are the makes that may take part beside each other. A seed plays one of them.
var Casts = [][]Make{
	{ConfigMapOnly, ConfigMapOnly, IstiodPeer},
	{LeaseOnly, LeaseOnly, ClientGoPeer},
	{LeaseOnly, LeaseOnly, IstiodPeer},
	{ConfigMapOnly, BothLocks},
	{BothLocks, LeaseOnly},
	{WithPredecessor, WithPredecessor, ConfigMapOnly},
	{WithPredecessor, IstiodPeer},
}

// Cast is that of a seed.
func Cast(seed uint64) []Make { return Casts[seed%uint64(len(Casts))] }

// Revisions are those that processes are of.
var Revisions = []string{"stable", "canary"}
