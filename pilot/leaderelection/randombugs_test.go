package leaderelection

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// bug is a planted bug.
type bug struct {
	client     func(*process, *faultyLeases)
	ungated    bool // the work's writes pass no gate
	leavesWork bool // functions return before their work has ended
	token      bool // the token stays the same
	unwatched  bool // the watchers miss each change of the default revision
	// wavers is the interval at which each watcher changes its default revision.
	wavers time.Duration
}

// faultyLeases is a client for Leases with a bug in one of its functions.
type faultyLeases struct {
	leasesOf
	// write replaces creates and updates, if it is not nil. send sends a request.
	write func(ctx context.Context, lease *coordinationv1.Lease, dryRun bool, send sendLease) (*coordinationv1.Lease, error)
	quiet bool // its watches have no events
}

type (
	leasesOf  = coordinationv1client.LeaseInterface
	sendLease = func(*coordinationv1.Lease) (*coordinationv1.Lease, error)
)

func (f faultyLeases) Leases(string) leasesOf { return f }

func (f faultyLeases) Create(ctx context.Context, lease *coordinationv1.Lease, opts metav1.CreateOptions) (*coordinationv1.Lease, error) {
	send := func(l *coordinationv1.Lease) (*coordinationv1.Lease, error) { return f.leasesOf.Create(ctx, l, opts) }
	if f.write == nil {
		return send(lease)
	}
	return f.write(ctx, lease, len(opts.DryRun) > 0, send)
}

func (f faultyLeases) Update(ctx context.Context, lease *coordinationv1.Lease, opts metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	send := func(l *coordinationv1.Lease) (*coordinationv1.Lease, error) { return f.leasesOf.Update(ctx, l, opts) }
	if f.write == nil {
		return send(lease)
	}
	return f.write(ctx, lease, len(opts.DryRun) > 0, send)
}

func (f faultyLeases) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	if f.quiet {
		return watch.NewFake(), nil
	}
	return f.leasesOf.Watch(ctx, opts)
}

// overwrites updates without a resourceVersion.
func overwrites(_ *process, f *faultyLeases) {
	f.write = func(ctx context.Context, lease *coordinationv1.Lease, _ bool, send sendLease) (*coordinationv1.Lease, error) {
		stored, err := send(lease)
		if !apierrors.IsConflict(err) {
			return stored, err
		}
		now, err := f.Get(ctx, lease.Name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		lease = lease.DeepCopy()
		lease.ResourceVersion, lease.UID = now.ResourceVersion, now.UID
		return send(lease)
	}
}

// hopeful reports each write as stored, even after an error.
func hopeful(_ *process, f *faultyLeases) {
	f.write = func(_ context.Context, lease *coordinationv1.Lease, _ bool, send sendLease) (*coordinationv1.Lease, error) {
		stored, err := send(lease)
		version, bad := strconv.ParseUint(lease.ResourceVersion, 10, 64)
		if err == nil || bad != nil {
			return stored, err
		}
		stored = lease.DeepCopy()
		stored.ResourceVersion = strconv.FormatUint(version+1, 10)
		return stored, nil
	}
}

// insists retries a rejected request without a pause.
func insists(_ *process, f *faultyLeases) {
	f.write = func(ctx context.Context, lease *coordinationv1.Lease, _ bool, send sendLease) (stored *coordinationv1.Lease, err error) {
		for range 100 {
			if stored, err = send(lease); err == nil || ctx.Err() != nil {
				break
			}
		}
		return stored, err
	}
}

// givesUp blocks each write after the faults have ended.
func givesUp(p *process, f *faultyLeases) {
	f.write = func(ctx context.Context, lease *coordinationv1.Lease, _ bool, send sendLease) (*coordinationv1.Lease, error) {
		if p.w.IsCalm() {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return send(lease)
	}
}

// confident reports each dry run of a write of the process as holder as admitted.
func confident(p *process, f *faultyLeases) {
	f.write = func(_ context.Context, lease *coordinationv1.Lease, dryRun bool, send sendLease) (*coordinationv1.Lease, error) {
		if holder := lease.Spec.HolderIdentity; dryRun && holder != nil && *holder == p.Name {
			return lease, nil
		}
		return send(lease)
	}
}

// playBugs are the planted bugs, each with the violation that must be found.
var playBugs = map[string]struct {
	bug
	shows string
}{
	"the work's writes pass no gate":             {bug{ungated: true}, "writes while"},
	"functions return before their work has":     {bug{leavesWork: true}, "while"},
	"a lock is given up with work alive":         {bug{leavesWork: true}, "and its functions ran"},
	"a token that does not grow":                 {bug{token: true}, "has the token"},
	"the default revision changes without event": {bug{unwatched: true}, "not of the default revision"},
	"the default revision wavers":                {bug{wavers: 2 * time.Second}, "for no cause"},
	"a write is no compare-and-swap":             {bug{client: overwrites}, "started while"},
	"each write counts as stored":                {bug{client: hopeful}, "started while"},
	"a refused write is sent again and again":    {bug{client: insists}, "about one object"},
	"a watch without events":                     {bug{client: func(_ *process, f *faultyLeases) { f.quiet = true }}, "works false, sent"},
	"one of two objects is enough": {bug{client: func(p *process, f *faultyLeases) {
		if p.Make == bothLocks {
			hopeful(p, f)
		}
	}}, "started while"},
	"acquires without a dry run": {bug{client: confident}, "no candidate leads"},
	// A request without a dry run is rare here, because the elector also makes one after a rejection: see TestMultiLock_DryRunBeforeRequest
	// in k8sresourcelock and TestBarredChallenger in k8sleaderelection.
	"no write succeeds after the faults": {bug{client: givesUp}, "no candidate leads"},
}

// bugSeeds is the maximum number of seeds until a planted bug is found. The rarest bug appears in one of about forty seeds.
const bugSeeds = 1000

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
