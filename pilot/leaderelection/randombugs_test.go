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

// between is a client for Leases with a bug.
type between struct {
	coordinationv1client.LeasesGetter
	make func(coordinationv1client.LeaseInterface) coordinationv1client.LeaseInterface
}

func (b between) Leases(namespace string) coordinationv1client.LeaseInterface {
	return b.make(b.LeasesGetter.Leases(namespace))
}

type leasesOf = coordinationv1client.LeaseInterface

func through(f func(*process, leasesOf) leasesOf) func(*process, coordinationv1client.LeasesGetter) coordinationv1client.LeasesGetter {
	return func(p *process, c coordinationv1client.LeasesGetter) coordinationv1client.LeasesGetter {
		return between{c, func(l leasesOf) leasesOf { return f(p, l) }}
	}
}

// overwrites updates without a resourceVersion.
type overwrites struct {
	coordinationv1client.LeaseInterface
}

func (o overwrites) Update(ctx context.Context, lease *coordinationv1.Lease, opts metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	stored, err := o.LeaseInterface.Update(ctx, lease, opts)
	if !apierrors.IsConflict(err) {
		return stored, err
	}
	now, err := o.Get(ctx, lease.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	lease = lease.DeepCopy()
	lease.ResourceVersion, lease.UID = now.ResourceVersion, now.UID
	return o.LeaseInterface.Update(ctx, lease, opts)
}

// hopeful reports each write as stored, even after an error.
type hopeful struct {
	coordinationv1client.LeaseInterface
}

func (h hopeful) Update(ctx context.Context, lease *coordinationv1.Lease, opts metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	stored, err := h.LeaseInterface.Update(ctx, lease, opts)
	if err == nil {
		return stored, nil
	}
	version, bad := strconv.ParseUint(lease.ResourceVersion, 10, 64)
	if bad != nil {
		return nil, err
	}
	stored = lease.DeepCopy()
	stored.ResourceVersion = strconv.FormatUint(version+1, 10)
	return stored, nil
}

// insists retries a rejected request without a pause.
type insists struct {
	coordinationv1client.LeaseInterface
}

func (i insists) Update(ctx context.Context, lease *coordinationv1.Lease, opts metav1.UpdateOptions) (stored *coordinationv1.Lease, err error) {
	for range 100 {
		if stored, err = i.LeaseInterface.Update(ctx, lease, opts); err == nil || ctx.Err() != nil {
			break
		}
	}
	return stored, err
}

// deaf has a watch without events.
type deaf struct {
	coordinationv1client.LeaseInterface
}

func (d deaf) Watch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	return watch.NewFake(), nil
}

// givesUp blocks each write after the faults have ended.
type givesUp struct {
	coordinationv1client.LeaseInterface
	p *process
}

func (g givesUp) Update(ctx context.Context, lease *coordinationv1.Lease, opts metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	if g.p.w.IsCalm() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return g.LeaseInterface.Update(ctx, lease, opts)
}

// confident reports each dry run of such a write as admitted.
type confident struct {
	coordinationv1client.LeaseInterface
	of func(*coordinationv1.Lease) bool
}

func (c confident) Update(ctx context.Context, lease *coordinationv1.Lease, opts metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	if len(opts.DryRun) > 0 && c.of(lease) {
		return lease, nil
	}
	return c.LeaseInterface.Update(ctx, lease, opts)
}

func (c confident) Create(ctx context.Context, lease *coordinationv1.Lease, opts metav1.CreateOptions) (*coordinationv1.Lease, error) {
	if len(opts.DryRun) > 0 && c.of(lease) {
		return lease, nil
	}
	return c.LeaseInterface.Create(ctx, lease, opts)
}

// claims reports whether the process writes itself as holder.
func (p *process) claims(lease *coordinationv1.Lease) bool {
	holder := lease.Spec.HolderIdentity
	return holder != nil && *holder == p.Name
}

// playBugs are the planted bugs, each with the violation that must be found.
var playBugs = map[string]struct {
	bug
	shows string
}{
	"the work's writes pass no gate":          {bug{ungated: true}, "writes while"},
	"functions return before their work has":  {bug{leavesWork: true}, "while"},
	"a lock is given up with work alive":      {bug{leavesWork: true}, "and its functions ran"},
	"a token that does not grow":              {bug{token: true}, "has the token"},
	"the default revision changes unheard":    {bug{deaf: true}, "not of the default revision"},
	"the default revision wavers":             {bug{wavers: 2 * time.Second}, "for no cause"},
	"a write is no compare-and-swap":          {bug{client: through(func(_ *process, l leasesOf) leasesOf { return overwrites{l} })}, "started while"},
	"each write counts as stored":             {bug{client: through(func(_ *process, l leasesOf) leasesOf { return hopeful{l} })}, "started while"},
	"a refused write is sent again and again": {bug{client: through(func(_ *process, l leasesOf) leasesOf { return insists{l} })}, "about one object"},
	"a watch without events":                  {bug{client: through(func(_ *process, l leasesOf) leasesOf { return deaf{l} })}, "works false, sent"},
	"one of two objects is enough": {bug{client: through(func(p *process, l leasesOf) leasesOf {
		if p.Make == bothLocks {
			return hopeful{l}
		}
		return l
	})}, "started while"},
	"acquires without a dry run": {bug{client: through(func(p *process, l leasesOf) leasesOf { return confident{l, p.claims} })}, "no candidate leads"},
	// A request without a dry run is rare here, because the elector also makes one after a rejection: see TestMultiLock_DryRunBeforeRequest
	// in k8sresourcelock and TestBarredChallenger in k8sleaderelection.
	"no write succeeds after the faults": {bug{client: through(func(p *process, l leasesOf) leasesOf { return givesUp{l, p} })}, "no candidate leads"},
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
