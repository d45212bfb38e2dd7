package leaderelection

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// bug is a planted bug.
type bug struct {
	write      faultyWrite // of Leases
	givesUp    bool        // no write succeeds after the faults
	quiet      bool        // the watches have no events
	ungated    bool        // the work's writes pass no gate
	leavesWork bool        // functions return before their work has ended
	sameToken  bool        // the token does not grow
	unwatched  bool        // the watchers miss each change of the default revision
	// wavers is the interval at which each watcher changes its default revision.
	wavers time.Duration
}

// faultyWrite replaces creates and updates. send sends a request.
type faultyWrite func(ctx context.Context, lease *coordinationv1.Lease, send sendLease) (*coordinationv1.Lease, error)

type (
	leasesOf  = coordinationv1client.LeaseInterface
	sendLease = func(*coordinationv1.Lease) (*coordinationv1.Lease, error)
)

// faultyLeases is a client for Leases with a bug in its writes.
type faultyLeases struct {
	leasesOf
	write faultyWrite
}

func (f faultyLeases) Leases(string) leasesOf { return f }

func (f faultyLeases) Create(ctx context.Context, lease *coordinationv1.Lease, opts metav1.CreateOptions) (*coordinationv1.Lease, error) {
	return f.write(ctx, lease, func(l *coordinationv1.Lease) (*coordinationv1.Lease, error) { return f.leasesOf.Create(ctx, l, opts) })
}

func (f faultyLeases) Update(ctx context.Context, lease *coordinationv1.Lease, opts metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	return f.write(ctx, lease, func(l *coordinationv1.Lease) (*coordinationv1.Lease, error) { return f.leasesOf.Update(ctx, l, opts) })
}

// hopeful reports each write as stored, even after an error.
func hopeful(_ context.Context, lease *coordinationv1.Lease, send sendLease) (*coordinationv1.Lease, error) {
	stored, err := send(lease)
	version, bad := strconv.ParseUint(lease.ResourceVersion, 10, 64)
	if err == nil || bad != nil {
		return stored, err
	}
	stored = lease.DeepCopy()
	stored.ResourceVersion = strconv.FormatUint(version+1, 10)
	return stored, nil
}

// insists retries a rejected request without a pause.
func insists(ctx context.Context, lease *coordinationv1.Lease, send sendLease) (stored *coordinationv1.Lease, err error) {
	for range 100 {
		if stored, err = send(lease); err == nil || ctx.Err() != nil {
			break
		}
	}
	return stored, err
}

// playBugs has a planted bug for each check, with the violation that must be found.
var playBugs = map[string]struct {
	bug
	shows string
}{
	"the work's writes pass no gate":             {bug{ungated: true}, "writes while"},
	"functions return before their work has":     {bug{leavesWork: true}, "and its functions ran"},
	"a token that does not grow":                 {bug{sameToken: true}, "has the token"},
	"the default revision changes without event": {bug{unwatched: true}, "not of the default revision"},
	"the default revision wavers":                {bug{wavers: 2 * time.Second}, "for no cause"},
	"each write counts as stored":                {bug{write: hopeful}, "started while"},
	"a refused write is sent again and again":    {bug{write: insists}, "about one object"},
	"a watch without events":                     {bug{quiet: true}, "works false, sent"},
	"no write succeeds after the faults":         {bug{givesUp: true}, "no candidate leads"},
}

// bugSeeds is the maximum number of seeds until a planted bug is found. The rarest bug appears in one of about ten seeds.
const bugSeeds = 200

// The random run finds each planted bug.
func TestRandomElections_PlantedBugs(t *testing.T) {
	for name, b := range playBugs {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(bugSeeds) {
				for _, v := range playElection(t, seed, b.bug).violations {
					if strings.Contains(v, b.shows) {
						t.Logf("seed %d: %s", seed, v)
						return
					}
				}
			}
			t.Errorf("no violation %q in %d seeds", b.shows, bugSeeds)
		})
	}
}
