package ctl

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/spf13/cobra"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"

	"incumbent.dev/incumbent/internal/apirequest"
	"incumbent.dev/incumbent/internal/inspect"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

func (p *Program) watch() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "watch [ELECTION]",
		Short:   "Print changes until Ctrl-C",
		Long:    "Prints the current holders, and then each change: terms, requests, handovers, holds, expired leases. Renewals are not printed. Times are from this machine.",
		Example: "  " + name() + " watch -A",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil // all elections
			}
			return exactly("election")(cmd, args)
		},
		ValidArgsFunction: p.completeElections,
		RunE: p.connected(nil, func(ctx context.Context, c *clients, args []string) error {
			only := ""
			if len(args) > 0 {
				only = args[0]
				if _, _, err := p.one(ctx, c, only, k8sleaderelection.DefaultRevision{}); err != nil {
					return err
				}
			}
			return p.follow(ctx, c, only)
		}),
	}
	p.namespaces(cmd)
	return cmd
}

// changed is a changed or deleted lock. present is true for the locks that exist at the start.
type changed struct {
	lock          inspect.Lock
	gone, present bool
}

// follow prints changes until ctx ends.
func (p *Program) follow(ctx context.Context, c *clients, only string) error {
	s, err := c.look(ctx, c.at)
	if err != nil { // an informer would retry forever
		return err
	}
	if len(s.locks) == 0 {
		fmt.Fprintln(p.ErrOut, inspect.Printable(p.nothing(ctx, c, s).Error()+"; watching for new elections"))
	}
	changes := make(chan changed)
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	for _, informer := range c.informers() {
		var reported apirequest.Reported[string]
		_ = informer.SetWatchErrorHandler(func(_ *cache.Reflector, err error) {
			if ctx.Err() == nil && reported.Failed("watch", err) {
				fmt.Fprintln(p.ErrOut, inspect.Printable(fmt.Sprintf("warning: watch interrupted; retrying: %v", err)))
			}
		})
		if _, err := informer.AddEventHandler(handler(ctx, changes)); err != nil {
			return err
		}
		running.Go(func() { informer.RunWithContext(ctx) })
	}
	known := map[string]printed{}
	expiry := time.NewTicker(expiryCheck)
	defer expiry.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case change := <-changes:
			if only == "" || change.lock.Name == only {
				p.tell(c, known, change)
			}
		case <-expiry.C:
			p.tellExpired(ctx, c, known)
		}
	}
}

// expiryCheck is the time between two checks for expired leases.
const expiryCheck = time.Second

func (c *clients) informers() []cache.SharedIndexInformer {
	leases := informers.NewSharedInformerFactoryWithOptions(c.kube, 0, informers.WithNamespace(c.at))
	configMaps := metadatainformer.NewFilteredSharedInformerFactory(c.meta, 0, c.at, nil)
	return []cache.SharedIndexInformer{
		leases.Coordination().V1().Leases().Informer(),
		configMaps.ForResource(corev1.SchemeGroupVersion.WithResource("configmaps")).Informer(),
	}
}

// handler sends the locks of changed objects.
func handler(ctx context.Context, changes chan<- changed) cache.ResourceEventHandler {
	send := func(object any, gone, present bool) {
		if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = last.Obj
		}
		var lock inspect.Lock
		var ok bool
		switch o := object.(type) {
		case *coordinationv1.Lease:
			lock, ok = inspect.FromLease(o)
		case *metav1.PartialObjectMetadata:
			lock, ok = inspect.FromConfigMap(&o.ObjectMeta)
		}
		if !ok {
			return
		}
		select {
		case changes <- changed{lock, gone, present}:
		case <-ctx.Done():
		}
	}
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc:    func(o any, atStart bool) { send(o, false, atStart) },
		UpdateFunc: func(_, o any) { send(o, false, false) },
		DeleteFunc: func(o any) { send(o, true, false) },
	}
}

// printed is a lock, and its election as it was printed last.
type printed struct {
	lock     inspect.Lock
	election *inspect.Election
}

// tell prints the changes of a lock.
func (p *Program) tell(c *clients, known map[string]printed, change changed) {
	key := change.lock.Kind + "/" + change.lock.Namespace + "/" + change.lock.Name
	var after *inspect.Election
	if !change.gone {
		change.lock.At = c.clock.Now()
		after = new(inspect.Of(change.lock))
	}
	changes := inspect.Changes(known[key].election, after)
	if change.present {
		changes = []string{after.HeldBy()}
	}
	for _, words := range changes {
		where := change.lock.Name
		if p.all {
			where = change.lock.Namespace + "/" + where
		}
		now := time.Now() //nolint:forbidigo // dates the lines
		safe{p.Out}.line("%s  %s: %s", now.UTC().Format("2006-01-02T15:04:05.000Z"), where, words)
	}
	if after == nil {
		delete(known, key)
		return
	}
	known[key] = printed{change.lock, after}
}

// tellExpired prints locks that were not renewed within their lease.
func (p *Program) tellExpired(ctx context.Context, c *clients, known map[string]printed) {
	asked := false
	for _, last := range known {
		last.lock.At = c.clock.Now()
		if e := inspect.Of(last.lock); e.State == last.election.State || e.State != inspect.Expired && e.State != inspect.Doubtful {
			continue
		}
		if !asked { // the clock may differ since the last response
			asked = true
			ctx, cancel := context.WithTimeout(ctx, completeWithin)
			_, err := c.serverTime(ctx)
			cancel()
			if err != nil {
				return // the watch reports it
			}
		}
		p.tell(c, known, changed{lock: last.lock})
	}
}
